"""The supervisor of child processes: finds those that are dead or stand still, and starts them again within a budget.

A new process takes the ticket again that the dead one had open. Nothing that was committed is lost, and nothing is
learned from twice: the learner reads only what has been committed, and that happens in one store.
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
"""Seconds that a child gets to end by itself when nothing is wanted of it any more: in a call of its envs, and else."""
POLL_EVERY_S = 0.05
"""Looking at all processes costs a system call each, so it is not done more often than this."""
RESTART_BUDGET = 5
"""Restarts of one actor within `RESTART_WINDOW_S`, unless `restart_budget` says otherwise."""
RESTART_WINDOW_S = 600.0


class Notify(Protocol):
    """Tells the user, and the log."""

    def __call__(self, text: str, details: str = "", /) -> None:
        """Show `text`; `details` go into the log alone."""


class Reporting(NamedTuple):
    """Who is told of the processes of a run."""

    notify: Notify
    """Tells the user of a restart."""
    show: Callable[[Sequence[Child]], None]
    """Is given the processes whenever they have changed."""


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
        """Supervise children.

        Args:
            start: starts the process of a child, given the ticket at which its episodes begin, a snapshot, and the
                number of its recent deaths: what follows from a seed must not happen again and again.
            board: says which ticket a child has open, and by when its envs must answer.
            runtime: the settings.
            reporting: who is told of restarts, and of the processes.
            role: what a child is called.
            work: what one piece of its work is called.
            exact: whether the result of the run depends on what a child has lost.
        """
        self.processes: list[Child] = []
        self.restarts = 0
        self._start, self._board, self._runtime = start, board, runtime
        self._role, self._work, self._exact = role, work, exact
        self._notify, self._show = reporting
        self._stalls = StallWatch(board.deadlines)
        self._budget = RESTART_BUDGET if runtime.restart_budget is None else runtime.restart_budget
        self._deaths: defaultdict[int, deque[float]] = defaultdict(deque)
        """index -> moments at which it died."""
        self._next_poll = 0.0
        self._shown = ""
        """The lines of the user's code in which a child failed last: the same are not shown twice in a row."""

    def start(self, origin: int, snapshots: Sequence[Snapshot]) -> None:
        """Start all children, `start_together` of them at a time, and wait until their envs have begun."""
        together = self._runtime.start_together or len(snapshots)
        for index, snapshot in enumerate(snapshots):
            self.processes.append(self._started(index, origin, snapshot))
            if len(self.processes) % together == 0 or len(self.processes) == len(snapshots):
                self._show(self.processes)
                self._wait_until_ready()

    def ensure_started(self) -> None:
        """Start the only child, unless it runs; nobody waits for it."""
        if not self.processes or self.processes[0].process.returncode is not None:
            self.processes[:] = [self._started(0, 0, None)]
            self._show(self.processes)

    def _wait_until_ready(self) -> None:
        while waiting := [process for process in self.processes if not process.ready]:
            waiting[0].take_reports(POLL_INTERVAL_S)
            self.watch()

    def _started(self, index: int, origin: int, snapshot: Snapshot, attempt: int = 0) -> Child:
        self._board.deadlines[index].set(Span.START, start_timeout(self._runtime))
        return self._start(index, origin, snapshot, attempt)

    def watch(self) -> None:
        """Start again whoever has died or stands still.

        Raises:
            RunFailed: one did so too often.
        """
        now = monotonic()
        if now < self._next_poll:
            return
        self._next_poll = now + POLL_EVERY_S
        for process in list(self.processes):
            if not process.is_alive():
                process.kill()  # what its envs have started may still be there
                self._again(process, process.exit_reason())
            elif self._stalls.has_stalled(process.index):
                reason = self._board.deadlines[process.index].reason
                process.kill()
                self._again(process, f"{reason} and was killed")

    def _again(self, dead: Child, what: str) -> None:
        """Start a dead child again, or give up."""
        index, ticket = dead.index, int(self._board.next[dead.index][0])
        text = f"{self._role} {index} (process {dead.process.pid}) {what}, in {self._work} {ticket}"
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
        self.processes[index] = self._started(index, ticket, None, attempt=deaths)
        self._show(self.processes)
        why, _, lines = dead.explained.partition("\n")
        lines, self._shown = "" if lines == self._shown else lines, lines
        cut = ", at a marked cut" if self._exact else ""
        inexact = "; this run is no longer exact" if self._exact and self._runtime.lag == "exact" else ""
        again = f"started again{cut}; restart {deaths} of {self._budget}{inexact}"
        self._notify("\n".join(filter(None, (f"{text}{f' ({why})' if why else ''}: {again}", lines))), dead.failure)

    def _count_death(self, index: int) -> int:
        """Return how often this child has died within the window."""
        deaths = self._deaths[index]
        deaths.append(monotonic())
        while deaths[0] < monotonic() - RESTART_WINDOW_S:
            deaths.popleft()
        return len(deaths)

    def snapshots(self, pause: int) -> list[Snapshot]:
        """Return the state of each child's envs at the pause, a ticket, which stands.

        It waits for them as long as they make progress; who dies meanwhile is started again, and pauses there.

        Raises:
            RunFailed: one died too often.
        """
        while waiting := [process for process in self.processes if process.paused[0] < pause]:
            waiting[0].take_reports(POLL_INTERVAL_S)
            self.watch()
        return [process.state_at_pause(pause) for process in self.processes]

    def close(self) -> None:
        """Wait for all to end, as the gate has been closed; then kill who is left, and what envs have started.

        Who sends a large state, or closes its envs, gets longer than who is in a call of them, which may hang.
        """
        begun = monotonic()
        for process in self.processes:
            while monotonic() - begun < self._closing_s(process.index) and not process.exits_within(POLL_INTERVAL_S):
                pass
        for process in self.processes:
            process.kill()

    def _closing_s(self, index: int) -> float:
        return ENV_CLOSE_S if self._board.deadlines[index].is_in_env else CLOSE_S
