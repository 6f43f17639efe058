"""The frame of every page: title, header, language, contents, theme, and the way on.

A page script begins and ends with it, and is prose, controls and charts in between:

    page = open_page("scale")
    page.prose("scale/why", factor=number(187.0))
    …
    page.footer()

Prose may explain terms and link to pages in the middle of a sentence: `viz/markup.py`.

Addresses: a page's address is its script's stem. Every link carries the language and the choices made on
the page it leads to. Streamlit's own menu is hidden, as its links would lose both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import streamlit as st

from model_probe.errors import ProbeError
from model_probe.settings import settings
from viz import address
from viz.book import DEFAULT, SECTIONS, PageEntry, entry, neighbours, open_pages
from viz.markup import marked_up
from viz.text import LANGUAGES, Words, literal, words
from viz.theme import Mode, Palette, palette

if TYPE_CHECKING:
    from streamlit.navigation.page import Page as StreamlitPage

_HERE: Final = Path(__file__).resolve().parent
_ROUTED: Final = "shell.routed"
_RESTARTED: Final = "shell.restarted"
_BROWSER: Final = "shell.browser"
_VISITED: Final = "shell.visited"  # stems of the pages opened in this session
_LONGEST_CODE: Final = 1000  # characters of a choice that a browser sends
_LOG: Final = logging.getLogger(__name__)
_LANGUAGE_TAGS: Final = {"zh": "zh-Hans", "en": "en"}

_STYLE: Final = "\n".join(
    (_HERE / sheet).read_text(encoding="utf-8") for sheet in ("style.css", "markup.css")
)

_browser = st.components.v2.component(
    "rmsnorm_lab_shell",
    html='<div class="progress" aria-hidden="true"></div>\n',
    css=(_HERE / "shell.css").read_text(encoding="utf-8"),
    js=(_HERE / "shell.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """An open page: its words, its colours, and how it links on."""

    entry: PageEntry
    words: Words
    palette: Palette
    explained: dict[str, str] = field(default_factory=dict)  # term: the piece of prose that explains it here

    @property
    def lang(self) -> str:
        """One of `viz.text.LANGUAGES`."""
        return self.words.lang

    def t(self, label: str, **values: object) -> str:
        """A label in the page's language. Raises KeyError as `Words.t`."""
        return self.words.t(label, **values)

    def prose(self, piece: str, **values: object) -> None:
        """Draws a piece of prose. Raises KeyError as `Words.prose`."""
        self._draw(self.words.prose(piece, **values), piece)

    def say(self, label: str, **values: object) -> None:
        """Draws a label as a paragraph of prose. Raises KeyError as `Words.t`."""
        self._draw(self.t(label, **values), label)

    def href(self, stem: str, choices: Mapping[str, str]) -> str | None:
        """The address of a page in a given state, else as the reader left it; None where there is nowhere to go.

        Relative, so that it holds below any address the app is served at.
        """
        target = entry(stem)
        if target == self.entry or not target.script.is_file():
            return None
        query = {address.LANGUAGE: self.lang, **(choices or address.remembered(stem))}
        return f"{'./' if stem == DEFAULT else stem}?{urlencode(query)}"

    def _here(self) -> str:
        """The address of what is on the screen. A typed prompt is never in it, as no choice holds one."""
        query = {**st.query_params.to_dict(), address.LANGUAGE: self.lang}
        return f"{(st.context.url or '').split('?')[0]}?{urlencode(query)}"

    def _draw(self, text: str, where: str) -> None:
        """Prose with its marks; HTML is on because a term's button needs it, and a reader's text is `literal`."""
        st.markdown(marked_up(text, self.words, where, self.explained, self.href), unsafe_allow_html=True)

    def link(self, stem: str, label: str | None = None, *, icon: str | None = None, **choices: str) -> None:
        """Draws a link to a page, in a given state (parameter=code), else as the reader left it.

        Plain text where there is nowhere to go: on the page itself, and for a page whose script is not there yet.
        """
        target = entry(stem)
        text = label if label is not None else self.t(f"common.page.{stem}")
        if target == self.entry or not target.script.is_file():
            st.markdown(text)
            return
        query = {address.LANGUAGE: self.lang, **(choices or address.remembered(stem))}
        st.page_link(_streamlit_page(target, self.words), label=text, icon=icon, query_params=query)

    def footer(self) -> None:
        """Draws a link to exactly this state, and the way on: previous and next page. The last call of a page."""
        with st.popover(self.t("common.share"), type="tertiary", key=f"shell-share-{self.entry.stem}"):
            st.markdown(self.t("common.share_note"))
            st.code(self._here(), language=None, wrap_lines=True)
        before, after = neighbours(self.entry.stem)
        with st.container(key="shell-footer", horizontal=True, horizontal_alignment="distribute"):
            for neighbour, side in ((before, "previous"), (after, "next")):
                with st.container(key=f"shell-{side}", width="content", gap=None):
                    if neighbour is None:
                        continue
                    st.caption(self.t(f"common.{side}"))
                    title = self.t(f"common.page.{neighbour.stem}")
                    self.link(neighbour.stem, f"← {title}" if side == "previous" else f"{title} →")


def navigate() -> StreamlitPage:
    """The page that the address names, ready to run. Called by the router, once a run."""
    st.session_state[_ROUTED] = True
    reader = words(address.language(st.context.locale))
    return _navigation(reader)


def open_page(stem: str) -> Page:
    """Begins a page: browser title, header and h1 drawn, its language and theme decided.

    The first visit after a server start can be a deep link that Streamlit answers by running the page's
    script without the router; then the router's list of pages is given from here and the run starts again,
    once: a page that was started on its own (`streamlit run pages/…`) has no router to come back to.
    """
    reader = words(address.language(st.context.locale))
    if not st.session_state.get(_ROUTED):
        _navigation(reader)
        if not st.session_state.get(_RESTARTED):
            st.session_state[_RESTARTED] = True
            st.rerun()
    address.enter(stem)
    st.session_state.setdefault(_VISITED, set()).add(stem)
    page = Page(entry(stem), reader, palette(_theme()))
    st.set_page_config(
        page_title=f"{page.t(f'common.page.{stem}')} · RMSNorm Lab",
        page_icon=str(_HERE / "favicon.svg"),
        layout="wide",
        initial_sidebar_state="collapsed",
    )
    st.html(f"<style>{page.palette.css_variables()}\n{_STYLE}</style>")
    _header(page)
    st.title(page.t(f"{stem}.title"), anchor=False)
    try:
        settings()
    except ProbeError as error:  # the operator's mistake: told in a sentence, in the log too
        _LOG.error("%s", error)
        st.error(
            page.t(f"errors.{error.code}", **{name: literal(str(v)) for name, v in error.fields.items()})
        )
        st.stop()
    return page


def _navigation(reader: Words) -> StreamlitPage:
    return st.navigation([_streamlit_page(page, reader) for page in open_pages()], position="hidden")


def _streamlit_page(page: PageEntry, reader: Words) -> StreamlitPage:
    return st.Page(
        page.script,
        title=reader.t(f"common.page.{page.stem}"),
        url_path=page.stem,
        default=page.stem == DEFAULT,
    )


def _theme() -> Mode:
    """The theme to draw for: what the browser reported, and before that what Streamlit believes.

    Streamlit's answer can be wrong on the first run, and it does not rerun when the system's theme changes.
    """
    reported = st.session_state.get(_BROWSER, {}).get("theme")
    return "dark" if (reported or st.context.theme.type) == "dark" else "light"


def _header(page: Page) -> None:
    layout = "shell-bench" if page.entry.layout == "bench" else "shell-reading"
    with st.container(key=layout, gap=None):
        browser = _browser(
            key=_BROWSER,
            data={
                "theme": page.palette.mode,
                "language": _LANGUAGE_TAGS[page.lang],
                "pages": {("" if it.stem == DEFAULT else it.stem): it.stem for it in open_pages()},
            },
            on_theme_change=lambda: None,
            on_visit_change=lambda: None,
        )
        if browser.visit:
            _visit(browser.visit, page)
        with st.container(
            key="shell-header",
            horizontal=True,
            horizontal_alignment="distribute",
            vertical_alignment="center",
        ):
            with st.container(
                key="shell-where", horizontal=True, vertical_alignment="center", width="content"
            ):
                page.link(DEFAULT, page.t("common.brand"))
                section = page.t(f"common.section.{page.entry.section}")
                minutes = page.t("common.minutes", n=page.entry.minutes)
                st.caption(f"{section} › {page.t(f'common.page.{page.entry.stem}')} · {minutes}")
            with st.container(
                key="shell-tools", horizontal=True, vertical_alignment="center", width="content"
            ):
                _contents(page)
                _languages(page)


def _visit(link: object, page: Page) -> None:
    """Follows a link of the prose: a page's stem and its choices, as the address would name them.

    Nothing happens where a browser sends something else, or the page itself, which no link leads to: a browser
    that says so at every run would be sent round for ever.
    """
    if not isinstance(link, Mapping):
        return
    stem, choices = link.get("page"), link.get("choices")
    known = {entry.stem: entry for entry in open_pages() if entry != page.entry}
    if isinstance(stem, str) and stem in known and isinstance(choices, Mapping):
        query = {name: code for name, code in choices.items() if _may_be_in_an_address(name, code)}
        st.switch_page(_streamlit_page(known[stem], page.words), query_params=query)


def _may_be_in_an_address(*parts: object) -> bool:
    """Whether these are short texts that can be encoded, as half a surrogate pair cannot."""
    return all(isinstance(part, str) and len(part) <= _LONGEST_CODE and part.isprintable() for part in parts)


def _contents(page: Page) -> None:
    """Every page by section, one tap away; its key holds the page, so that it closes when the page changes."""
    opener = st.popover(page.t("common.contents"), type="tertiary", key=f"shell-contents-{page.entry.stem}")
    with opener, st.container(key="shell-contents-list"):
        for section in SECTIONS:
            pages = [candidate for candidate in open_pages() if candidate.section == section]
            if pages:
                st.caption(page.t(f"common.section.{section}"))
            for candidate in pages:
                title = page.t(f"common.page.{candidate.stem}")
                if candidate.stem in st.session_state[_VISITED]:
                    title = f"{title} ✓"
                page.link(candidate.stem, f"{title} *{page.t('common.minutes', n=candidate.minutes)}*")


def _languages(page: Page) -> None:
    """中文 | English: the address stays as it is, but for its language.

    Buttons, not links: Streamlit leaves the address alone when a page links to itself.
    """
    with st.container(
        key="shell-languages", horizontal=True, vertical_alignment="center", width="content", gap=None
    ):
        for lang in LANGUAGES:
            name = words(lang).t("common.own_name")
            if lang == page.lang:
                st.markdown(name)
            else:
                st.button(
                    name, type="tertiary", key=f"shell-{lang}", on_click=address.set_language, args=(lang,)
                )
