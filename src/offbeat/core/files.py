"""Files that are replaced in one step, and lie on the disk when that is done."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def sync(path: Path) -> None:
    """Return when the content of a file, or the entries of a folder, are on the disk.

    Raises:
        OSError: they could not be written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stage(path: Path, content: bytes, *, synced: bool = True) -> Path:
    """Write what is to replace `path` to a file beside it, and return that file: renaming it needs no more room.

    Raises:
        OSError: it could not be written; nothing is left of it.
    """
    staged = path.with_name(f".{path.name}.new")
    try:
        staged.write_bytes(content)
        if synced:
            sync(staged)
    except OSError:
        with suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    return staged


def replace_file(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Write a file, or replace it in one step: a reader finds the old content or the new one.

    So it is after a crash of the system too, and what was written is not lost by it, if it is `synced`.

    Raises:
        OSError: it could not be written; what was there before is untouched.
    """
    stage(path, content, synced=synced).replace(path)
    if synced:
        sync(path.parent)
