"""The supervisor of worker processes: restarts those that died or hang (supervised.py), within a budget.

A restarted process acts the open ticket of the dead one again. No committed ticket is lost, and none is learned from
twice: the learner reads only committed tickets, and a commit is a single write.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import Generic, NoReturn, TypeVar

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.runtime.board import POLL_INTERVAL_S, Board
from offbeat.runtime.children.supervised import (
    LossWatch,
    Supervised,
    failure_of,
    start_failure,
    traceback_of,
    wait_until_ready,
)
from offbeat.runtime.deadline import Span, start_timeout
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Reporting

ENV_CLOSE_S, CLOSE_S = 2.0, 10.0
"""Seconds that a child gets to end by itself at the end of the run: during an env call, and otherwise."""
RESTART_WINDOW_S = 600.0
"""Seconds for which a death counts against the budget; longer if the child has finished no work since."""

C = TypeVar("C", bound=Supervised)


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
            start: starts one child from (index, attempt). `attempt` is the number of its recent deaths, as in
                `_count_death`: it changes the random streams, so that a failure that follows from the seed does not
                occur again.
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
        self._deaths: defaultdict[int, deque[tuple[float, int]]] = defaultdict(deque)
        """Time and open ticket of the recent deaths, by index."""
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
                wait_until_ready(self.processes, while_waiting or self.watch, self._notify, self._role, count)

    def ensure_started(self) -> None:
        """Start the only child if it does not run; do not wait until it is ready."""
        if not self.processes or self.processes[0].has_ended:
            self.processes[:] = [self._start_process(0)]
            self._processes_changed(self._role, self.processes)

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
        deaths = self._count_death(index, ticket)
        if deaths > self._budget:
            what = f"{text}: its restart_budget of {self._budget} is used up"
            raise failure_of(what, dead.explained) from traceback_of(dead)
        try:
            self.processes[index] = self._start_process(index, deaths)
        except OSError as error:
            what = f"{text}, and could not be started again ({error.strerror or error})"
            raise failure_of(what, dead.explained) from traceback_of(dead)
        self.restarts += 1
        self._processes_changed(self._role, self.processes)
        self._notify_of_restart(dead, text, deaths)

    def _notify_of_restart(self, dead: C, text: str, deaths: int) -> None:
        """Notify the user that a child was restarted; `text` says what happened to it, `deaths` how often."""
        summary, _, lines = dead.explained.partition("\n")
        lines, self._last_code_lines = "" if lines == self._last_code_lines else lines, lines
        cut = ", at a marked cut" if self._changes_result else ""
        inexact = "; this run is no longer exact" if self._changes_result and self._runtime.lag == "exact" else ""
        again = f"started again{cut}; restart {deaths} of {self._budget}{inexact}"
        headline = f"{text}{f' ({summary})' if summary else ''}: {again}"
        self._notify("\n".join(filter(None, (headline, lines))), dead.failure)

    def _count_death(self, index: int, ticket: int) -> int:
        """Count a death; return the number of deaths of this child within the window or at this ticket.

        Those at this ticket count even if they are older. Otherwise a child that hangs each time could be restarted
        without end, because a time limit may be a large part of the window.
        """
        deaths, now = self._deaths[index], monotonic()
        deaths.append((now, ticket))
        while deaths[0][0] < now - RESTART_WINDOW_S and deaths[0][1] != ticket:
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
            closing.callback(self._release)
            for process in self.processes:
                closing.callback(process.kill)

    def _release(self) -> None:
        """Release what refers to the owner of this supervisor, which refers to the memory of the run."""
        self.processes, self._start = [], _not_started

    def _closing_s(self, index: int) -> float:
        return ENV_CLOSE_S if self._board.deadlines[index].is_in_env else CLOSE_S


def _not_started(index: int, attempt: int) -> NoReturn:  # noqa: ARG001
    raise RuntimeError("a supervisor that is closed starts no process")
