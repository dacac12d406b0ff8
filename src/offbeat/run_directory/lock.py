"""Locks of files: at most one process trains in a run directory, or runs an experiment."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from offbeat.core.errors import ConfigError

LOCK_TRIES, LOCK_PAUSE_S = 5, 0.02
"""`is_locked` takes the lock for a moment, so locking is tried more than once."""


_locked: set[TextIO] = set()
"""The files that this process has locked."""


@contextmanager
def locked(file: TextIO, message: str) -> Iterator[None]:
    """Lock an open file for this process while entered, or until the process ends.

    A forked process shares the lock, so it closes the file: it may live longer than this process.

    Raises:
        ConfigError: another process has the lock, with this message; or the file system has no locks.
    """
    _lock(file, message)
    _locked.add(file)
    try:
        yield
    finally:
        _locked.discard(file)
        if not file.closed:  # in a forked process it is
            fcntl.flock(file, fcntl.LOCK_UN)  # also for processes that code outside of Python has forked


def _close_in_forked_process() -> None:
    for file in _locked:
        file.close()


os.register_at_fork(after_in_child=_close_in_forked_process)


def _lock(file: TextIO, message: str) -> None:
    for _ in range(LOCK_TRIES):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        except OSError as error:
            raise ConfigError(
                f"{file.name} cannot be locked ({error.strerror}), so two processes could write to the same files: use "
                "a disk with locks, such as a local one, NFS 4, or Lustre with -o flock"
            ) from None
    raise ConfigError(message)


def is_locked(path: Path) -> bool:
    """Whether a process has the lock of a file."""
    if not path.is_file():
        return False
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
