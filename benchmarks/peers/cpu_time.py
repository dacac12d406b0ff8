"""The CPU time of a peer and of all processes that it has started, which may end without being waited for (Linux)."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path


def tree_cpu_s() -> float:
    """Return the CPU seconds of this process, of its living descendants, and of the children that these reaped."""
    spent: dict[int, float] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(status.parent.name)
        children[int(fields[1])].append(pid)
        spent[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        total += spent.get(pid, 0.0)
        left += children[pid]
    return total
