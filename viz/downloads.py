"""What a reader takes away: the trace as a file, the chart as a picture, and a link to what is on the page.

The picture is made by the browser, from the plotly that Streamlit has loaded, with its provenance under it.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

import streamlit as st

from model_probe.trace import NormTrace
from model_probe.trace_files import to_csv, to_json
from viz.figures.base import literal, wrapped
from viz.shell import Page
from viz.text import plain

PICTURE_WIDTH: Final = 1200  # pixels, drawn at twice that
PICTURE_CHARS: Final = 180  # half-widths in a line under the picture

_picture = st.components.v2.component(
    "rmsnorm_lab_picture",
    html='<div class="picture"><button type="button" data-format="png"></button>'
    '<button type="button" data-format="svg"></button><span role="status"></span></div>\n',
    css=(Path(__file__).with_name("downloads.css")).read_text(encoding="utf-8"),
    js=(Path(__file__).with_name("downloads.js")).read_text(encoding="utf-8"),
)


def downloads(page: Page, trace: NormTrace, *, chart: str, source: str) -> None:
    """Draws the buttons: the trace as JSON and CSV, the chart of this key as PNG and SVG with `source` under it."""
    name = file_stem(trace)
    with st.container(key="probe-downloads", horizontal=True, vertical_alignment="center"):
        for ending, mime, write in (
            ("json", "application/json", to_json),
            ("csv", "text/csv", to_csv),
        ):
            st.download_button(
                page.t(f"downloads.{ending}"),
                data=partial(write, trace),
                file_name=f"{name}.{ending}",
                mime=mime,
                key=f"probe-download-{ending}",
                on_click="ignore",
            )
        _picture(
            key="probe-picture",
            data={
                "chart": chart,
                "name": name,
                "width": PICTURE_WIDTH,
                "source": wrapped(literal(plain(source)), PICTURE_CHARS),
                "labels": {kind: page.t(f"downloads.{kind}") for kind in ("png", "svg")},
                "failed": page.t("downloads.failed"),
            },
            width="content",
        )


def file_stem(trace: NormTrace) -> str:
    """What files of this trace are called: the checkpoint and the first words of the prompt."""
    said = re.sub(r"\W+", "-", trace.prompt)[:32].strip("-").lower()
    return "-".join(filter(None, ("rmsnorm", trace.checkpoint.name.replace("/", "-"), said)))
