"""The supervisor of child processes: detects those that died or hang, and restarts them within a budget.

A restarted process acts the open ticket of the dead one again. No committed ticket is lost, and none is learned from
twice: the learner reads only committed tickets, and a commit is a single write.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ChildTraceback, RunFailed
from offbeat.runtime.board import POLL_INTERVAL_S, Board
from offbeat.runtime.child import Child
from offbeat.runtime.deadline import Span, StallWatch, start_timeout
from offbeat.runtime.plan import Snapshot

ENV_CLOSE_S, CLOSE_S = 2.0, 10.0
"""Seconds that a child gets to end by itself at the end of the run: during an env call, and otherwise."""
POLL_EVERY_S = 0.05
"""Minimum seconds between two checks of all processes, which cost one system call each."""
RESTART_BUDGET = 5
"""Maximum number of restarts of one child within `RESTART_WINDOW_S`; the default of `restart_budget`."""
RESTART_WINDOW_S = 600.0
"""Seconds for which a restart counts against the budget."""


class Notify(Protocol):
    """Shows a message to the user and writes it to the log."""

    def __call__(self, text: str, details: str = "", /) -> None:
        """Show and log `text`; only log `details`."""


class Reporting(NamedTuple):
    """The functions that are called when processes of a run change."""

    notify: Notify
    """Is called with a message for each restart."""
    show: Callable[[str, Sequence[Child]], None]
    """Is called with a role and all its processes whenever one of them was started."""


class Supervisor:
    """See the module's docstring."""

    def __init__(
        self,
        start: Callable[[int, int, Snapshot, int], Child],
        board: Board,
        runtime: RuntimeConfig,
        reporting: Reporting,
        *,
        role: str,
        work: str,
        exact: bool,
    ) -> None:
        """Make a supervisor; `start` starts the children.

        Args:
            start: starts one child from (index, origin, snapshot, attempt). `origin` is the ticket at which its
                episodes start, `attempt` the number of its recent deaths: it changes the random streams, so that a
                failure that follows from the seed does not occur again.
            board: has the open ticket and the deadline of each child.
            runtime: the settings.
            reporting: is notified of restarts, and of the processes.
            role: name of a child in messages: actor, worker or evaluator.
            work: name of one piece of its work in messages: ticket, learning step or evaluation.
            exact: whether a restart changes the result of the run.
        """
        self.processes: list[Child] = []
        self.restarts = 0
        self._start, self._board, self._runtime = start, board, runtime
        self._role, self._work, self._exact = role, work, exact
        self._notify, self._show = reporting
        self._stalls = StallWatch(board.deadlines)
        self._budget = RESTART_BUDGET if runtime.restart_budget is None else runtime.restart_budget
        self._deaths: defaultdict[int, deque[float]] = defaultdict(deque)
        """Times of the recent deaths, by index."""
        self._next_poll = 0.0
        self._last_code_lines = ""
        """The lines of the user's code in the last message: the same lines are not shown twice in a row."""

    def start(self, origin: int, snapshots: Sequence[Snapshot]) -> None:
        """Start all children, `start_together` at a time, and wait until all are ready."""
        together = self._runtime.start_together or len(snapshots)
        for index, snapshot in enumerate(snapshots):
            self.processes.append(self._start_process(index, origin, snapshot))
            if len(self.processes) % together == 0 or len(self.processes) == len(snapshots):
                self._show(self._role, self.processes)
                self._wait_until_ready()

    def ensure_started(self) -> None:
        """Start the only child if it does not run; do not wait until it is ready."""
        if not self.processes or self.processes[0].process.returncode is not None:
            self.processes[:] = [self._start_process(0, 0, None)]
            self._show(self._role, self.processes)

    def _wait_until_ready(self) -> None:
        while waiting := [process for process in self.processes if not process.ready]:
            waiting[0].take_reports(POLL_INTERVAL_S)
            self.watch()

    def _start_process(self, index: int, origin: int, snapshot: Snapshot, attempt: int = 0) -> Child:
        self._board.deadlines[index].set(Span.START, start_timeout(self._runtime))
        return self._start(index, origin, snapshot, attempt)

    def watch(self) -> None:
        """Restart children that have died or hang.

        Raises:
            RunFailed: a child has used up its restart budget, or must not be restarted.
        """
        now = monotonic()
        if now < self._next_poll:
            return
        self._next_poll = now + POLL_EVERY_S
        for process in list(self.processes):
            if not process.is_alive():
                process.kill()  # processes that its envs have started may still run
                self._restart(process, process.exit_reason())
            elif self._stalls.has_stalled(process.index):
                reason = self._board.deadlines[process.index].reason
                process.kill()
                self._restart(process, f"{reason} and was killed")

    def _restart(self, dead: Child, reason: str) -> None:
        """Restart a dead child, or raise RunFailed."""
        index, ticket = dead.index, int(self._board.next[dead.index][0])
        text = f"{self._role} {index} (process {dead.process.pid}) {reason}, in {self._work} {ticket}"
        if dead.no_restart_reason:
            raise RunFailed(f"{self._role} {index}: {dead.no_restart_reason}")
        deaths = self._count_death(index)
        if deaths > self._budget:
            minutes = f"{RESTART_WINDOW_S / 60:g} minutes"
            error = RunFailed(f"{text}: its restart_budget of {self._budget} in {minutes} is used up")
            if dead.failure:
                error.add_note(dead.explained)
            raise error from (ChildTraceback(f"\n{dead.failure}") if dead.failure else None)
        self.restarts += 1
        self.processes[index] = self._start_process(index, ticket, None, attempt=deaths)
        self._show(self._role, self.processes)
        summary, _, lines = dead.explained.partition("\n")
        lines, self._last_code_lines = "" if lines == self._last_code_lines else lines, lines
        cut = ", at a marked cut" if self._exact else ""
        inexact = "; this run is no longer exact" if self._exact and self._runtime.lag == "exact" else ""
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

    def snapshots(self, pause: int, watch: Callable[[], None]) -> list[Snapshot]:
        """Return the state of each child's envs at a pause.

        It waits until all children have paused. A child that dies meanwhile is restarted, and then pauses too.

        Args:
            pause: the ticket of the pause.
            watch: is called while it waits, and calls `watch`: also other processes may have to be watched.

        Raises:
            RunFailed: as in `watch`.
        """
        while waiting := [process for process in self.processes if process.paused[0] < pause]:
            waiting[0].take_reports(POLL_INTERVAL_S)
            watch()
        return [process.state_at_pause(pause) for process in self.processes]

    def close(self) -> None:
        """Wait for all children to end, after the board is closed; then kill the rest, with all that envs have started.

        A child in an env call, which may hang, gets less time than one that sends a large state or closes its envs.
        """
        started = monotonic()
        for process in self.processes:
            while monotonic() - started < self._closing_s(process.index) and not process.exits_within(POLL_INTERVAL_S):
                pass
        for process in self.processes:
            process.kill()

    def _closing_s(self, index: int) -> float:
        return ENV_CLOSE_S if self._board.deadlines[index].is_in_env else CLOSE_S
