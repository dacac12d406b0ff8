"""The supervisor of actor processes: finds the dead and the hung, and starts them again within a budget.

A new process takes the ticket again that the dead one had open. Nothing that was committed is lost, and nothing is
learned from twice: the learner reads only what has been committed, and that happens in one store.
"""

from __future__ import annotations

import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from time import monotonic

from offbeat.config import RuntimeConfig
from offbeat.errors import RunFailed
from offbeat.runtime.acting import Snapshot
from offbeat.runtime.actor_process import Orders, Report
from offbeat.runtime.gate import NAP_S, RESET_TIMEOUT_S, Board

LOOK_EVERY_S = 0.05
"""Looking at all processes costs a system call each, so it is not done more often than this."""
START_S = 60.0
"""Seconds that a process gets to start, on top of those for resetting its envs."""
RESTART_BUDGET = 5
"""Restarts of one actor within `RESTART_WINDOW_S`, unless `restart_budget` says otherwise."""
RESTART_WINDOW_S = 600.0

_HUNG = "had to be killed, as its envs did not answer in time (step_timeout_s, reset_timeout_s)"


class ActorProcess:
    """A process, and what it has reported."""

    def __init__(self, index: int, process: subprocess.Popen[bytes], connection: Connection[Orders, Report]) -> None:
        self.index, self.process, self.connection = index, process, connection
        self.ready = False
        """Whether its envs have begun."""
        self.failure = ""
        """The traceback of what ended it."""
        self._rest: tuple[int, Snapshot] = (-1, None)
        """The last state of its envs, and the ticket before which it was taken."""

    def listen(self, seconds: float = 0.0) -> None:
        """Take in what it reports; wait up to `seconds` for the first word."""
        try:
            while self.connection.poll(seconds):
                self._note(self.connection.recv())
                seconds = 0.0
        except (EOFError, OSError):
            return  # it has died; what it said before has been read

    def _note(self, report: Report) -> None:
        if report.kind == "ready":
            self.ready = True
        elif report.kind == "failed":
            self.failure = report.content
        else:
            self._rest = report.content

    def snapshot(self, hold: int, deadline: float) -> Snapshot:
        """Return the state of its envs, which it reports when `hold` has stopped it; None if it never does."""
        while self._rest[0] < hold and self.alive() and monotonic() < deadline:
            self.listen(NAP_S)
        ticket, snapshot = self._rest
        return snapshot if ticket >= hold else None  # not that of an earlier hold, which came too late

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it at once, and wait until it is gone: only then may another write where it did."""
        self.process.kill()
        self.process.wait()

    def how_it_ended(self) -> str:
        code = self.process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class Supervisor:
    """See the module's docstring."""

    def __init__(
        self,
        start: Callable[[int, int, Snapshot, int], ActorProcess],
        board: Board,
        runtime: RuntimeConfig,
        tell: Callable[[str], None],
        show: Callable[[Sequence[ActorProcess]], None],
    ) -> None:
        """Supervise actors.

        Args:
            start: starts the process of an actor, given the ticket at which its episodes begin, a snapshot, and the
                number of its recent deaths: what follows from a seed must not happen again and again.
            board: says which ticket an actor has open, and by when its envs must answer.
            runtime: the settings.
            tell: tells the user.
            show: is given the processes whenever they have changed.
        """
        self.processes: list[ActorProcess] = []
        self.restarts = 0
        self._start, self._board, self._runtime = start, board, runtime
        self._tell, self._show = tell, show
        self._budget = RESTART_BUDGET if runtime.restart_budget is None else runtime.restart_budget
        self._deaths: list[deque[float]] = [deque() for _ in range(runtime.actors)]
        """actor -> moments at which it died."""
        self._next_look = 0.0

    def begin(self, origin: int, snapshots: Sequence[Snapshot]) -> None:
        """Start all actors, `start_together` of them at a time, and wait until their envs have begun."""
        together = self._runtime.start_together or len(snapshots)
        for index, snapshot in enumerate(snapshots):
            self.processes.append(self._started(index, origin, snapshot))
            if len(self.processes) % together == 0 or len(self.processes) == len(snapshots):
                self._show(self.processes)
                self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        while waiting := [process for process in self.processes if not process.ready]:
            waiting[0].listen(NAP_S)
            self.watch()

    def _started(self, index: int, origin: int, snapshot: Snapshot, attempt: int = 0) -> ActorProcess:
        self._board.deadline[index][0] = monotonic() + START_S + (self._runtime.reset_timeout_s or RESET_TIMEOUT_S)
        return self._start(index, origin, snapshot, attempt)

    def watch(self) -> None:
        """Start again whoever has died or hangs.

        Raises:
            RunFailed: one did so too often.
        """
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        for process in list(self.processes):
            if not process.alive():
                self._again(process, process.how_it_ended())
            elif self._board.is_late(process.index):
                process.kill()
                self._again(process, _HUNG)

    def _again(self, dead: ActorProcess, what: str) -> None:
        """Start a dead actor again, or give up."""
        index, ticket = dead.index, int(self._board.next[dead.index][0])
        dead.listen()
        dead.connection.close()
        text = f"actor {index} (process {dead.process.pid}) {what}, in ticket {ticket}"
        deaths = self._count_death(index)
        if deaths > self._budget:
            minutes = f"{RESTART_WINDOW_S / 60:g} minutes"
            error = RunFailed(f"{text}: its restart_budget of {self._budget} in {minutes} is spent")
            if dead.failure:
                error.add_note(dead.failure.rstrip())
            raise error
        self.restarts += 1
        self.processes[index] = self._started(index, ticket, None, attempt=deaths)
        self._show(self.processes)
        why = f" ({dead.failure.strip().splitlines()[-1]})" if dead.failure else ""
        inexact = "; this run is no longer exact" if self._runtime.lag == "exact" else ""
        self._tell(f"{text}{why}: started again, at a marked cut; restart {deaths} of {self._budget}{inexact}")

    def _count_death(self, index: int) -> int:
        """Return how often this actor has died within the window."""
        deaths = self._deaths[index]
        deaths.append(monotonic())
        while deaths[0] < monotonic() - RESTART_WINDOW_S:
            deaths.popleft()
        return len(deaths)

    def snapshots(self, seconds: float) -> list[Snapshot]:
        """Return the state of each actor's envs, as far as it comes within `seconds`; a hold stands."""
        hold, deadline = int(self._board.hold[0]), monotonic() + seconds
        return [process.snapshot(hold, deadline) for process in self.processes]

    def close(self, seconds: float) -> None:
        """Wait for all to end, as the gate has been closed; after `seconds` end them."""
        deadline = monotonic() + seconds
        for process in self.processes:
            try:
                process.process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
            process.connection.close()
