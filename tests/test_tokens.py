"""Tokens as a person reads them: literal text, bytes where a character is split, control tokens marked."""

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from model_probe.tokens import readable_tokens

BYTE_LEVEL = tiny.tokenizer()


def read(text, tokenizer=BYTE_LEVEL):
    return readable_tokens(tokenizer, tokenizer(text)["input_ids"])


@pytest.mark.parametrize("text", ["我爱苗寨🙂", "naïve", "a\u200db", "The river", "<b>x</b> $x$ | `"])
def test_fault_17_never_gibberish_and_never_a_replacement_character(text):
    tokens = read(text)
    shown = "".join(token.text for token in tokens)
    assert "\ufffd" not in shown
    assert "Ġ" not in shown
    data = b"".join(
        bytes(int(part[:2], 16) for part in token.text.split("<0x")[1:])
        if token.text.startswith("<0x")
        else token.text.encode()
        for token in tokens
    )
    assert data.decode() == text


def test_fault_17_a_character_split_over_tokens_shows_its_bytes():
    assert [t.text for t in read("🙂")] == ["<0xF0>", "<0x9F>", "<0x99>", "<0x82>"]
    assert [t.text for t in read("ï")] == ["<0xC3>", "<0xAF>"]


def test_fault_18_a_typed_control_token_is_real_and_marked():
    tokens = read("a<|im_end|>b")
    assert [(t.text, t.special) for t in tokens] == [("a", False), ("<|im_end|>", True), ("b", False)]
    assert tokens[1].id == BYTE_LEVEL.convert_tokens_to_ids("<|im_end|>")
    assert [t.position for t in tokens] == [0, 1, 2]


def test_sentencepiece_spaces_and_bytes():
    core = Tokenizer(models.BPE({"▁a": 0, "b": 1, "<0xE6>": 2}, [], byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    assert [t.text for t in readable_tokens(tokenizer, [0, 1, 2])] == [" a", "b", "<0xE6>"]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_text_gives_text_without_surrogates(text):
    for token in read(text):
        token.text.encode("utf-8")
