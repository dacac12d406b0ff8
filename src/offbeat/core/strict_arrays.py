"""Reads arrays from untrusted safetensors files: sizes are checked before memory is allocated.

The format: eight bytes with the length of the header, little-endian; the header as JSON, name -> dtype, shape,
data_offsets; the arrays in C order, without gaps. A file cannot contain code.
"""

from __future__ import annotations

import mmap
from math import prod
from pathlib import Path

import numpy as np

from offbeat.core.strict_json import Unreadable, parse_object, require_regular
from offbeat.core.types import Tree

LENGTH_BYTES = 8
LONGEST_HEADER = 10_000_000
"""Maximum size of the header in bytes, which takes many times as much memory: enough for 50,000 arrays."""
KINDS = {
    "BOOL": "?", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I8": "i1", "I16": "<i2", "I32": "<i4",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
"""Name of a dtype in the header -> dtype in NumPy."""
METADATA = "__metadata__"
"""Entry of a header that is not an array. Other programs write it."""


def read_arrays(path: Path) -> Tree:
    """Return copies of the arrays in a safetensors file. Raises as `map_arrays`."""
    return {name: array.copy() for name, array in map_arrays(path).items()}


def map_arrays(path: Path) -> Tree:
    """Return read-only views of the arrays in a safetensors file.

    Raises:
        OSError: the file cannot be read.
        Unreadable: the header is invalid, or does not match the data.
    """
    size = require_regular(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, LONGEST_HEADER):
            raise Unreadable(f"has a header of {length} bytes, but {size} bytes in all")
        entries = parse_object(file.read(length))
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[LENGTH_BYTES + length :]
    entries.pop(METADATA, None)
    spans = {name: _span_of(name, entry) for name, entry in entries.items()}
    _require_no_gaps(sorted(span[2:] for span in spans.values()), len(data))
    return {name: data[begin:end].view(kind).reshape(shape) for name, (kind, shape, begin, end) in spans.items()}


def _span_of(name: str, entry: object) -> tuple[str, list[int], int, int]:
    """Return the dtype, shape, start and end of an array, after checking its entry in the header."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Unreadable(f"has a header that does not describe {name[:100]!r}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(kind, str) and kind in KINDS):
        raise Unreadable(f"has {name[:100]!r} in an unknown dtype")
    if not (_are_sizes(shape) and len(shape) <= 32 and _are_sizes(offsets) and len(offsets) == 2):
        raise Unreadable(f"has {name[:100]!r} with an invalid shape or position")
    begin, end = offsets
    if end - begin != prod(shape) * np.dtype(KINDS[kind]).itemsize:
        raise Unreadable(f"has {name[:100]!r} in a shape that does not match its size")
    return KINDS[kind], shape, begin, end


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**48 for value in values)


def _require_no_gaps(spans: list[tuple[int, int]], size: int) -> None:
    """Refuse arrays that overlap, leave gaps or lie outside of the data."""
    ends = [0, *(end for _, end in spans)]
    if [begin for begin, _ in spans] != ends[:-1] or ends[-1] != size:
        raise Unreadable("has arrays that overlap, leave gaps or lie outside of the file")
