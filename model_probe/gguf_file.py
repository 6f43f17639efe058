"""The header of a GGUF file, read in a tenth of a second, so that a bad one is refused at once.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. `gguf.GGUFReader` takes several
seconds over a vocabulary and fails on a cut file with whatever NumPy says; here only the lengths
are followed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError

MAGIC: Final = b"GGUF"
_ALIGNMENT: Final = 32  # unless general.alignment says otherwise
_MAX_DIMENSIONS: Final = 8
# value types 0 to 12 of the format that are plain numbers, as struct characters
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True, slots=True)
class StoredVector:
    """Where a tensor of one dimension lies in the file."""

    kind: int  # GGMLQuantizationType
    begin: int  # bytes from the begin of the file
    length: int  # bytes


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says of itself."""

    architecture: str  # of llama.cpp: "qwen2", "gpt-oss"
    quantization: str  # "Q4_K_M"; "" where the file does not say
    tensors: int
    parameters: int  # elements of all tensors
    splits: int  # files that the checkpoint consists of
    vectors: dict[str, StoredVector]  # the tensors of one dimension by name: norms and biases


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file that is whole: as long as its tensors need.

    Raises:
        ProbeError: `not_found`, `unreadable`, or `bad_gguf` with the reason.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _Reader(file, path, size).header()
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror) from None


def read_vector(path: Path, vector: StoredVector) -> NDArray[np.float32]:
    """The numbers of one of a header's vectors, dequantized where it is stored so.

    Raises:
        ProbeError: `unreadable`.
    """
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        raw = np.fromfile(path, np.uint8, vector.length, offset=vector.begin)
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror) from None
    plain = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}
    kind = GGMLQuantizationType(vector.kind)
    return dequantize(raw.view(plain.get(kind, np.uint8)), kind).astype(np.float32)


class _Reader:
    """Follows one file from its magic to the end of its list of tensors."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.file = file
        self.path = path
        self.size = size

    def header(self) -> GgufHeader:
        if self.file.read(4) != MAGIC:
            raise self.bad("it does not begin as one")
        version = self.number("I")
        if version not in (2, 3):
            raise self.bad(f"its version is {version}, not 2 or 3" if version < 256 else "it is big-endian")
        tensors, entries = self.count(), self.count()
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self.string()
            metadata[key] = self.value(self.number("I"))
        parameters, end, vectors = self.tensor_ends(tensors)
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self.bad(f"its alignment is {alignment}")
        start = math.ceil(self.file.tell() / alignment) * alignment
        if self.size < start + end:
            raise self.bad(f"it is cut short: {self.size} of {start + end} bytes")
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise self.bad("it names no architecture")
        splits = metadata.get("split.count", 1)
        if splits > 1:
            raise self.bad(f"it is one of {splits} parts; merge them first")
        placed = {
            name: StoredVector(kind, start + offset, length)
            for name, (kind, offset, length) in vectors.items()
        }
        return GgufHeader(architecture, _quantization(metadata), tensors, parameters, int(splits), placed)

    def tensor_ends(self, tensors: int) -> tuple[int, int, dict[str, tuple[int, int, int]]]:
        """Elements of all tensors; bytes from the first one's begin to the last one's end; of those of one
        dimension, by name, the type, the offset and the length in bytes."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        parameters = end = 0
        vectors: dict[str, tuple[int, int, int]] = {}
        for _ in range(tensors):
            name = self.string()
            dimensions = self.number("I")
            if dimensions > _MAX_DIMENSIONS:
                raise self.bad("a length in it is impossible")
            elements = math.prod(self.number("Q") for _ in range(dimensions))
            kind, offset = self.number("I"), self.number("Q")
            try:
                block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            except (ValueError, KeyError):
                raise self.bad(f"the tensor {name[:60]!r} is of an unknown type, {kind}") from None
            parameters += elements
            length = math.ceil(elements / block) * block_bytes
            end = max(end, offset + length)
            if dimensions == 1:
                vectors[name] = (kind, offset, length)
        return parameters, end, vectors

    def value(self, kind: int) -> Any:
        """A metadata value; of an array only that it was there, None."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise self.bad(f"a value is of an unknown kind, {kind}")
        inner, length = self.number("I"), self.count()
        if inner in _NUMBERS:
            self.take(length * struct.calcsize("<" + _NUMBERS[inner]))
            return None
        skip: Callable[[], object] = self.string if inner == _STRING else lambda: self.value(inner)
        for _ in range(length):
            skip()
        return None

    def string(self) -> str:
        return self.take(self.count()).decode("utf-8", errors="replace")

    def count(self) -> int:
        count: int = self.number("Q")
        if count > self.size:  # whatever is counted takes a byte at least
            raise self.bad("a length in it is impossible")
        return count

    def number(self, form: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def take(self, length: int) -> bytes:
        taken = self.file.read(length)
        if len(taken) < length:
            raise self.bad("it is cut short")
        return taken

    def bad(self, reason: str) -> ProbeError:
        return ProbeError("bad_gguf", path=self.path, reason=reason)


def _quantization(metadata: dict[str, Any]) -> str:
    from gguf.constants import LlamaFileType

    try:
        return LlamaFileType(int(metadata["general.file_type"])).name.removeprefix("MOSTLY_")
    except (KeyError, TypeError, ValueError):
        return ""
