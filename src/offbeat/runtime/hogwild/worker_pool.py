"""The worker pool of a lock-free run: starts, pauses, watches and stops its worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic

from offbeat.core.closing import close_all
from offbeat.core.process.threads import usable_core_numbers
from offbeat.metrics.counters import WorkerCounters
from offbeat.metrics.timings import Timings
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.children.child import Child
from offbeat.runtime.children.child_main import Report
from offbeat.runtime.children.launch import sent_algorithm, sent_code, start_worker
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.hogwild.board import NOT_STARTED
from offbeat.runtime.hogwild.parts import HogwildParts
from offbeat.runtime.hogwild.worker_process import WorkerLaunch, WorkerReport, WorkerState
from offbeat.runtime.reporting import Reporting


class WorkerPool:
    """The worker processes of a lock-free run."""

    def __init__(self, parts: HogwildParts, reporting: Reporting) -> None:
        """Make a worker pool; `start` starts the workers.

        Args:
            parts: the parts that workers share.
            reporting: is notified of restarts, and of the processes.

        Raises:
            ConfigError: the env, an encoder or the algorithm cannot be sent to another process.
        """
        self._code, self._algorithm = sent_code(parts.plans[0]), sent_algorithm(parts.config)  # first: they may raise
        self._parts, self._board, self._cores = parts, parts.board, usable_core_numbers()
        self._bell, *self._bells = Bell.make_several(1 + len(parts.plans))
        self._states: list[WorkerState | None] = [None] * len(parts.plans)
        """The state that each worker continues from; None once it has finished a learning step."""
        self._counters_at_start: list[WorkerCounters] = []
        """The counters of each worker at its start."""
        self._stop_limit = NOT_STARTED
        self._spent = [Timings() for _ in parts.plans]
        self.has_started = False
        """Whether all workers are ready."""
        self.longest_stall = 0.0
        self.reports: list[tuple[int, WorkerReport]] = []
        """Reports of workers that the training loop has not recorded yet, with the worker's index."""
        self._supervisor = Supervisor(
            self._start,
            self._board,
            parts.config.runtime,
            reporting,
            role="worker",
            work="learning step",
            changes_result=True,
        )

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    def spent(self) -> list[Mapping[str, float]]:
        """Return the seconds of each worker, by activity."""
        return [timings.seconds for timings in self._spent]

    def start(self, states: Sequence[WorkerState | None]) -> None:
        """Start all workers, each from its state, and wait until they are ready. They wait for `set_limit`."""
        self._states = list(states)
        self._counters_at_start = [self._board.counters_of(worker) for worker in range(len(states))]
        self._board.limit[0] = NOT_STARTED
        self._supervisor.start(len(states))
        self.has_started = True

    def _start(self, index: int, attempt: int) -> Child:
        parts = self._parts
        launch = WorkerLaunch(
            index=index,
            attempt=attempt,
            code=self._code,
            cores=self._cores,
            threads=parts.blas_threads,
            own_bell=self._bells[index].reader,
            config=parts.config,
            plan=parts.plans[index],
            shared_state=parts.shared_state,
            state=self._state(index, attempt),
            algorithm=self._algorithm,
            state_arena=parts.state_arena.fd,
            own_arena=parts.worker_arenas[index].fd,
            buffer=parts.buffer.handle() if parts.buffer else None,
        )
        return start_worker(
            "offbeat.runtime.hogwild.worker_process",
            launch,
            (launch.state_arena, launch.own_arena),
            self._bell.ring,
            partial(self._take_report, index),
        )

    def _state(self, index: int, attempt: int) -> WorkerState | None:
        """Return the state that a worker continues from; None after a learning step: its counters are on the board.

        After a death the state of its envs is left out, because they may fail in the same way again.
        """
        state = None if self._has_learned(index) else self._states[index]
        return state._replace(actor=None) if state and attempt else state

    def _has_learned(self, index: int) -> bool:
        """Whether a worker has finished a learning step since its start: its state is then not needed any more."""
        return self._board.counters_of(index) != self._counters_at_start[index]

    def _take_report(self, index: int, report: Report) -> None:
        content: WorkerReport = report.content
        if self._has_learned(index):
            self._states[index] = None
        child = self._supervisor.processes[index]
        child.paused = child.paused[0], None  # it works again, or has reached its next pause, which it reports next
        self._spent[index].merge(content.seconds)
        self.longest_stall = max(self.longest_stall, content.stall)
        self.reports.append((index, content))

    def set_limit(self, limit: int) -> None:
        """Let workers continue until their env steps reach `limit` in total."""
        self._board.limit[0] = limit
        for bell in self._bells:
            bell.ring()

    def stop_at_once(self) -> int:
        """Let each worker pause after its current learning step; return the limit that is set for this.

        Each such stop has a different limit, so that the report of an earlier pause is not taken for this pause.
        """
        self._stop_limit -= 1
        self.set_limit(self._stop_limit)
        return self._stop_limit

    def watch(self) -> None:
        """Handle the reports of workers, and restart workers that have died or hang.

        Raises:
            RunFailed: as in `Supervisor.watch`.
        """
        for child in self._supervisor.processes:
            child.take_reports()
        self._supervisor.watch()

    def wait(self) -> None:
        """Sleep until a report arrives, for at most POLL_INTERVAL_S; then `watch`."""
        self._bell.sleep(POLL_INTERVAL_S)
        self.watch()

    @property
    def paused(self) -> bool:
        """Whether all workers have paused at the present limit and reported their states."""
        limit = int(self._board.limit[0])
        return all(child.paused[0] == limit for child in self._supervisor.processes)

    def drain(self, seconds: float) -> None:
        """Let the living workers pause at once; kill those that have not paused within `seconds`, and restart none.

        After that no worker changes the shared state any more.
        """
        limit = self.stop_at_once()
        children, deadline = self._supervisor.processes, monotonic() + seconds
        while True:
            living = [child for child in children if child.is_alive()]  # read before the last reports are handled
            for child in children:
                child.take_reports()
            late = [child for child in living if child.paused[0] != limit]
            if not late or monotonic() > deadline:
                break
            self._bell.sleep(POLL_INTERVAL_S)
        for child in late:
            child.kill()

    def states(self) -> list[WorkerState | None]:
        """Return the state of each paused worker; None for a worker that is not paused because it died."""
        limit = int(self._board.limit[0])
        return [child.paused[1] if child.paused[0] == limit else None for child in self._supervisor.processes]

    def close(self) -> None:
        self._board.close(self._bells)
        close_all((self._bell, *self._bells, self._supervisor))
