"""Reads JSON that somebody else may have written: all is checked before memory is taken for it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEEPEST = 100
"""Levels of lists and objects in a JSON file."""
LARGEST_RECORD = 1 << 24
"""Bytes of a small JSON file: versions, status, a policy."""


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
