"""How busy other processes keep the machine, from /proc/stat. A measurement beside them is wrong."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from offbeat.core.process.threads import usable_core_numbers

STAT = Path("/proc/stat")
"""The file with the times of all cores."""
SAMPLE_S = 0.5
"""Seconds for which this process sleeps while the others are observed."""
QUIET = 0.15
"""Largest share of the usable cores that others may use without a warning."""
_WAITING = (3, 4)
"""Columns of /proc/stat, after the name, with the time in which a core had nothing to do: idle and iowait."""
_COUNTED = 8
"""Columns that are counted; the others are parts of these."""


def other_cores() -> float | None:
    """Sleep, and return how many of the usable cores were busy meanwhile; None if the system does not tell."""
    cores = usable_core_numbers()
    try:
        before = STAT.read_text(encoding="utf-8")
        time.sleep(SAMPLE_S)
        return busy_cores(before, STAT.read_text(encoding="utf-8"), cores)
    except (OSError, ValueError):
        return None


def busy_cores(before: str, after: str, cores: Collection[int]) -> float:
    """Return how many of some cores were busy on average between two texts of /proc/stat.

    Raises:
        ValueError: a text does not have these cores.
    """
    first, second = _times(before, cores), _times(after, cores)
    if not cores or first.keys() != second.keys() or len(first) < len(set(cores)):
        raise ValueError("/proc/stat does not have all cores")
    return sum(_share(second[core], first[core]) for core in first)


def _times(text: str, cores: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return the busy and the whole time of each core, in clock ticks."""
    times = {}
    for line in text.splitlines():
        name, *columns = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cores:
            ticks = [int(column) for column in columns[:_COUNTED]]
            waiting = sum(ticks[column] for column in _WAITING)
            times[int(name[3:])] = (sum(ticks) - waiting, sum(ticks))
    return times


def _share(after: tuple[int, int], before: tuple[int, int]) -> float:
    busy, whole = after[0] - before[0], after[1] - before[1]
    return min(1.0, max(0.0, busy / whole)) if whole > 0 else 0.0


def is_busy(others: float | None, cores: int) -> bool:
    """Return whether other processes use so much that a measurement beside them is wrong; arguments as `warning`."""
    return others is not None and others > QUIET * cores


def warning(others: float | None, cores: int) -> str:
    """Return a sentence for a measurement beside other work; '' if the machine was quiet.

    Args:
        others: cores that other processes used; None: not known.
        cores: usable cores.
    """
    if not is_busy(others, cores):
        return ""
    return (
        f"warning: other processes used {others:.1f} of {cores} cores when the measurement began: these speeds are too "
        "low; measure again when the machine is idle"
    )
