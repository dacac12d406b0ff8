"""Resident memory of the processes of a run, in MB, for each line of metrics."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

PREFIX = "memory/"
"""Prefix of the metrics of single children, such as memory/actor-0_mb."""


class ProcessMemory:
    """The memory of this process and of its children, by role and index."""

    def __init__(self) -> None:
        self._children: dict[str, Mapping[int, int]] = {}

    def watch(self, role: str, pids: Mapping[int, int]) -> None:
        """Set the process ids of a role, by index."""
        self._children[role] = pids

    def read(self) -> dict[str, float | None]:
        """Return the memory of this process, the sum and the maximum over its children, and that of each child."""
        each = {
            f"{PREFIX}{role.replace(' ', '_')}-{index}_mb": resident_mb(pid)
            for role, pids in self._children.items()
            for index, pid in pids.items()
        }
        known = [value for value in each.values() if value is not None]
        return {
            "memory_main_mb": resident_mb(os.getpid()),
            "memory_children_mb": sum(known) if known else None,
            "memory_child_max_mb": max(known, default=None),
            **each,
        }


def resident_mb(pid: int) -> float | None:
    """Return the resident memory of a process; None if it has ended, or if the system does not provide it.

    Without /proc, only the peak memory of this process is available.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError, ValueError):
        pass
    if Path("/proc/self/statm").exists() or pid != os.getpid():
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3
