"""Colours and line styles by role: the same thing looks the same on every page, in both themes.

The interface colours are repeated in `.streamlit/config.toml`, where Streamlit needs them; a test holds the
two together. All text and line colours reach 4.5 : 1 on their ground. A role is never told by colour alone:
`LINE_STYLES` gives each its own dash and marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final, Literal

Mode = Literal["light", "dark"]
ColourStops = tuple[tuple[float, str], ...]  # (position from 0 to 1, "#RRGGBB"), as plotly takes them

FONT_STACK: Final = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans SC", "Noto Sans CJK SC", '
    '"PingFang SC", "Microsoft YaHei", sans-serif'
)
MONO_STACK: Final = (
    # 汉字 after the generic family: a proportional font that is installed would otherwise set the code
    'ui-monospace, SFMono-Regular, Menlo, Consolas, "Noto Sans Mono", monospace, "Noto Sans SC", '
    '"Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei"'
)


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colours, each "#RRGGBB"."""

    mode: Mode
    residual: str  # what goes into the norm
    normalized: str  # after ÷ RMS, before the gain
    output: str  # after the gain
    sink: str  # attention sink tokens
    reference: str  # √d, γ = 1
    text: str
    muted: str
    accent: str  # controls and links
    good: str
    careful: str
    ground: str  # the page
    surface: str  # a quiet panel on the page, table heads, code
    grid: str  # grid lines and hairlines

    def role(self, role: str) -> str:
        """The colour of one of the keys of LINE_STYLES.

        Raises:
            KeyError: there is no such role.
        """
        if role not in LINE_STYLES:
            raise KeyError(role)
        return getattr(self, role)

    def css_variables(self) -> str:
        """The colours for style sheets, `--lab-residual` and so on, on the document's root."""
        names = (field.name for field in fields(self) if field.name != "mode")
        return ":root{" + "".join(f"--lab-{name}:{getattr(self, name)};" for name in names) + "}"

    def sequential(self, role: str) -> ColourStops:
        """Colour stops for a magnitude: from nearly the ground, through the role's colour, to its extreme.

        Raises:
            KeyError: there is no such role.
        """
        colour = self.role(role)
        return (
            (0.0, mix(self.ground, colour, 0.08)),
            (0.35, mix(self.ground, colour, 0.45)),
            (0.7, colour),
            (1.0, mix(colour, self.text, 0.65)),
        )

    def diverging(self) -> ColourStops:
        """Colour stops around a middle (γ = 1): accent below, careful above, the ground between.

        The caller centres the range on the middle.
        """
        return (
            (0.0, mix(self.accent, self.text, 0.35)),
            (0.25, self.accent),
            (0.5, mix(self.ground, self.muted, 0.1)),
            (0.75, self.careful),
            (1.0, mix(self.careful, self.text, 0.35)),
        )


LIGHT: Final = Palette(
    mode="light",
    residual="#C2410C",
    normalized="#0E7490",
    output="#6D28D9",
    sink="#9F1239",
    reference="#57606A",
    text="#1F2328",
    muted="#57606A",
    accent="#1D4ED8",
    good="#15803D",
    careful="#B45309",
    ground="#FCFCFA",
    surface="#F3F3EF",
    grid="#E2E3DE",
)

DARK: Final = Palette(
    mode="dark",
    residual="#FB923C",
    normalized="#22D3EE",
    output="#C4B5FD",
    sink="#FDA4AF",
    reference="#9AA4B2",
    text="#E6EAF0",
    muted="#9AA4B2",
    accent="#93B4FF",
    good="#4ADE80",
    careful="#FBBF24",
    ground="#14171C",
    surface="#1C2027",
    grid="#2B313B",
)


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a role is drawn beside its colour, in plotly's terms."""

    dash: str
    width: float  # pixels
    symbol: str | None  # marker, None for a bare line


LINE_STYLES: Final[Mapping[str, LineStyle]] = MappingProxyType(
    {
        "residual": LineStyle(dash="solid", width=2.2, symbol="circle"),
        "normalized": LineStyle(dash="solid", width=2.6, symbol=None),
        "output": LineStyle(dash="dash", width=2.0, symbol="diamond"),
        "sink": LineStyle(dash="dot", width=2.0, symbol="star"),
        "reference": LineStyle(dash="longdash", width=1.2, symbol=None),
    }
)

# The same of a second trace beside the first: the role's colour, thinner, hollow markers, another dash.
SECOND_STYLES: Final[Mapping[str, LineStyle]] = MappingProxyType(
    {
        "residual": LineStyle(dash="7px,3px", width=1.3, symbol="circle-open"),
        "normalized": LineStyle(dash="7px,3px", width=1.4, symbol=None),
        "output": LineStyle(dash="2px,3px", width=1.3, symbol="diamond-open"),
        "sink": LineStyle(dash="1px,4px", width=1.3, symbol="star-open"),
        "reference": LineStyle(dash="longdash", width=0.8, symbol=None),
    }
)


def palette(mode: str | None) -> Palette:
    """The palette of "light" or "dark"; anything else, such as a theme not known yet, is light.

    >>> palette("dark").residual
    '#FB923C'
    """
    return DARK if mode == "dark" else LIGHT


def mix(first: str, second: str, share: float) -> str:
    """The colour `share` of the way from `first` to `second`, in sRGB.

    >>> mix("#000000", "#FFFFFF", 0.5)
    '#808080'
    """
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, 1 to 21. Source: WCAG 2.2, relative luminance.

    >>> round(contrast("#000000", "#FFFFFF"))
    21
    """
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
