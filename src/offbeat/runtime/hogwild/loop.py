"""The hogwild runtime: workers that act and learn, lock-free on shared parameters, and the training loop that looks on.

The training loop never learns. It reads the workers' counters several times a second, evaluates snapshots while they go
on, and lets them pause where something needs that: at the limit, a number of env steps that all workers take
in together, which is the end of the run or the next checkpoint; or at once, for a stop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from offbeat.config.config import Config
from offbeat.metrics.recorder import Counters
from offbeat.runtime.hogwild.parts import LockFreeParts, build_lock_free
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import WorkerReport
from offbeat.runtime.hogwild.workforce import LockFreeWorkforce
from offbeat.runtime.supervisor import Reporting
from offbeat.runtime.training_loop import TrainingLoop
from offbeat.runtime.watchers import Ending, Watchers

DRAIN_S = 5.0
"""Seconds that workers get to pause where one of them has failed for good."""


class HogwildLoop(TrainingLoop):
    """See the module's docstring."""

    def __init__(self, parts: LockFreeParts, pool: WorkerPool, watchers: Watchers) -> None:
        super().__init__(parts, LockFreeWorkforce(parts, pool), watchers)
        self._pool, self._board = pool, parts.board
        self._replay_sizes = [0.0] * parts.board.workers
        self._limit, self._stops_at_once = 0, False
        self._end_is_evaluated = self._line_is_owed = False

    def run(self) -> None:
        self._show("training")
        self._continue()
        while self.ending is None:
            self._pool.wait()
            self._poll()

    def _continue(self) -> None:
        """Let workers go on to the next boundary."""
        env_steps, run = self.counters.env_steps, self._run
        limits = [run.steps]
        if run.stop_at is not None:
            limits.append(run.stop_at)
        if interval := run.checkpoint_interval:
            limits.append((env_steps // interval + 1) * interval)
        self._limit, self._stops_at_once = min(limits), False
        self._pool.set_limit(self._limit)

    def _poll(self) -> None:
        """Count what workers have done meanwhile, then do what is due: evaluate, write, save, end."""
        paused, before = self._pool.paused, self.counters  # in this order: once paused, nothing is added any more
        self._count()
        finished = paused and self.counters.env_steps >= self._run.steps
        evaluated = self._evaluate(due=self._evaluation_due(before, finished=finished), last=finished)
        self._stop = self._stop or self._wanted_stop(self.counters.env_steps)
        self._line_is_owed |= evaluated or self.metrics.line_due(before, self.counters)
        env_steps = self.counters.env_steps
        if self._line_is_owed and (paused or env_steps < self._limit):
            self._write_line()  # not while workers pause: what they report then belongs to the same line
            self._line_is_owed = False
        if paused and self._pool.paused:  # still: who dies meanwhile is started again, and must pause first
            self._at_boundary(finished=finished)
        elif self.saving.best_is_unsaved:
            self._save_best()
        elif (self._stop or self.saving.is_due) and not self._stops_at_once and env_steps < self._limit:
            self._stops_at_once = True
            self._limit = self._pool.stop_at_once()
        self._show("training")

    def _evaluation_due(self, before: Counters, *, finished: bool) -> bool:
        """Whether to evaluate now; the end is evaluated once, when all have paused."""
        if self.counters.env_steps < self._run.steps:
            return super()._evaluation_due(before, finished=False)
        due = finished and not self._end_is_evaluated and self._run.evaluation_interval > 0
        self._end_is_evaluated |= due
        return due

    def _at_boundary(self, *, finished: bool) -> None:
        """All workers are paused: end, or save and go on."""
        if finished:
            self.ending = Ending("finished", f"learned from {self.counters.env_steps} env steps", 0)
        elif self._stop:
            self.ending = self._stop
        else:
            self._save()
            self._continue()

    # --- counting -------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Take in what workers have reported, and bring the counters up to this moment."""
        done = [self._board.progress_of(worker) for worker in range(self._board.workers)]
        env_steps, updates = sum(each.env_steps for each in done), self._board.updates.sum(axis=0)
        self.counters = replace(
            self.counters,
            env_steps=env_steps,
            frames=env_steps * self._parts.env.frame_skip,
            learning_step=sum(each.learning_steps for each in done),
            updates=int(updates[0]),
            updates_refused=int(updates[1]),
        )
        self._renew_counters()
        reports, self._pool.reports = self._pool.reports, []
        for worker, report in reports:
            self._take_in(worker, report)

    def _take_in(self, worker: int, report: WorkerReport) -> None:
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
        """Let those who live pause, then save what all have learned; who has died begins anew, at a cut."""
        if not self._pool.has_started:
            return  # nothing was learned, and the board may be that of a run that is only being restored
        if self.saving.best_is_unsaved:
            self._save_best()
        self._pool.drain(DRAIN_S)
        self._count()
        super().salvage()


class HogwildRuntime:
    """Workers that act and learn by turns, on shared parameters."""

    def build(self, config: Config, notify: Callable[[str], None]) -> LockFreeParts:
        """Make what workers share. Raises as `build_lock_free` does."""
        return build_lock_free(config, notify)

    def loop(
        self,
        parts: LockFreeParts,
        learned: int,  # noqa: ARG002 - the board says it
        watchers: Watchers,
        reporting: Reporting,
        closing: ExitStack,
    ) -> TrainingLoop:
        """Make the workers, and the loop that waits for them: see `runtimes.Runtime`."""
        pool = WorkerPool(parts, reporting)
        closing.callback(pool.close)
        return HogwildLoop(parts, pool, watchers)


RUNTIME = HogwildRuntime()
