"""Tokens as text that a person can read: never "Ġriver", never a lone "�".

A byte-level tokenizer spells every token in an alphabet of 256 printable characters, one a byte; a
SentencePiece one writes a space as "▁" and a lone byte as "<0xE6>". Both are undone here. A token
that holds only part of a character is shown as its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from model_probe.trace import Token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def readable_tokens(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int]) -> tuple[Token, ...]:
    """The tokens with their positions, literal text and whether they are control tokens."""
    ids = list(ids)
    added = tokenizer.added_tokens_decoder
    byte_level = _is_byte_level(tokenizer)
    spellings = tokenizer.convert_ids_to_tokens(ids)
    tokens = []
    for position, (id_, spelling) in enumerate(zip(ids, spellings, strict=True)):
        if id_ in added:
            tokens.append(Token(position, id_, added[id_].content, special=True))
        elif spelling is None:  # the embedding has more rows than the tokenizer has tokens
            tokens.append(Token(position, id_, f"<{id_}>", special=False))
        else:
            text = _from_bytes(spelling) if byte_level else spelling.replace("▁", " ")
            tokens.append(Token(position, id_, text, special=False))
    return tuple(tokens)


def _from_bytes(spelling: str) -> str:
    try:
        data = spelling.translate(_byte_alphabet()).encode("latin-1")
    except UnicodeEncodeError:
        return spelling  # not spelled in bytes after all
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _with_bytes(data)


def _with_bytes(data: bytes) -> str:
    """The characters that are whole, and the bytes of those that are not, as <0xF0>."""
    text = data.decode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return False
    # the decoder's own state: the whole tokenizer as JSON is megabytes, and takes longer than a short pass
    return any(part.get("type") == "ByteLevel" for part in _parts(json.loads(decoder.__getstate__())))


def _parts(node: Any) -> Iterable[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.get("decoders", ()):
            yield from _parts(child)


@cache
def _byte_alphabet() -> dict[int, int | str]:
    """Character → byte of byte-level BPE, for `str.translate`: printable Latin-1 stands for itself, the other
    bytes take the characters from U+0100 on, in order, and do not occur themselves.
    Source: Radford et al. 2019 (GPT-2), encoder.py."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return dict.fromkeys(others, "\uffff") | {0x100 + i: byte for i, byte in enumerate(others)}
