"""The hogwild runtime, and the training loop of its workers.

The training loop does not learn. It reads the workers' counters several times per second, and evaluates snapshots of
the parameters while the workers continue. Workers pause at the limit: the total number of env steps of all workers at
the end of the run or at the next checkpoint. For a stop they pause at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from offbeat.config.config import Config
from offbeat.metrics.counters import Counters
from offbeat.runtime.hogwild.parts import HogwildParts, build_hogwild
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import WorkerReport
from offbeat.runtime.hogwild.workforce import HogwildWorkforce
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.training_loop import TrainingLoop

DRAIN_S = 5.0
"""Seconds that workers get to pause, after the run has failed, until they are killed."""


class HogwildLoop(TrainingLoop):
    """See the module's docstring."""

    def __init__(self, parts: HogwildParts, pool: WorkerPool, services: RunServices) -> None:
        super().__init__(parts, HogwildWorkforce(parts, pool, services.reporting.notify), services)
        self._pool, self._board = pool, parts.board
        self._replay_sizes = [0.0] * parts.board.workers
        self._end_evaluation_requested = False
        """Whether the evaluation of the weights at the end was requested."""

    def run(self) -> None:
        if self.ending:  # only the last evaluation is left, which `close` makes
            return
        self._show("training")
        self._continue_acting()
        while self.ending is None:
            self._pool.wait()
            self._poll()

    def _continue_acting(self) -> None:
        """Let workers continue to the next boundary."""
        env_steps, run = self.counters.env_steps, self._run
        limits = [run.steps]
        if run.stop_at is not None:
            limits.append(run.stop_at)
        if interval := run.checkpoint_interval:
            limits.append((env_steps // interval + 1) * interval)
        self._pool.set_limit(min(limits))

    def _poll(self) -> None:
        """Update the counters; then evaluate, write metrics, save or end the run, if due."""
        paused, before = self._pool.paused, self.counters  # read before counting: paused workers add nothing
        self._count()
        finished = paused and self.counters.env_steps >= self._run.steps
        evaluated = self._advance_evaluations(due=self._evaluation_due(before, finished=finished), last=finished)
        self._planned_ending = self._planned_ending or self._requested_ending(self.counters.env_steps)
        self._line_is_pending |= evaluated or self.metrics.line_due(before, self.counters)
        if paused:
            # A worker may have died and be restarted since then, so not paused yet.
            self._continue_or_end(finished=finished, at_boundary=self._pool.paused)
        elif self.counters.env_steps < self._board.limit[0]:  # the limit is negative while they stop at once
            self._continue_or_end(finished=False, at_boundary=False)
            if self._planned_ending or self.saving.is_due:
                self._pool.stop_at_once()
        # Between the limit and the pause of all workers nothing is written: their last reports belong to the same line.
        self._show("training")

    def _evaluation_due(self, before: Counters, *, finished: bool) -> bool:
        """Whether to evaluate now. The weights at the end are evaluated once, when all workers have paused."""
        if self.counters.env_steps < self._run.steps:
            return super()._evaluation_due(before, finished=False)
        due = finished and not self._end_evaluation_requested and self._run.evaluation_interval > 0
        self._end_evaluation_requested |= due
        return due

    # --- counting -------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Update the counters from the board, and record the reports of the workers."""
        counters = [self._board.counters_of(worker) for worker in range(self._board.workers)]
        env_steps, updates = sum(each.env_steps for each in counters), self._board.updates.sum(axis=0)
        self.counters = replace(
            self.counters,
            env_steps=env_steps,
            agent_steps=sum(each.agent_steps for each in counters),
            frames=env_steps * self._parts.env_spec.frame_skip,
            learning_step=sum(each.learning_steps for each in counters),
            updates=int(updates[0]),
            updates_refused=int(updates[1]),
        )
        self._renew_counters()
        reports, self._pool.reports = self._pool.reports, []
        for worker, report in reports:
            self._record(worker, report)

    def _record(self, worker: int, report: WorkerReport) -> None:
        for metrics in report.metrics:
            if "replay_size" in metrics:
                self._replay_sizes[worker] = metrics["replay_size"]
                metrics["replay_size"] = sum(self._replay_sizes)
            self.metrics.recorder.add_learning_step(metrics)
        for returns, lengths in zip(report.returns, report.lengths, strict=True):
            self.metrics.recorder.add_episodes(returns, lengths)
        self.metrics.recorder.add_infos(report.info)

    def _during_evaluation(self) -> None:
        self._pool.watch()
        super()._during_evaluation()

    def salvage(self) -> None:
        """Let living workers pause, then save what all have learned. At a resume, dead workers start new episodes."""
        if not self._pool.has_started:
            return  # nothing was learned yet, and the board may be partly restored
        self._observer.run_failed()
        self._pool.drain(DRAIN_S)
        self._count()
        super().salvage()


class HogwildRuntime:
    """The runtime of workers that act and learn in turns on shared parameters."""

    def build(self, config: Config, notify: Callable[[str], None]) -> HogwildParts:
        """Build the parts that workers share. Errors are those of `build_hogwild`."""
        return build_hogwild(config, notify)

    def loop(
        self,
        parts: HogwildParts,
        learned: int,  # noqa: ARG002 - it is on the board
        services: RunServices,
        closing: ExitStack,
    ) -> TrainingLoop:
        """Make the worker pool and the training loop: see `runtimes.Runtime`."""
        pool = WorkerPool(parts, services.reporting)
        closing.callback(pool.close)
        return HogwildLoop(parts, pool, services)


RUNTIME = HogwildRuntime()
