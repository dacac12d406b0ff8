"""Worker processes as the process that waits for them sees them: which of them are lost, and why.

They are child processes on this machine (`Child`), or processes on a cluster. A supervisor (supervisor.py) restarts
those that are lost; the loss of a learner ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from offbeat.core.errors import ChildTraceback, RunFailed
from offbeat.metrics.text import counted
from offbeat.runtime.board import POLL_INTERVAL_S, Board
from offbeat.runtime.deadline import StallWatch

POLL_EVERY_S = 0.05
"""Minimum seconds between two checks of all processes, which cost one system call each."""
SLOW_START_S = 5.0
"""Seconds after which a message says how many processes are ready; the next ones follow after twice the time each."""


class Supervised(Protocol):
    """A worker process, as its supervisor sees it."""

    @property
    def index(self) -> int:
        """Index of the process among those of its kind."""
        ...

    @property
    def name(self) -> str:
        """The process, for messages: 'process 123'."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is on another machine."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it has started, and an actor has reset its envs."""
        ...

    @property
    def paused(self) -> tuple[int, Any]:
        """The ticket or limit of its last pause, and its state there.

        An actor reports its state once for each ticket at which it waits, and that state may count at later pauses too
        (`ActorGate.start`). So it must not be dropped when a pause ends.
        """
        ...

    @property
    def failure(self) -> str:
        """The traceback of the error that ended it; empty if there was none."""
        ...

    @property
    def explained(self) -> str:
        """The same error for the user: a line in words, then the lines of the user's own code."""
        ...

    @property
    def no_restart_reason(self) -> str:
        """Why it must not be restarted; empty if it may be."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether `kill` was called: it has ended, and nothing of it is left."""
        ...

    def take_reports(self, seconds: float = 0.0) -> None:
        """Handle the received reports; wait up to `seconds` for the first one."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    def exits_within(self, seconds: float) -> bool:
        """Wait for its end, up to `seconds`; return whether it has ended."""
        ...

    def exit_reason(self) -> str:
        """Return how it ended, after `kill`."""
        ...

    def kill(self) -> None:
        """Kill it, with all that its envs have started. After that, another process may do its work."""
        ...


C = TypeVar("C", bound=Supervised)


class LossWatch(Generic[C]):
    """Detects processes that have died or hang. It must be called often."""

    def __init__(self, board: Board) -> None:
        """Watch processes with the deadlines of a board."""
        self._deadlines, self._stalls = board.deadlines, StallWatch(board.deadlines)
        self._next_poll = 0.0

    def lost(self, processes: Sequence[C]) -> Iterator[tuple[C, str]]:
        """Yield each process that is lost, after it was killed with all that its envs have started; and the reason."""
        now = monotonic()
        if now < self._next_poll:
            return
        self._next_poll = now + POLL_EVERY_S
        for process in processes:
            if not process.is_alive():
                process.kill()  # processes that its envs have started may still run
                yield process, process.exit_reason()
            elif self._stalls.has_stalled(process.index):
                reason = self._deadlines[process.index].reason
                process.kill()
                if process.failure:  # the deadline is that of the call that raised
                    reason = "had an error and did not close in time"
                yield process, f"{reason} and was killed"


def wait_until_ready(
    processes: Sequence[Supervised],
    while_waiting: Callable[[], None],
    notify: Callable[[str], object],
    role: str,
    total: int,
) -> None:
    """Wait until processes are ready, and notify the user if that takes long.

    Args:
        processes: the processes. `while_waiting` may replace some.
        while_waiting: is called often, and must watch them.
        notify: gets the messages.
        role: name of a process, for the messages.
        total: number of processes of this kind; some may not have been started yet.
    """
    started, notice_s = monotonic(), SLOW_START_S
    while waiting := [process for process in processes if not process.ready]:
        for process in waiting:
            process.take_reports()
        while_waiting()
        ready, seconds = sum(process.ready for process in processes), monotonic() - started
        if ready == len(processes):
            return
        if seconds >= notice_s:
            notice_s = 2 * seconds
            notify(f"{ready} of {counted(total, role)} ready after {seconds:.0f} s")
        waiting[0].take_reports(POLL_INTERVAL_S)


# --- errors -------------------------------------------------------------------------------------------------


def start_failure(child: str, error: OSError) -> RunFailed:
    """Return the error for a child that could not be started at the start of the run."""
    return RunFailed(
        f"{child} could not be started ({error.strerror or error}): raise the limits of processes, files and memory "
        "(`ulimit -a`)"
    )


def failure_of(what: str, note: str) -> RunFailed:
    """Return the error for a child that is not restarted, with a note about its own error; '': no note."""
    error = RunFailed(what)
    if note:
        error.add_note(note)
    return error


def traceback_of(dead: Supervised) -> ChildTraceback | None:
    """Return the traceback of the error that ended a child; None if there was none."""
    return ChildTraceback(f"\n{dead.failure}") if dead.failure else None
