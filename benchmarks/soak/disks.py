"""Disks that can be filled: a small file system in memory, or, where none may be mounted, a limit on file sizes."""

from __future__ import annotations

import ctypes
import resource
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

SIZE_MB = 192
_LIMIT = 2_000
"""Bytes beyond which no file can grow, where there is no file system of one's own."""
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x20000, 0x4000, 1 << 18, 2


def in_a_mount_namespace() -> bool:
    """Keep what this process mounts to itself and its children; return whether it may mount at all.

    They get a shared memory of their own: other programs leave files there. What is mounted is gone with them, however
    they end.
    """
    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None)
    return True


class Disk(ABC):
    """The folder in which a run directory is, on a disk that can be filled."""

    @abstractmethod
    def fill(self, main_process: int) -> None:
        """Leave no room."""

    @abstractmethod
    def free(self, main_process: int) -> None:
        """Leave room again. The process may have ended."""

    @abstractmethod
    def close(self) -> None:
        """Give the disk up, and all that is on it."""


class SmallDisk(Disk):
    """A file system in memory, filled by one large file."""

    def __init__(self, folder: Path) -> None:
        """Mount it.

        Raises:
            OSError: that is not allowed.
        """
        self._folder, self._filler = folder, folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={SIZE_MB}m".encode()):
            raise OSError(ctypes.get_errno(), "no file system could be mounted")

    def fill(self, main_process: int) -> None:  # noqa: ARG002
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self, main_process: int) -> None:  # noqa: ARG002
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        ctypes.CDLL(None).umount2(bytes(self._folder), _MNT_DETACH)


class LimitedFiles(Disk):
    """No file that the main process writes can grow, which `write` answers much as on a full disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def fill(self, main_process: int) -> None:
        self._limit(main_process, _LIMIT)

    def free(self, main_process: int) -> None:
        self._limit(main_process, resource.RLIM_INFINITY)

    def close(self) -> None:
        """Leave the folder as it is."""

    @staticmethod
    def _limit(pid: int, size: int) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def disk_in(folder: Path) -> Disk:
    """Return a disk that can be filled, of the better kind if that is allowed."""
    try:
        return SmallDisk(folder)
    except OSError:
        return LimitedFiles(folder)
