"""Prompts and labels that mean harm: ten thousand of them through the tokenizer and every label that shows them."""

from __future__ import annotations

import html
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
from hostile import BIDI, CONTROLS, NASTY, UNPAIRED, ZERO_WIDTH, random_text
from markdown_it import MarkdownIt

from model_probe.capturing import token_ids
from model_probe.errors import ProbeError
from model_probe.tokens import readable_tokens
from model_probe.trace import Token
from viz.figures import base
from viz.text import END_OF_ISOLATE, ISOLATE, WORD_JOINER, inked, isolated, literal, plain

PROMPTS = 10_000
_READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
_BYTE = re.compile("<0x([0-9A-F]{2})>")


def prompts(n: int = PROMPTS) -> list[str]:
    """Half of them nasty and random characters, without what a token's bytes are shown as."""
    rng = random.Random(20)
    return [*NASTY.values(), *(random_text(rng) for _ in range(n - len(NASTY)))]


class Elements(HTMLParser):
    """What a browser would take for markup, and the text that is left."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.markup: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.markup.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.markup.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.markup.append("!")

    def handle_decl(self, decl: str) -> None:
        self.markup.append("!")

    def handle_pi(self, data: str) -> None:
        self.markup.append("?")

    def handle_data(self, data: str) -> None:
        self.text += data


def as_html(text: str) -> Elements:
    elements = Elements()
    elements.feed(text)
    elements.close()
    return elements


def bytes_of(tokens: tuple[Token, ...]) -> bytes:
    """The prompt's bytes from the tokens' texts, and where a token is part of a character from its bytes as shown."""
    data = b""
    for token in tokens:
        whole = token.special or not _BYTE.search(token.text)
        data += token.text.encode() if whole else _unshown(token.text)
    return data


def _unshown(text: str) -> bytes:
    parts = _BYTE.split(text)  # text, byte, text, …
    return b"".join(bytes([int(p, 16)]) if i % 2 else p.encode() for i, p in enumerate(parts))


def normalized(tokenizer: Any, prompt: str) -> str:
    """The prompt as the tokenizer reads it: Qwen's composes characters first, but not those of control tokens."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    control = "|".join(re.escape(each.content) for each in tokenizer.added_tokens_decoder.values())
    parts = re.split(f"({control})", prompt)
    if normalizer is None:
        return prompt
    return "".join(part if i % 2 else normalizer.normalize_str(part) for i, part in enumerate(parts))


def read_whole(tokenizer: Any) -> int:
    """Every prompt through the tokenizer and the labels; how many there were."""
    done = 0
    for prompt in prompts():
        ids = tokenizer(prompt, verbose=False)["input_ids"]
        tokens = readable_tokens(tokenizer, ids)
        given = normalized(tokenizer, prompt)
        assert bytes_of(tokens) == given.encode(), repr(prompt)
        shown = "".join(token.text for token in tokens)
        for gibberish in ("\ufffd", "Ġ", "Ċ"):
            assert shown.count(gibberish) <= given.count(gibberish), repr(prompt)
        for token in tokens[:40]:
            label = base.token_label(token)
            assert label.isprintable(), repr(token)
            assert as_html(base.literal(label)).markup == []
            assert base.unescaped(base.literal(label)).strip(ISOLATE + END_OF_ISOLATE) == label
        done += 1
    return done


def test_ten_thousand_prompts_through_a_byte_level_tokenizer() -> None:
    assert read_whole(tiny.tokenizer()) == PROMPTS


def test_ten_thousand_prompts_through_the_real_tokenizer(real_checkpoint_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(real_checkpoint_dir), local_files_only=True)
    assert read_whole(tokenizer) == PROMPTS


def test_ten_thousand_texts_are_shown_literally() -> None:
    """As Markdown, with HTML allowed as the prose has it, and as the text of a chart."""
    for prompt in prompts():
        for text in (prompt, prompt + UNPAIRED[len(prompt) % len(UNPAIRED)]):
            shown = literal(text)
            shown.encode()  # can be sent
            rendered = _READER.render(f"x{shown}x").strip()
            found = as_html(rendered)
            assert found.markup == ["p", "/p"], repr(text)
            drawn = found.text.translate(dict.fromkeys(map(ord, WORD_JOINER + ISOLATE + END_OF_ISOLATE)))
            wanted = inked(text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥"))
            assert drawn.replace("\u00a0", " ") == f"x{wanted}x".replace("\u00a0", " ")
            assert plain(shown).replace("\u00a0", " ") == wanted.replace("\u00a0", " ")
            chart = base.literal(text)
            assert as_html(chart).markup == []
            assert "$" not in chart
            assert "%{" not in chart
            assert html.unescape(chart).strip(ISOLATE + END_OF_ISOLATE) == inked(text)


@pytest.mark.parametrize("c", [*CONTROLS, *BIDI, *ZERO_WIDTH, *UNPAIRED], ids=lambda c: f"U+{ord(c):04X}")
def test_what_draws_nothing_or_turns_text_around_is_named(c: str) -> None:
    name = {"\n": "⏎", "\r": "␍", "\t": "⇥"}.get(c, f"<U+{ord(c):04X}>")
    assert base.visible(f"a{c}b") == f"a{name}b"
    joins = c in "\u200c\u200d"  # Persian, Hindi and emoji are written with them
    assert plain(literal(f"a{c}b")) == f"a{c if joins else name}b"
    if c not in "\n\r\t":
        assert base.literal(f"a{c}b") == f"a{c if joins else html.escape(name)}b"


def test_right_to_left_text_moves_nothing_around_it() -> None:
    hebrew = "שלום"
    for text in (hebrew, f"abc {hebrew}", "مرحبا 123", "٣"):
        for shown in (literal(text), base.literal(text), isolated(text)):
            assert shown.startswith(ISOLATE)
            assert shown.endswith(END_OF_ISOLATE)
            assert shown.count(ISOLATE) == shown.count(END_OF_ISOLATE) == 1
    for mark in BIDI:  # an override cannot end the isolate: it is no override any more
        assert mark not in literal(f"{hebrew}{mark}x").strip(ISOLATE + END_OF_ISOLATE)
        assert mark not in base.literal(f"{hebrew}{mark}x").strip(ISOLATE + END_OF_ISOLATE)
    assert literal("river 残差 👩\u200d👧") == "river 残差 👩\u200d👧"


@pytest.mark.parametrize(
    "text", ["&amp;" * 2000, "a" * 10_000, "残" * 10_000, "e\u0301" * 5000, "\u202e" * 5000]
)
def test_a_label_is_as_long_as_it_may_be(text: str) -> None:
    for special in (False, True):
        assert len(base.token_label(Token(0, 1, text, special))) <= base.TOKEN_CHARS + 1


@pytest.mark.parametrize("c", UNPAIRED, ids=lambda c: f"U+{ord(c):04X}")
def test_an_unpaired_surrogate_never_reaches_the_tokenizer(c: str) -> None:
    rng = random.Random(ord(c))
    for _ in range(20):
        with pytest.raises(ProbeError) as refused:
            token_ids(SimpleNamespace(tokenizer=None), random_text(rng) + c)  # type: ignore[arg-type]
        assert refused.value.code == "bad_prompt"


def test_every_line_of_the_threat_model_names_tests_that_are_there() -> None:
    tests = Path(__file__).parent
    text = (tests.parent / "docs" / "threats.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(lines) >= 15
    for line in lines:
        column = line.split("|")[3]
        named = re.findall(r"`([^`]+)`", column)
        assert named or column.strip() == "the same", line
        file = ""
        for name in named:
            path, _, test = (
                name.rpartition("::")
                if "::" in name
                else (name, "", "")
                if ".py" in name
                else (file, "", name)
            )
            file = path
            source = (tests / path).read_text(encoding="utf-8")
            wanted = test.strip("…")
            assert not wanted or re.search(rf"def test_\w*{wanted.removeprefix('test_')}", source), name
