"""Files as one machine sees them: a network disk may show an older state to another machine, for up to a minute."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

NETWORK_DISK_TIMEOUT_S = 90.0
"""Maximum seconds until a disk shows one machine what another one has written. NFS keeps folders for up to 60 s."""
_PAUSE_S = 0.2


@dataclass(frozen=True)
class FileDigests:
    """The contents of some files on one machine, as digests. Machines on which they are equal see the same files."""

    digests: Mapping[str, str]
    """Path -> SHA-256 of the content; '' if there is no such file."""

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Self:
        """Return what this machine sees now."""
        return cls({str(path): _digest(path) for path in paths})

    def differing(self) -> list[str]:
        """Return the paths that this machine does not see like this now."""
        return [path for path, digest in self.digests.items() if _digest(Path(path)) != digest]


def _digest(path: Path) -> str:
    with suppress(OSError):
        list(path.parent.iterdir())  # lets NFS ask the server for the state of the folder
        return sha256(path.read_bytes()).hexdigest()
    return ""


def wait_until_equal(files: FileDigests, timeout_s: float = NETWORK_DISK_TIMEOUT_S) -> list[str]:
    """Wait until this machine has the same files; return the paths that still differ after the timeout."""
    deadline = time.monotonic() + timeout_s
    while (differing := files.differing()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return differing
