"""The training loop: counts, evaluates, saves checkpoints, writes metrics and ends the run, in every runtime.

A subclass decides when each of these is done: `PacedLoop` (paced.py) for runs with one learner, `HogwildLoop`
(hogwild/loop.py) for lock-free workers. The actors and learners are behind a `Workforce`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any

from offbeat.config.changes import fixed_settings
from offbeat.core.errors import RunFailed
from offbeat.core.process.threads import blas_kernels
from offbeat.core.types import Tree
from offbeat.metrics.counters import Counters
from offbeat.metrics.progress.status import FirstBatch, Phase
from offbeat.metrics.text import rounded
from offbeat.metrics.timings import Timings
from offbeat.runtime.evaluation.schedule import make_evaluations
from offbeat.runtime.loop.run_metrics import RunMetrics, crosses
from offbeat.runtime.loop.run_services import Ending, RunServices
from offbeat.runtime.loop.saving import Saving
from offbeat.runtime.loop.workforce import Workforce
from offbeat.runtime.parts import Parts

_TIMES = ("wall_time_s", "evaluation_s", "env_stall_max_s")
"""Counters that change without an event."""


class _EvaluationStopped(Exception):
    """A stop signal was received during an evaluation."""


class TrainingLoop(ABC):
    """See the module's docstring."""

    def __init__(self, parts: Parts, workforce: Workforce, services: RunServices) -> None:
        self._parts, self._workforce, self._run = parts, workforce, parts.config.run
        self._signals, self._notify = services.signals, services.reporting.notify
        self._observer = services.observer
        self.metrics = RunMetrics(parts, services, workforce.workers.spent)
        self.saving = Saving(parts, services)
        self.evaluations = make_evaluations(
            parts, services, self.saving, self.metrics.expected_evaluation_s, self.metrics.time_limit.warn_of_evaluation
        )
        self.counters = Counters()
        self.ending: Ending | None = None
        self._planned_ending: Ending | None = None
        """How the run will end at the next boundary; None if it is not to stop there."""
        self._line_is_pending = False
        """Whether a metrics line is due and not written yet."""
        self._restarts_before = self._evaluator_restarts_before = 0

    # --- start and end --------------------------------------------------------------------------------------

    def start(self, statistics: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Start a new run: save a checkpoint of version 0, then start acting with new episodes.

        A run that is stopped before its next checkpoint resumes from this one.

        Args:
            statistics: initial running statistics by policy, from another run's state. A policy that is not in it
                starts with new ones.

        Raises:
            ConfigError: the checkpoint cannot be written.
        """
        self._workforce.publish_initial(statistics)
        with self._signals.suspend_deadline():
            self.saving.save_start(self.counters, self._state())
        self._workforce.start()

    def restore(self, state: Mapping[str, Any], arrays: Tree | None, score: float | None) -> tuple[bool, str]:
        """Restore a run from a checkpoint, and start acting, unless only its last evaluation is left.

        Args:
            state: the state of the checkpoint.
            arrays: the arrays of its memory; None if it has none.
            score: the mean return of its weights; None if it is not known.

        Returns:
            Whether the unfinished episodes were restored too, and a message about the memory.
        """
        self.counters = Counters.of_state(state["counters"])
        self.saving.restore(self.counters, score)
        self._restarts_before = self.counters.actor_restarts
        self._evaluator_restarts_before = self.counters.evaluator_restarts
        self.evaluations.restore(self.counters.evaluation_s, state["evaluations"])
        self.metrics.restore(state["recorder"], self.counters)
        if self.evaluations.is_due:  # a signal has stopped it
            finished = self.counters.env_steps >= self._run.steps
            reached = self._ending_at_limit(self.counters.env_steps, self.counters.wall_time_s)
            self.ending = self._finished_ending() if finished else reached
        return self._workforce.restore(state, arrays, paused=self.ending is not None)

    @abstractmethod
    def run(self) -> None:
        """Train until `ending` is set. A resumed run may start with it.

        Raises:
            RunFailed: training cannot continue.
        """

    def _ending_at_limit(self, env_steps: int, wall_time_s: float) -> Ending | None:
        """Return the ending of a run that has reached `stop_at` or `time`; None if it has not."""
        run = self._run
        if run.stop_at is not None and env_steps >= run.stop_at:
            return Ending("interrupted", f"stopped at --stop-at {run.stop_at}", 0)
        if run.time is not None and wall_time_s >= run.time:
            return Ending("interrupted", f"stopped after --time {run.time:g} seconds", 0)
        return None

    def _requested_ending(self, env_steps: int) -> Ending | None:
        """Return the ending that a signal or a limit asks for at the next boundary, at `env_steps`; None: no ending."""
        self.saving.presence.require()
        run = self._run
        if self._signals.received:
            return Ending("interrupted", f"stopped by {self._signals.received.name}", 130)
        if reached := self._ending_at_limit(env_steps, self.metrics.wall_time):
            return reached
        return_mean = self.evaluations.return_mean
        if run.stop_at_return is not None and return_mean is not None and return_mean >= run.stop_at_return:
            found = f"an evaluation had a mean return of {rounded(return_mean)}"
            return Ending("interrupted", f"stopped at --stop-at-return {run.stop_at_return:g}: {found}", 0)
        return self._ending_by_callback()

    def _continue_or_end(self, *, finished: bool, at_boundary: bool) -> None:
        """Write metrics, if due; then end the run, or save and go on, at a boundary, or else save new best weights.

        The last line is written at the end of the run, with the last counters.

        Args:
            finished: whether the run has learned from all its env steps. It then ends at this boundary.
            at_boundary: whether a checkpoint to resume from could be saved now.
        """
        if at_boundary:
            self.ending = self._finished_ending() if finished else self._planned_ending
        if self.ending:
            return
        # The line is written before the checkpoint, because a run that resumes from there continues after this line.
        if self._line_is_pending:
            self._write_renewed_line()
        if at_boundary:
            self.ending = self._planned_ending  # a callback may have ended the run
            if not self.ending:
                self._save()
                self._continue_acting()
        elif self.saving.best_is_due:
            self._save_best()

    @abstractmethod
    def _continue_acting(self) -> None:
        """Let acting continue after a boundary."""

    def _finished_ending(self) -> Ending:
        """Return the ending of a run that has learned from all its env steps."""
        learned, steps = self.counters.env_steps, self._run.steps
        remark = f": steps is {steps}, rounded up to whole batches" if learned > 1.1 * steps else ""
        return Ending("finished", f"learned from {learned} env steps{remark}", 0)

    def _ending_by_callback(self) -> Ending | None:
        reason = self._observer.stop_reason
        return Ending("interrupted", reason, 0) if reason else None

    def close(self) -> Ending:
        """Save the last checkpoint, write the last metrics line, and return how the run ended."""
        if self.ending is None:
            raise RuntimeError("the runtime returned before the run had ended")
        # Takes the result of an unfinished evaluation. The checkpoint comes after it and has its score. A run that is
        # killed in the evaluation resumes from an earlier one: with a last one it would count as finished.
        evaluated = self._advance_evaluations(due=False, last=True)
        self._signals.end_deadline()
        self._save_and_write_last_line(evaluated=evaluated)
        self.metrics.conclude(self.counters)
        self._show("saving", at_once=True)
        if unsaved := self.saving.unsaved(self.counters):
            raise RunFailed(
                f"the end of the run could not be saved ({self.saving.failure}), so {unsaved} env steps since the last "
                f"checkpoint are lost: {self.saving.remedy}, then resume the run"
            )
        return replace(self._with_signal(self.ending), bottleneck=self._bottleneck())

    def _with_signal(self, ending: Ending) -> Ending:
        """Return the ending with the exit code of a stop signal. Without its last evaluation, no run is finished."""
        if not self._signals.received:
            return ending
        if ending.exit_code == 0 and self.evaluations.is_due:
            reason = f"{ending.reason}, and stopped by {self._signals.received.name} before its last evaluation"
            return Ending("interrupted", reason, 130)
        return replace(ending, exit_code=130)

    def salvage(self) -> None:
        """Save what has been learned after acting failed. A resumed run starts new episodes there."""
        self._observer.run_failed()
        if self.saving.unsaved(self.counters) > 0:
            self._save_and_write_last_line()
        elif self.saving.best_is_due:
            self._save_best()

    def _save_and_write_last_line(self, *, evaluated: bool = False) -> None:
        """Save the last checkpoint, and write a metrics line if counters have changed since the last one.

        A line that is due is written before the checkpoint, because a run that resumes from there continues after this
        line. Otherwise the line is an additional one, and the period of the resumed run's next line is not changed.

        Args:
            evaluated: whether the result of an evaluation is in no line yet.
        """
        self._renew_counters()
        due, last = self._line_is_pending, self.metrics.line
        is_new = any(last.get(name) != value for name, value in vars(self.counters).items() if name not in _TIMES)
        if due:
            self._write_renewed_line()
        timings = self.metrics.timings()  # those of the counters: the time of this checkpoint is in no line
        self._save()
        if not due and (is_new or evaluated):
            self._write_line(timings)

    # --- evaluation -----------------------------------------------------------------------------------------

    def _evaluation_due(self, before: Counters, *, finished: bool) -> bool:
        interval = self._run.evaluation_interval
        return crosses(before.env_steps, self.counters.env_steps, interval) or (finished and interval > 0)

    def _advance_evaluations(self, *, due: bool, last: bool) -> bool:
        """Collect a result that has arrived, and start the evaluation that is due or was postponed.

        After a stop signal nothing is evaluated: until the run ends, only a few learning steps follow. A resume makes
        the evaluation that was due.

        Args:
            due: whether the weights are to be evaluated now.
            last: whether these are the weights at the end of the run.

        Returns:
            Whether the result of an evaluation was received, of these weights or of earlier ones.
        """
        if self._signals.received:
            if due:
                self.evaluations.postpone()
            return False
        started, has_work = monotonic(), due or self.evaluations.is_due
        try:
            return self.evaluations.step(
                self.counters,
                self.metrics.wall_time,
                self._during_evaluation,
                partial(self._write_renewed_line, ends_period=False),  # the wait for another evaluation follows
                due=due,
                last=last and self._run.evaluation_interval > 0,
            )
        except _EvaluationStopped:
            self._notify("the evaluation was stopped by a signal and has no result: a resume makes it")
            return False
        finally:
            if last or (has_work and not self.evaluations.concurrent):
                self._parts.timings.add("evaluate", monotonic() - started)

    def _during_evaluation(self) -> None:
        self._show("evaluating")
        self.saving.presence.require()
        if self._signals.received:
            raise _EvaluationStopped

    # --- metrics --------------------------------------------------------------------------------------------

    def _renew_counters(self) -> None:
        """Update the counters that do not depend on learning: times, restarts, the longest env call."""
        self.counters = replace(
            self.counters,
            actor_restarts=self._restarts_before + self._workforce.workers.restarts,
            wall_time_s=self.metrics.wall_time,
            evaluator_restarts=self._evaluator_restarts_before + self.evaluations.restarts,
            evaluation_s=self.evaluations.seconds,
            env_stall_max_s=max(self.counters.env_stall_max_s, self._workforce.workers.longest_stall),
        )

    def _write_renewed_line(self, *, ends_period: bool = True) -> None:
        """Write a metrics line with updated counters."""
        self._renew_counters()
        self._write_line(self.metrics.timings(), ends_period=ends_period)

    def _write_line(self, timings: Timings, *, ends_period: bool = True) -> None:
        """Write a metrics line with the counters; `timings`: those of the time of the counters."""
        self._line_is_pending = self._line_is_pending and not ends_period
        self.metrics.write(self.counters, timings, ends_period=ends_period)
        self._planned_ending = self._planned_ending or self._ending_by_callback()

    def _bottleneck(self) -> str:
        """Return the bottleneck report and, at the end of the run, the time of evaluations, in a line each."""
        if not self.ending:
            return self.metrics.bottleneck
        waited_s = self._parts.timings.seconds.get("evaluate", 0.0)
        evaluation_time = self.evaluations.summary(waited_s, self.metrics.seconds)
        return "\n".join(filter(None, (self.metrics.bottleneck, evaluation_time)))

    def _show(self, phase: Phase, *, at_once: bool = False) -> None:
        if at_once or self.metrics.show_is_due(phase):
            self._renew_counters()  # an actor can restart many times within a learning step
            self.metrics.show(phase, self.counters, self._bottleneck(), self._first_batch())

    def _first_batch(self) -> FirstBatch | None:
        """Return what is collected of the first batch; None once it is learned from, or if there is none."""
        return None

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Save a checkpoint to resume from."""
        self._show("saving")
        self._renew_counters()
        state = self._state()
        with self._signals.suspend_deadline():
            self.saving.save(self.counters, state, self._workforce.checkpoint_arrays())
        self._report_checkpoints()

    def _save_best(self) -> None:
        """Save the weights of the last evaluation as the best ones, without the state that a resume needs."""
        with self._signals.suspend_deadline():
            self.saving.save_best()
        self._report_checkpoints()

    def _report_checkpoints(self) -> None:
        """Pass on which checkpoints were written, outside of the time in which a signal waits for them."""
        for path in self.saving.take_written():
            self._observer.checkpoint_saved(path)

    def _state(self) -> dict[str, Any]:
        return {
            "counters": vars(self.counters),
            "runtime": self._parts.config.runtime.runtime,
            "settings": fixed_settings(self._parts.config),
            "blas_kernels": blas_kernels(),
            **self._workforce.state(),
            "recorder": self.metrics.recorder.state(self.metrics.timings()),
            "evaluations": self.evaluations.state(),
        }
