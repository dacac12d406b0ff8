"""Reads paths as users give them, replaces files atomically, and syncs them to the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short

GivenPath = str | os.PathLike[str]
"""A path as a user gives it. A `Run` is one too: that of its directory."""


_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some disk space"),
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENOMEM: "free some memory, or raise the limit of memory (`ulimit -v`)",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make the folder writable"),
}


def remedy_for(error: OSError, otherwise: str = "") -> str:
    """Return what to do after a file could not be written or memory not be reserved, for a message.

    Args:
        error: the error of the system.
        otherwise: what always helps.
    """
    return ", or ".join(filter(None, (_REMEDIES.get(error.errno or 0), otherwise))) or "remove the cause"


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8: not if it has bytes that Python could not decode, as in a file name."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_current_folder() -> None:
    """Refuse to run in a folder that was deleted, even if a new one has its name.

    Raises:
        ConfigError: it was.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder was deleted: go to another one, or again to one of its name") from None


def user_path(given: GivenPath) -> Path:
    """Return a path that a user has given, with `~` and `~NAME` replaced by the home directory.

    Raises:
        ConfigError: it is no path, there is no such user, it cannot be written as text in UTF-8, or no file can be
            looked up there, for example because it is relative and the current folder was deleted.
    """
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"{given!r} is given as a path, but text or a Path is expected: pass, for example, 'runs/first'"
        )
    if not os.fspath(given):
        raise ConfigError("a path is empty, but that of a file or folder is expected: pass, for example, 'runs/first'")
    if not is_utf8(os.fspath(given)):
        raise ConfigError(
            f"the path {os.fspath(given)!a} has bytes that are not UTF-8, which the files of a run cannot contain: "
            "rename it, or pass another path"
        )
    try:
        path = Path(given).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{given} begins with the home directory of a user who does not exist: pass another path"
        ) from None
    if not path.is_absolute():
        require_current_folder()
    try:
        path.absolute().lstat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:  # ValueError: it has a zero byte
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"the path {in_short(str(path))} cannot be used ({why}): pass another path") from None
    return path


def user_paths(given: GivenPath | Iterable[GivenPath]) -> list[Path]:
    """Return one path or several, each as `user_path`."""
    return [user_path(each) for each in ([given] if isinstance(given, str | os.PathLike) else given)]


@contextmanager
def replaced(path: Path, flag: str = "") -> Iterator[Path]:
    """Give a path to write to, in a `with` block after which the file `path` is replaced; if the block fails, it stays.

    The given path has the suffix of `path`, and another name in each call: two processes may replace the same file. If
    `path` is a link, the file that it leads to is replaced. It keeps its permissions. Missing folders are made.
    Messages name the `flag` that gives another path.

    Raises:
        ConfigError: nothing can be written to the file or to its folder, with the reason.
        OSError: the file could not be replaced.
    """
    require_writable(path, flag)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(_temporary_name(path))
    try:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary_name(path: Path) -> str:
    """Return a new name for a file with the suffix of `path`."""
    return f".new-{os.urandom(4).hex()}{path.suffix}"


def require_writable(path: Path, flag: str = "") -> None:
    """Refuse a file that cannot be written. Nothing is changed: missing folders are not made.

    If `path` is a link, the file that it leads to is meant. Messages name the `flag` that gives another path.

    Raises:
        ConfigError: with the file or the folder, and the reason.
    """
    target, with_flag = Path(os.path.realpath(path)), f" with {flag}" if flag else ""
    try:
        if target.exists():
            with target.open("ab"):
                pass
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): pass another file{with_flag}") from None
    folder = target.parent
    while not folder.exists():
        folder = folder.parent
    temporary = folder / _temporary_name(path)
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written, because nothing can be written to the folder {folder} "
            f"({error.strerror}): pass a file in another folder{with_flag}"
        ) from None


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


def stage(path: Path, content: bytes | Iterator[bytes], *, synced: bool = True) -> Path:
    """Write the new content of `path`, or its pieces, to a file in the same folder; return its path, to be renamed.

    Raises:
        OSError: the file could not be written. It is removed.
    """
    staged = path.with_name(f".{path.name}.new")
    with _removed_after_error(staged):
        with staged.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
        if synced:
            sync(staged)
    return staged


def replace_file(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Write or replace a file atomically: readers find the old content or the new one.

    If `synced`, this also holds after a crash of the system, and the new content is not lost.

    Raises:
        OSError: the file could not be written. The old content is unchanged.
    """
    staged = stage(path, content, synced=synced)
    with _removed_after_error(staged):
        staged.replace(path)
    if synced:
        sync(path.parent)


def replace_or_overwrite(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Replace a file as `replace_file`; if that fails, as on a full disk, overwrite it in place.

    Raises:
        OSError: neither is possible.
    """
    try:
        replace_file(path, content, synced=synced)
    except OSError:
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()


@contextmanager
def _removed_after_error(path: Path) -> Iterator[None]:
    """Delete a file if the block fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise
