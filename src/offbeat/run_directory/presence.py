"""Whether the directory of a run is still there while the run trains."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from offbeat.core.errors import RunFailed

POLL_EVERY_S = 1.0
"""Seconds between checks whether the run directory is still there."""


class RunDirectoryGone(RunFailed):
    """The run directory was deleted or moved during the run."""


class Presence:
    """Checks whether a run directory still exists and is the same one."""

    def __init__(self, path: Path) -> None:
        self._named, self._path = path, path.absolute()
        self._identity, self._next_poll = _identity(self._path), 0.0

    def require(self, *, at_once: bool = False) -> None:
        """Check the directory, at most every `POLL_EVERY_S` seconds, or `at_once`.

        Raises:
            RunDirectoryGone: it was deleted, moved or replaced.
        """
        if monotonic() < self._next_poll and not at_once:
            return
        self._next_poll = monotonic() + POLL_EVERY_S
        now = _identity(self._path)
        if now is None or now != self._identity:
            raise RunDirectoryGone(
                f"the run directory {self._named} was deleted or moved during the run: the run stops, and all "
                "progress since its last checkpoint is lost"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a folder (device and inode); None if it does not exist."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
