"""What has killed a process, for messages."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

_COUNTERS = Path("/proc/vmstat")


def killed_by(number: int, memory_kills_before: int) -> str:
    """Return the signal that has killed a process, and whether this was perhaps because memory ran out.

    Args:
        number: the signal. It has killed a process of this machine.
        memory_kills_before: what `memory_kills` returned when the process was started.
    """
    memory_ran_out = number == signal.SIGKILL and memory_kills() > memory_kills_before
    return f"{signal_name(number)}{' (perhaps because memory ran out)' if memory_ran_out else ''}"


def memory_kills() -> int:
    """Return how many processes Linux has killed since it started because memory ran out; 0 on other systems.

    All processes of this machine count, also those in other containers.
    """
    with suppress(OSError):
        for line in _COUNTERS.read_text(encoding="utf-8").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL; most real-time signals have none: 'signal 40'."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
