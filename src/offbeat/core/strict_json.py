"""Reads JSON from untrusted files: sizes are checked before memory is allocated."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEEPEST = 100
"""Maximum nesting of lists and objects."""
LARGEST_RECORD = 1 << 24
"""Maximum size in bytes of small JSON files: versions, status, a policy."""


class Unreadable(ValueError):
    """A file is invalid. The message is a predicate, such as 'is not JSON', without the name of the file."""


def require_regular(path: Path) -> int:
    """Return the size of a file, in bytes.

    Raises:
        OSError: the file does not exist.
        Unreadable: it is a device, a pipe or a folder.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("is not a regular file")
    return status.st_size


def read_small(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file of at most `max_bytes` bytes.

    Raises:
        OSError: it cannot be read.
        Unreadable: it is too large, or no regular file.
    """
    if (size := require_regular(path)) > max_bytes:
        raise Unreadable(f"has {size} bytes, where at most {max_bytes} are expected")
    return path.read_bytes()


def read_json(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return the object in a JSON file of at most `max_bytes` bytes.

    Raises:
        OSError: it cannot be read.
        Unreadable: it is too large, not JSON, not an object, nested too deeply, or has a duplicate key.
    """
    return parse_object(read_small(path, max_bytes))


def parse_object(data: bytes, deepest: int = DEEPEST) -> dict[str, Any]:
    """Return the object in a JSON text of at most `deepest` nested lists and objects. Raises as `read_json`."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique)
    except RecursionError:
        raise Unreadable("is nested too deep") from None
    except ValueError as error:
        raise error if isinstance(error, Unreadable) else Unreadable(f"is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise Unreadable("is not a JSON object")
    _require_shallow(value, deepest)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Duplicate keys are refused, because programs differ in which one they use."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise Unreadable("has a duplicate key")
    return table


def _require_shallow(value: object, deepest: int) -> None:
    """Refuse deep nesting, because code that walks through the value may be recursive."""
    level, depth = [value], 0
    while level:
        level = [part for outer in level for part in _parts(outer)]
        depth += 1
        if depth > deepest:
            raise Unreadable("is nested too deep")


def _parts(value: object) -> Iterator[object]:
    """Yield the lists and objects directly in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (part for part in inner if isinstance(part, dict | list))
