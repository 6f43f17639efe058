"""What the app says, in two languages, and how numbers and a reader's own text are written into it.

Labels are TOML, prose is Markdown, both under `pages/text/<lang>/`, the same ids in each language (held by
a test). An id is the path without its ending, then the key:

    english = words("en")
    english.t("common.next")                      pages/text/en/common.toml, key `next`
    english.prose("start/what", factor="187")     pages/text/en/start/what.md

Both are formatted with `str.format`, so a brace that is meant (LaTeX) is doubled in the file. A label with
plural forms is a table of CLDR categories and is chosen by `n`:

    tokens = { one = "{n} token", other = "{n} tokens" }

Two fields need no value from the caller, `{cite[zhang2019]}` and `{cited[time_saved_most]}`: a link to a
cited work, and a cited number, of `viz/sources.py`.

Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

import math
import re
import string
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeGuard

from babel import Locale

from viz.sources import NUMBERS, SOURCES

LANGUAGES: Final = ("zh", "en")
TEXT_FOLDER: Final = Path(__file__).resolve().parent.parent / "pages" / "text"

PLURAL_CATEGORIES: Final = frozenset({"zero", "one", "two", "few", "many", "other"})
THIN_SPACE: Final = "\u202f"  # narrow and unbreakable, between thousands
MINUS: Final = "\u2212"
NOT_A_NUMBER: Final = "—"

_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# A line end with 汉字 or full-width punctuation on one side, and the same or markup on the other.
_WIDE: Final = r"\u2e80-\u9fff\uff00-\uffef“”‘’…—"
_GAP_IN_CHINESE: Final = re.compile(rf"(?<=[{_WIDE}])\n *(?=[{_WIDE}:*\[$`])|(?<=[*\]$`)])\n *(?=[{_WIDE}])")
WORD_JOINER: Final = "\u2060"
ISOLATE: Final = "\u2068"  # what follows is laid out on its own, in the direction of its first letter
END_OF_ISOLATE: Final = "\u2069"
_VISIBLE: Final = str.maketrans({"\n": "⏎", "\r": "␍", "\t": "⇥"})
_INKLESS: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # categories that draw nothing of their own
_JOINERS: Final = "\u200c\u200d"  # part of how Persian, Hindi and emoji are written; they move nothing
_BLANKS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # called letters, and as empty
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
_INVISIBLE: Final = str.maketrans(dict.fromkeys((WORD_JOINER, ISOLATE, END_OF_ISOLATE)))
_LOST_SPACE: Final = re.compile(r"^ | $|(?<= ) ")
# Between these two halves: ":" and a name, the marks of an arrow or a comparison, "http" and ":", "www" and
# ".", a mailbox and "@".
_REPLACED_AFTER_PARSING: Final = re.compile(
    r"(?<=:)(?=[\w+-])|(?<=[<>~-])(?=[->=])|(?<=http)(?=s?:)|(?<=https)(?=:)|(?<=www)(?=\.)|(?=@)",
    re.IGNORECASE,
)
_ASCII_PUNCTUATION: Final = re.compile("([" + re.escape(string.punctuation) + "])")

Label = str | dict[str, str]


class Words:
    """The labels and the prose of one language.

    Attributes:
        lang: one of LANGUAGES.
    """

    def __init__(self, lang: str, folder: Path = TEXT_FOLDER) -> None:
        if lang not in LANGUAGES:
            raise ValueError(f"lang is one of {LANGUAGES}, not {lang!r}")
        self.lang = lang
        self._plural_form = Locale(lang).plural_form
        self._sources = {
            "cite": {key: source.link(lang) for key, source in SOURCES.items()},
            "cited": {key: number(cited.value, cited.digits) for key, cited in NUMBERS.items()},
        }
        home = folder / lang
        self._labels: dict[str, Label] = {}
        for path in sorted(home.glob("*.toml")):
            self._labels.update(_flatten(tomllib.loads(path.read_text(encoding="utf-8")), path.stem))
        self._prose: dict[str, str] = {
            path.relative_to(home).with_suffix("").as_posix(): _unwrapped(path.read_text(encoding="utf-8"))
            for path in sorted(home.rglob("*.md"))
        }

    def t(self, label: str, **values: object) -> str:
        """The label of this id, with its values filled in.

        Raises:
            KeyError: there is no such id, or the label names a value that was not given.
        """
        entry = self._labels[label]
        if isinstance(entry, dict):
            entry = entry[self._plural_form(float(str(values["n"])))]
        return entry.format(**self._sources, **values)

    def prose(self, piece: str, **values: object) -> str:
        """The Markdown of this id, with its values filled in.

        Values that a reader typed go through `literal` first.

        Raises:
            KeyError: there is no such id, or the prose names a value that was not given.
        """
        return self._prose[piece].format(**self._sources, **values)

    def templates(self) -> Mapping[str, tuple[str, ...]]:
        """Every id with its unformatted text: one string, or one a plural form."""
        labels = {
            label: (entry,) if isinstance(entry, str) else tuple(entry.values())
            for label, entry in self._labels.items()
        }
        return labels | {piece: (text,) for piece, text in self._prose.items()}


@lru_cache(maxsize=len(LANGUAGES))
def words(lang: str) -> Words:
    """The words of a language, read once a process.

    Raises:
        ValueError: the language is not in LANGUAGES.
    """
    return Words(lang)


def _unwrapped(prose: str) -> str:
    """Prose whose lines may be wrapped in the file: a browser shows a line end between 汉字 as a gap."""
    return _GAP_IN_CHINESE.sub("", prose.strip())


def _is_label(value: object) -> TypeGuard[Label]:
    """Text, or a table of plural forms."""
    return isinstance(value, str) or (
        isinstance(value, dict) and bool(value) and PLURAL_CATEGORIES.issuperset(value)
    )


def _flatten(table: Mapping[str, object], stem: str) -> Iterator[tuple[str, Label]]:
    """TOML tables as dotted ids; a table of plural forms stays one entry."""
    for key, value in table.items():
        name = f"{stem}.{key}"
        if _is_label(value):
            yield name, value
        elif isinstance(value, dict):
            yield from _flatten(value, name)
        else:
            raise TypeError(f"{name} is {type(value).__name__}, where a label is text")


def literal(text: str) -> str:
    """A reader's own text, so that Streamlit's Markdown shows it letter for letter.

    Every ASCII punctuation mark is escaped: tags, links, emphasis, `$`, `|`, backticks, directives. What
    Streamlit replaces after parsing, where an escape is forgotten (`:emoji:`, `->`, bare addresses), is broken
    by a word joiner, which has no width. Line breaks and tabs are drawn as ⏎ and ⇥, and no space is lost. What
    draws nothing or turns the text around it is named, and right-to-left text keeps to itself.

    >>> literal("<b>$x$</b>")
    '\\\\<b\\\\>\\\\$x\\\\$\\\\<\\\\/b\\\\>'
    """
    joined = _REPLACED_AFTER_PARSING.sub(WORD_JOINER, inked(text.translate(_VISIBLE)))
    escaped = _ASCII_PUNCTUATION.sub(r"\\\1", joined)
    return isolated(_LOST_SPACE.sub("\u00a0", escaped))


def inked(text: str) -> str:
    """Text with a name in place of what draws nothing: control characters, zero-width ones, lone surrogates, marks
    and overrides of direction.

    >>> inked("a\\u202eb\\x1b[2J"), inked("a\\u200db")
    ('a<U+202E>b<U+001B>[2J', 'a\\u200db')
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if has_ink(c) or c in _JOINERS else f"<U+{ord(c):04X}>" for c in text)


def isolated(text: str) -> str:
    """Text without marks of direction (`inked`), so that its right-to-left letters move nothing around it.

    >>> isolated("river"), isolated("שלום") == ISOLATE + "שלום" + END_OF_ISOLATE
    ('river', True)
    """
    if not any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in text):
        return text
    return f"{ISOLATE}{text}{END_OF_ISOLATE}"


def has_ink(c: str) -> bool:
    """Whether a character draws something, or is a space: not what is invisible, unpaired or no character at all."""
    is_no_character = 0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE
    return not (is_no_character or c in _BLANKS or unicodedata.category(c) in _INKLESS)


def plain(markdown: str) -> str:
    """What `literal` escaped, unescaped: for where text is not read as Markdown.

    >>> plain(literal("<b>$x$</b>"))
    '<b>$x$</b>'
    """
    return re.sub(rf"\\([{re.escape(string.punctuation)}])", r"\1", markdown.translate(_INVISIBLE))


def number(value: float, digits: int = 3) -> str:
    """A number as the app writes it: `digits` significant digits, thin spaces in thousands.

    Whole digits are never rounded away ("1 234", not "1 230"); below 0.001 and from ten million on, a power of
    ten, without its factor where that is 1. What is not finite is "—", never 0.

    >>> number(186.84), number(0.4794), number(1234567.8).replace(THIN_SPACE, " "), number(1e-6)
    ('187', '0.479', '1 234 568', '10⁻⁶')
    >>> number(29.8795, digits=4), number(-0.5), number(float("nan"))
    ('29.88', '−0.500', '—')
    """
    if not math.isfinite(value):
        return NOT_A_NUMBER
    sign = MINUS if value < 0 else ""
    size = abs(value)
    if size == 0:
        return "0"
    mantissa, _, exponent = f"{size:.{digits - 1}e}".partition("e")
    if not 1e-3 <= size < 1e7:
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
        return sign + (power if mantissa == "1" else f"{mantissa}·{power}")
    decimals = max(digits - 1 - int(exponent), 0)
    return sign + f"{size:,.{decimals}f}".replace(",", THIN_SPACE)
