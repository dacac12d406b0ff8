"""Whether the directory of a run is still there while the run trains."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from offbeat.core.errors import ConfigError, RunFailed

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""Errors of a folder that does not exist; the last one is of a network disk where it was deleted by another machine."""
POLL_EVERY_S = 1.0
"""Seconds between checks whether the run directory is still there."""


class RunDirectoryGone(RunFailed):
    """The run directory was deleted or moved during the run."""


class Presence:
    """Checks whether a run directory still exists and is the same one."""

    def __init__(self, folder: Path, named: Path) -> None:
        """Check an absolute path; `named`: the same folder as it was given, for messages."""
        self._named, self._path = named, folder
        self._identity, self._next_poll = _identity(self._path), 0.0

    def require(self, *, at_once: bool = False) -> None:
        """Check the directory, at most every `POLL_EVERY_S` seconds, or `at_once`.

        If its disk does not answer, as a network disk may for a while, it is not known whether it is still there.

        Raises:
            RunDirectoryGone: it was deleted, moved or replaced.
        """
        if monotonic() < self._next_poll and not at_once:
            return
        self._next_poll = monotonic() + POLL_EVERY_S
        try:
            now = _identity(self._path)
        except OSError:
            return
        if now is None or now != self._identity:
            raise RunDirectoryGone(
                f"the run directory {self._named} was deleted or moved during the run: the run stops, and all "
                "progress since its last checkpoint is lost. If it was moved, `offbeat resume NEW_PATH` continues it"
            )

    @contextmanager
    def required(self) -> Iterator[None]:
        """Check the directory if a file cannot be read, written or understood in the block.

        Raises:
            RunDirectoryGone: it was deleted, moved or replaced. This error replaces that about the file.
        """
        try:
            yield
        except (OSError, ConfigError):
            self.require(at_once=True)
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a folder (device and inode); None if it does not exist.

    Raises:
        OSError: its disk does not answer.
    """
    try:
        found = path.stat()
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    return found.st_dev, found.st_ino
