"""Reads paths as users give them, replaces files atomically, and syncs them to the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from offbeat.core.errors import ConfigError

GivenPath = str | os.PathLike[str]
"""A path as a user gives it. A `Run` is one too: that of its directory."""


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8: not if it has bytes that Python could not decode, as in a file name."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def user_path(given: GivenPath) -> Path:
    """Return a path that a user has given, with `~` and `~NAME` replaced by the home directory.

    Raises:
        ConfigError: it is no path, there is no such user, or it cannot be written as text in UTF-8.
    """
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"{given!r} is given as a path, but text or a Path is expected: pass, for example, 'runs/first'"
        )
    if not is_utf8(os.fspath(given)):
        raise ConfigError(
            f"the path {os.fspath(given)!a} has bytes that are not UTF-8, which the files of a run cannot contain: "
            "rename it, or pass another path"
        )
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{given} begins with the home directory of a user who does not exist: pass another path"
        ) from None


def temporary_beside(path: Path) -> tuple[Path, Path]:
    """Return the file that a path leads to through links, and a path beside it to write to first, with its suffix."""
    target = Path(os.path.realpath(path))
    return target, target.with_name(f".{target.stem}.new{target.suffix}")


def sync(path: Path) -> None:
    """Sync the content of a file, or the entries of a folder, to the disk.

    Raises:
        OSError: they could not be written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stage(path: Path, content: bytes, *, synced: bool = True) -> Path:
    """Write the new content of `path` to a file in the same folder; return its path, to be renamed.

    Raises:
        OSError: the file could not be written. It is removed.
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
    """Write or replace a file atomically: readers find the old content or the new one.

    If `synced`, this also holds after a crash of the system, and the new content is not lost.

    Raises:
        OSError: the file could not be written. The old content is unchanged.
    """
    stage(path, content, synced=synced).replace(path)
    if synced:
        sync(path.parent)
