"""The two marks that prose adds to Markdown: a term to be explained, and another page of the book.

    The [residual stream](term:residual_stream) only grows: see [the probe](page:probe?axis=linear).

A term becomes a button in the sentence; pressed by pointer, finger, Enter or Space it opens a note with the
term's explanation, closed by Escape or a click elsewhere. It is the browser's own popover: no script, and what
is next in reading and tab order is the note. A term is explained where it first appears on a page; marked again
further down, it stays plain text. A page becomes a link that stays in this session (`viz/shell.js`).

Bold goes inside the brackets, `[**γ**](term:learned_gain)`: Markdown does not see ** between 汉字 and a bracket.
Keys are those of `viz/glossary.py`; an unknown key or page is a KeyError. Neither Streamlit nor torch is
imported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from html import escape
from typing import Final
from urllib.parse import parse_qsl

from viz.glossary import english_name, explanation, term
from viz.text import Words

TERM_MARK: Final = re.compile(r"\[([^\[\]]+)\]\(term:([^()\s]+)\)")
# A button is a box of its own, after which a line may end, whatever follows it.
_TERM_WITH_WHAT_ENDS_IT: Final = re.compile(f"{TERM_MARK.pattern}([.,;:!?)”’。，、；：！？）》」]*)")
PAGE_MARK: Final = re.compile(r"\[([^\[\]]+)\]\(page:([a-z]+)(?:\?([^()\s]*))?\)")
ANY_MARK: Final = re.compile(r"\]\((term|page):")

Href = Callable[[str, Mapping[str, str]], str | None]  # (page's stem, choices) → address, None: nowhere to go


def marked_up(text: str, words: Words, where: str, explained: MutableMapping[str, str], href: Href) -> str:
    """The text as Markdown and, where a term is explained, HTML.

    Args:
        text: prose with its values filled in; what a reader typed is already `viz.text.literal`.
        words: of the language it is written in.
        where: the id of this piece of prose.
        explained: by term, the piece that explains it on this page; what this piece explains is added.
        href: the address of a page in a given state; None leaves plain text.
    """
    here: set[str] = set()

    def noted(mark: re.Match[str]) -> str:
        shown, key, after = mark.groups()
        term(key)
        if explained.setdefault(key, where) != where or key in here:
            return shown + after
        here.add(key)
        button = _button(shown, key) + _note(key, words, href)
        return f'<span class="lab-together">{button}{after}</span>' if after else button

    def linked(mark: re.Match[str]) -> str:
        shown, stem, query = mark.groups()
        address = href(stem, dict(parse_qsl(query or "", strict_parsing=bool(query))))
        return shown if address is None else f"[{shown}]({address})"

    return PAGE_MARK.sub(linked, _TERM_WITH_WHAT_ENDS_IT.sub(noted, text))


def unmarked(text: str) -> str:
    """The text without its marks: for what has no room for a note."""
    return PAGE_MARK.sub(r"\1", TERM_MARK.sub(r"\1", text))


def _button(shown: str, key: str) -> str:
    return f'<button type="button" class="lab-term" popovertarget="term-{key}">{shown}</button>'


def _note(key: str, words: Words, href: Href) -> str:
    """The name, the explanation and the way to where it can be seen; a span, as it stands inside a paragraph."""
    entry = term(key)
    name = escape(f"{words.t(f'glossary.name.{key}')} {english_name(key, words)}".strip())
    address = href(entry.page, entry.choices)
    way = words.t("glossary.seen", page=words.t(f"common.page.{entry.page}"))
    link = "" if address is None else f'<span class="lab-note-way">[{way}]({address})</span>'
    return (
        f'<span popover id="term-{key}" class="lab-note"><span class="lab-note-name">{name}</span> '
        f"{unmarked(explanation(key, words))}{link}</span>"
    )
