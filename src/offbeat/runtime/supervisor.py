"""The supervisor of worker processes: detects those that died or hang, and restarts them within a budget.

They are child processes on this machine (`Child`), or processes on a cluster.

A restarted process acts the open ticket of the dead one again. No committed ticket is lost, and none is learned from
twice: the learner reads only committed tickets, and a commit is a single write.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ChildTraceback, RunFailed
from offbeat.metrics.text import counted
from offbeat.runtime.board import POLL_INTERVAL_S, Board
from offbeat.runtime.deadline import Span, StallWatch, start_timeout
from offbeat.runtime.plan import ActorSnapshot

ENV_CLOSE_S, CLOSE_S = 2.0, 10.0
"""Seconds that a child gets to end by itself at the end of the run: during an env call, and otherwise."""
POLL_EVERY_S = 0.05
"""Minimum seconds between two checks of all processes, which cost one system call each."""
SLOW_START_S = 5.0
"""Seconds after which a message says how many children have started; the next ones follow after twice the time each."""
RESTART_WINDOW_S = 600.0
"""Seconds for which a restart counts against the budget."""


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
        """The ticket or limit of its last pause, and its state there."""
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
                yield process, f"{reason} and was killed"


class Notify(Protocol):
    """Shows a message to the user and writes it to the log."""

    def __call__(self, text: str, details: str = "", /) -> None:
        """Show and log `text`; only log `details`."""


class Reporting(NamedTuple):
    """The functions that are called when processes of a run change."""

    notify: Notify
    """Is called with a message for each restart."""
    processes_changed: Callable[[str, Sequence[Supervised]], None]
    """Is called with a role and all its processes whenever one of them was started."""


class Supervisor(Generic[C]):
    """See the module's docstring."""

    def __init__(
        self,
        start: Callable[[int, int], C],
        board: Board,
        runtime: RuntimeConfig,
        reporting: Reporting,
        *,
        role: str,
        work: str,
        changes_result: bool,
    ) -> None:
        """Make a supervisor; `start` starts the children.

        Args:
            start: starts one child from (index, attempt). `attempt` is the number of its recent deaths: it changes the
                random streams, so that a failure that follows from the seed does not occur again.
            board: has the open ticket and the deadline of each child.
            runtime: the settings.
            reporting: is notified of restarts, and of the processes.
            role: name of a child in messages: actor, worker, inference worker or evaluator.
            work: name of one piece of its work in messages: ticket, learning step, batch or evaluation.
            changes_result: whether a restart changes the result of the run: new episodes start.
        """
        self.processes: list[C] = []
        self.restarts = 0
        self._start, self._board, self._runtime = start, board, runtime
        self._role, self._work, self._changes_result = role, work, changes_result
        self._notify, self._processes_changed = reporting
        self._losses = LossWatch[C](board)
        self._budget = runtime.restart_budget
        self._deaths: defaultdict[int, deque[float]] = defaultdict(deque)
        """Times of the recent deaths, by index."""
        self._last_code_lines = ""
        """The lines of the user's code in the last message: the same lines are not shown twice in a row."""

    def start(self, count: int, while_waiting: Callable[[], None] | None = None) -> None:
        """Start all children, `start_together` at a time, and wait until all are ready.

        Args:
            count: number of children.
            while_waiting: is called while it waits, and must call `watch`; None: only `watch` is called.

        Raises:
            RunFailed: a child cannot be started, or as in `watch`.
        """
        together = self._runtime.start_together or count
        for index in range(count):
            try:
                self.processes.append(self._start_process(index))
            except OSError as error:
                raise start_failure(f"{self._role} {index}", error) from error
            if len(self.processes) % together == 0 or len(self.processes) == count:
                self._processes_changed(self._role, self.processes)
                self._wait_until_ready(while_waiting or self.watch, count)

    def ensure_started(self) -> None:
        """Start the only child if it does not run; do not wait until it is ready."""
        if not self.processes or self.processes[0].has_ended:
            self.processes[:] = [self._start_process(0)]
            self._processes_changed(self._role, self.processes)

    def _wait_until_ready(self, while_waiting: Callable[[], None], total: int) -> None:
        started, notice_s = monotonic(), SLOW_START_S
        while waiting := [process for process in self.processes if not process.ready]:
            waiting[0].take_reports(POLL_INTERVAL_S)
            while_waiting()
            if (seconds := monotonic() - started) >= notice_s:
                notice_s, ready = 2 * seconds, len(self.processes) - len(waiting)
                self._notify(f"{ready} of {counted(total, self._role)} ready after {seconds:.0f} s")

    def _start_process(self, index: int, attempt: int = 0) -> C:
        self._board.deadlines[index].set(Span.START, start_timeout(self._runtime))
        return self._start(index, attempt)

    def watch(self) -> None:
        """Restart children that have died or hang.

        Raises:
            RunFailed: a child has used up its restart budget, or must not or cannot be restarted.
        """
        for process, reason in self._losses.lost(list(self.processes)):
            self._restart(process, reason)

    def _restart(self, dead: C, reason: str) -> None:
        """Restart a dead child, or raise RunFailed."""
        index, ticket = dead.index, int(self._board.next[dead.index][0])
        text = f"{self._role} {index} ({dead.name}) {reason}, in {self._work} {ticket}"
        if dead.no_restart_reason:
            lines = dead.explained.partition("\n")[2]
            raise failure_of(f"{self._role} {index}: {dead.no_restart_reason}", lines) from traceback_of(dead)
        deaths = self._count_death(index)
        if deaths > self._budget:
            minutes = f"{RESTART_WINDOW_S / 60:g} minutes"
            what = f"{text}: its restart_budget of {self._budget} in {minutes} is used up"
            raise failure_of(what, dead.explained) from traceback_of(dead)
        try:
            self.processes[index] = self._start_process(index, deaths)
        except OSError as error:
            what = f"{text}, and could not be started again ({error.strerror or error})"
            raise failure_of(what, dead.explained) from traceback_of(dead)
        self.restarts += 1
        self._processes_changed(self._role, self.processes)
        summary, _, lines = dead.explained.partition("\n")
        lines, self._last_code_lines = "" if lines == self._last_code_lines else lines, lines
        cut = ", at a marked cut" if self._changes_result else ""
        inexact = "; this run is no longer exact" if self._changes_result and self._runtime.lag == "exact" else ""
        again = f"started again{cut}; restart {deaths} of {self._budget}{inexact}"
        headline = f"{text}{f' ({summary})' if summary else ''}: {again}"
        self._notify("\n".join(filter(None, (headline, lines))), dead.failure)

    def _count_death(self, index: int) -> int:
        """Count a death; return the number of deaths of this child within the window."""
        deaths = self._deaths[index]
        deaths.append(monotonic())
        while deaths[0] < monotonic() - RESTART_WINDOW_S:
            deaths.popleft()
        return len(deaths)

    def snapshots(self, pause: int, while_waiting: Callable[[], None]) -> list[ActorSnapshot]:
        """Return the state of each child's envs at a pause.

        It waits until all children have paused. A child that dies meanwhile is restarted, and then pauses too.

        Args:
            pause: the ticket of the pause.
            while_waiting: is called while it waits, and must call `watch`: also other processes may have to be watched.

        Raises:
            RunFailed: as in `watch`.
        """
        while waiting := [process for process in self.processes if process.paused[0] < pause]:
            waiting[0].take_reports(POLL_INTERVAL_S)
            while_waiting()
        return [process.paused[1] for process in self.processes]

    def close(self) -> None:
        """Wait for all children to end, after the board is closed; then kill the rest, with all that envs have started.

        A child in an env call, which may hang, gets less time than one that sends a large state or closes its envs.
        """
        started = monotonic()
        for process in self.processes:
            while monotonic() - started < self._closing_s(process.index) and not process.exits_within(POLL_INTERVAL_S):
                pass
        with ExitStack() as closing:
            for process in self.processes:
                closing.callback(process.kill)

    def _closing_s(self, index: int) -> float:
        return ENV_CLOSE_S if self._board.deadlines[index].is_in_env else CLOSE_S


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
