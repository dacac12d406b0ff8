"""The processes of a run: all that descend from this one, which adopts those whose own parents have died (Linux)."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import reap

OUTLIVE_S = 15.0
"""Seconds that a process may outlive its run."""


class Process(NamedTuple):
    """One process, as /proc has it."""

    pid: int
    state: str
    """R: it runs, S: it sleeps, T: it has been stopped, Z: it has ended."""
    parent: int


def descendants(of: int | None = None) -> list[int]:
    """Return the pids of all that descend from a process, by default this one, and have not ended; parents first."""
    by_parent = defaultdict(list)
    for process in _processes():
        if process.state not in "ZX":
            by_parent[process.parent].append(process.pid)
    found = by_parent[os.getpid() if of is None else of]
    for pid in found:
        found.extend(by_parent[pid])
    return found


def children_of(pid: int) -> list[int]:
    """Return the pids of the children of a process that have not ended."""
    return [process.pid for process in _processes() if process.parent == pid and process.state not in "ZX"]


def _processes() -> list[Process]:
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has just ended
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                processes.append(Process(int(entry.name), state, int(parent)))
    return processes


def is_alive(pid: int) -> bool:
    """Whether a descendant has not ended."""
    return pid in descendants()


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, as far as they are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def command_of(pid: int) -> str:
    """Return what was typed to start a process, as far as it is still there."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    return ""


def end_all() -> list[str]:
    """Wait until all descendants have ended; kill who has not in time, and return what they were."""
    alive = [f"{command_of(pid)} ({pid})" for pid in reap(OUTLIVE_S) and descendants()]
    while pids := descendants():
        send(pids, signal.SIGKILL)
        reap(0.1)
    return alive


def show_stacks(printed: Path) -> None:
    """Let every descendant that is a Python with PYTHONFAULTHANDLER print the stacks of its threads, and end.

    One after the other, children first; `printed` is the file that they print to.
    """
    for pid in reversed(descendants()):
        with printed.open("a") as file:
            file.write(f"\n--- process {pid}: {command_of(pid)}\n")
        send([pid], signal.SIGABRT)
        send([pid], signal.SIGCONT)
        time.sleep(0.3)


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal: from then on it can be stopped in good order."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
    return bool(caught >> (number - 1) & 1)
