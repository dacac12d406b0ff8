"""Reads JSON and arrays that somebody else may have written: all is checked before memory is taken for it.

Arrays are in safetensors' format: eight bytes with the length of the header, little-endian; the header, JSON: name ->
dtype, shape, data_offsets; the arrays in C order, without gaps. Nothing in either format can name code.
"""

from __future__ import annotations

import json
import mmap
import stat
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.types import Tree

DEEPEST = 100
"""Levels of lists and objects in a JSON file."""
LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000
"""Bytes, as in safetensors' own reader."""
KINDS = {
    "BOOL": "?", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I8": "i1", "I16": "<i2", "I32": "<i4",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
"""Names of dtypes in safetensors' header."""
METADATA = "__metadata__"
"""A header's entry that is no array; other programs write it."""


class Unreadable(ValueError):
    """Says what is wrong with a file, without its name."""


def require_regular(path: Path) -> int:
    """Return the size of a file, in bytes.

    Raises:
        OSError: there is none.
        Unreadable: it is a device, a pipe or a folder, which could be read for ever.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("is no regular file")
    return status.st_size


# --- JSON ---------------------------------------------------------------------------------------------------


def read_json(path: Path, most: int) -> dict[str, Any]:
    """Return the object in a JSON file of at most so many bytes.

    Raises:
        OSError: it cannot be read.
        Unreadable: it is too large, no JSON, no object, nested too deep, or has a key twice.
    """
    if (size := require_regular(path)) > most:
        raise Unreadable(f"has {size} bytes, where at most {most} are expected")
    return parse_object(path.read_bytes())


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the object that JSON text stands for. Raises as `read_json`."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once)
    except RecursionError:
        raise Unreadable("is nested too deep") from None
    except ValueError as error:
        raise error if isinstance(error, Unreadable) else Unreadable(f"is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise Unreadable("is no JSON object")
    _require_shallow(value)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: programs differ in which one they take."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise Unreadable("has a key twice")
    return table


def _require_shallow(value: object) -> None:
    """Refuse deep nesting: whoever walks through the value may do so by recursion."""
    level, depth = [value], 0
    while level:
        level = [part for outer in level for part in _parts(outer)]
        depth += 1
        if depth > DEEPEST:
            raise Unreadable("is nested too deep")


def _parts(value: object) -> Iterator[object]:
    """Yield the lists and objects directly in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (part for part in inner if isinstance(part, dict | list))


# --- arrays -------------------------------------------------------------------------------------------------


def read_arrays(path: Path) -> Tree:
    """Return copies of the arrays in a safetensors file. Raises as `map_arrays`."""
    return {name: array.copy() for name, array in map_arrays(path).items()}


def map_arrays(path: Path) -> Tree:
    """Return read-only views on the arrays of a safetensors file.

    Raises:
        OSError: it cannot be read.
        Unreadable: its header is none, or does not describe what follows it.
    """
    size = require_regular(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, LONGEST_HEADER):
            raise Unreadable(f"has a header of {length} bytes, but {size} bytes in all")
        entries = parse_object(file.read(length))
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[LENGTH_BYTES + length :]
    entries.pop(METADATA, None)
    places = {name: _place(name, entry) for name, entry in entries.items()}
    _require_no_gaps(sorted(place[2:] for place in places.values()), len(data))
    return {name: data[begin:end].view(kind).reshape(shape) for name, (kind, shape, begin, end) in places.items()}


def _place(name: str, entry: object) -> tuple[str, list[int], int, int]:
    """Return the dtype, shape, begin and end of an array, whose header's entry is checked."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Unreadable(f"has a header that does not describe {name[:100]!r}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(kind, str) and kind in KINDS):
        raise Unreadable(f"has {name[:100]!r} in a dtype that is not known")
    if not (_are_sizes(shape) and len(shape) <= 32 and _are_sizes(offsets) and len(offsets) == 2):
        raise Unreadable(f"has {name[:100]!r} in a shape, or at a place, that cannot be")
    begin, end = offsets
    if end - begin != prod(shape) * np.dtype(KINDS[kind]).itemsize:
        raise Unreadable(f"has {name[:100]!r} in a shape that is not that of its bytes")
    return KINDS[kind], shape, begin, end


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**48 for value in values)


def _require_no_gaps(places: list[tuple[int, int]], size: int) -> None:
    """Refuse arrays that overlap, leave gaps or lie outside of the data."""
    ends = [0, *(end for _, end in places)]
    if [begin for begin, _ in places] != ends[:-1] or ends[-1] != size:
        raise Unreadable("has arrays that overlap, leave gaps or lie outside of the file")
