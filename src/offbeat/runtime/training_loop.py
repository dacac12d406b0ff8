"""The training loop: what every run needs around its learning, however it learns.

It keeps the counters, evaluates, lets checkpoints be saved (saving.py), writes metrics and ends the run. Who says when
is a kind of its own: `PacedLoop` (paced.py) for one learner, `HogwildLoop` (hogwild.py) for several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from offbeat.core.errors import RunFailed
from offbeat.core.threads import blas_kernels, usable_cores
from offbeat.core.types import Tree
from offbeat.metrics.progress import Phase, Status
from offbeat.metrics.recorder import Counters
from offbeat.metrics.timings import Timings
from offbeat.runtime.callbacks import answer_of
from offbeat.runtime.evaluation.evaluators import make_evaluator
from offbeat.runtime.evaluation.schedule import Evaluations
from offbeat.runtime.parts import Parts
from offbeat.runtime.saving import Saving
from offbeat.runtime.supervisor import Reporting
from offbeat.runtime.time_limits import TimeLimitWarning
from offbeat.runtime.watchers import Ending, Watchers

LINE_EVERY_S = 10.0
"""Seconds between metrics lines, at most, as far as learning steps end that often, unless `log_every_s` is given."""
SHOW_EVERY_S = 0.1
"""Seconds, at least, between updates of what is shown of the run."""


class _EvaluationStopped(Exception):
    """A signal came during an evaluation."""


class TrainingLoop(ABC):
    """See the module's docstring."""

    def __init__(self, run_parts: Parts, watchers: Watchers) -> None:
        self._run_parts, self._run = run_parts, run_parts.config.run
        self._recorder, self._progress = watchers.recorder, watchers.progress
        self._signals, self._callbacks, self._notify = watchers.signals, watchers.callbacks, watchers.notify
        self._time_limit = TimeLimitWarning(run_parts.env, run_parts.config.columns, watchers.notify)
        self._saving = Saving(run_parts, watchers)
        self._evaluations = self._make_evaluations(watchers)
        self.counters = Counters()
        self.ending: Ending | None = None
        self._stop: Ending | None = None
        self._wall_time_before = 0.0
        self._restarts_before = self._evaluator_restarts_before = 0
        self._env_steps_before = 0
        self._begun = monotonic()
        self._line_at = 0.0
        self._shown: tuple[Phase, float] = ("training", 0.0)
        """Which phase was shown last, and when."""
        self.line: dict[str, Any] = {}
        """The last metrics line."""

    def _make_evaluations(self, watchers: Watchers) -> Evaluations:
        config = self._run_parts.config
        exact = config.runtime.lag == "exact"
        beside = not exact and not config.runtime.entry.runs_in_order and usable_cores() > 1
        beside &= config.run.evaluator == "process"
        notify, reporting = watchers.notify, Reporting(watchers.notify, watchers.show_evaluator)
        return Evaluations(
            config.run,
            self._run_parts.policy,
            partial(make_evaluator, config, self._run_parts.policy, reporting, beside=beside),
            watchers.recorder,
            self._saving,
            notify,
            self._expected_evaluation_s,
            self._write_renewed_line,
            beside=beside,
            bounded=not exact,
        )

    def _expected_evaluation_s(self) -> float:
        """Return the seconds that an evaluation may take, by what acting has taken so far; 0 where that is unknown."""
        totals, env_steps = self._timings().totals(), self.counters.env_steps - self._env_steps_before
        if not env_steps:
            return 0.0
        env_step_s = (totals.get("act", 0.0) + totals.get("env", 0.0)) / env_steps
        return self._run.eval_episodes * self._recorder.episode_length_mean * env_step_s

    def end_evaluations(self) -> None:
        """End the evaluator's process, if there is one."""
        self._evaluations.close()

    # --- what differs ---------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, statistics: Mapping[str, Any] | None = None) -> None:
        """Begin a run: every actor begins new episodes, and normalisers are new, or those of another run's state."""

    @abstractmethod
    def run(self) -> None:
        """Go on until the run has its ending.

        Raises:
            RunFailed: it cannot go on.
        """

    @abstractmethod
    def _go_on_from(self, state: Mapping[str, Any], arrays: Tree | None) -> tuple[bool, str]:
        """Go on from `_state()` and `_checkpoint_arrays()`; return as `restore` does."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return what resuming needs beside what is the same in every run."""

    @abstractmethod
    def _checkpoint_arrays(self) -> Tree | None:
        """Return what a checkpoint keeps of the memory, as views of it."""

    @abstractmethod
    def _spent(self) -> Iterable[Mapping[str, float]]:
        """Return the seconds of each worker beside this process, by what they went into."""

    @property
    @abstractmethod
    def _restarts(self) -> int:
        """Workers started again after a death."""

    @property
    @abstractmethod
    def _longest_stall(self) -> float:
        """Seconds of the longest call of an env."""

    @property
    def _can_be_saved(self) -> bool:
        """Whether the run is in a state to go on from."""
        return True

    @property
    def _exact(self) -> bool:
        """Whether the result must not depend on the clock."""
        return False

    def _acted_beyond(self) -> int:
        """Return the env steps that were acted and will not be learned from."""
        return 0

    # --- beginning and ending -------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Acting has begun: show how things stand, and let the clock run from here."""
        self._begun = monotonic()
        self._show("training")

    def require_directory(self) -> None:
        """Refuse to go on without the run directory.

        Raises:
            RunDirectoryGone: it is not there any more.
        """
        self._saving.presence.require(at_once=True)

    def _wanted_stop(self, env_steps: int) -> Ending | None:
        self._saving.presence.require()
        run = self._run
        if self._signals.received:
            return Ending("interrupted", f"stopped by {self._signals.received.name}", 130)
        if run.stop_at is not None and env_steps >= run.stop_at:
            return Ending("interrupted", f"stopped at --stop-at {run.stop_at}", 0)
        if run.time is not None and self._wall_time() >= run.time:
            return Ending("interrupted", f"stopped after --time {run.time:g} seconds", 0)
        return None

    def close(self) -> Ending:
        """Save the end of the run, write its last line, and return how it ended."""
        if self.ending is None:
            raise RuntimeError("the runtime returned before the run had ended")
        if not self._signals.received:
            self._evaluate(due=False, last=True)  # takes in a result that is still to come
        self._signals.end_deadline()
        self.counters = replace(self.counters, acted_beyond=self._acted_beyond())
        self._save()
        self._write_line()
        self._recorder.conclude(self._timings(), monotonic() - self._begun)
        self._show("saving", at_once=True)
        if unsaved := self._saving.unsaved(self.counters):
            raise RunFailed(
                f"the end of the run could not be saved, see log.txt: {unsaved} env steps since the last "
                "checkpoint are lost; make room on the disk and run offbeat resume with this run's directory"
            )
        exit_code = 130 if self._signals.received else self.ending.exit_code
        return replace(self.ending, exit_code=exit_code, bottleneck=self._bottleneck())

    def _bottleneck(self) -> str:
        """Say who waited for whom, and at the end what evaluations took."""
        bottleneck = self._recorder.bottleneck
        took = self._evaluations.summary(self._wall_time()) if self.ending else ""
        return "; ".join(filter(None, (bottleneck.sentence if bottleneck else "", took)))

    def salvage(self) -> None:
        """Save what has been learned when acting failed: new episodes will begin from there.

        Where learning failed, the weights lie between two versions: the last checkpoint stands.
        """
        if self._saving.unsaved(self.counters) > 0 and self._can_be_saved:
            self._save()
            self._write_line()

    def lost(self) -> str:
        """Say what a stop costs that did not wait for a boundary."""
        return (
            "stopped without a checkpoint of this moment: the unfinished batch, and "
            f"{self._saving.unsaved(self.counters)} env steps learned from since the last checkpoint, are lost"
        )

    # --- evaluation -----------------------------------------------------------------------------------------

    def _evaluation_due(self, before: Counters, *, finished: bool) -> bool:
        interval = self._run.evaluation_interval
        return crosses(before.env_steps, self.counters.env_steps, interval) or (finished and interval > 0)

    def _evaluate(self, *, due: bool, last: bool) -> bool:
        """Evaluate the weights if it is `due`; `last`: they are those of the end.

        Returns:
            Whether the result of an evaluation has come, of these weights or of earlier ones.
        """
        begun = monotonic()
        try:
            return self._evaluations.step(
                self._run_parts.snapshot,
                self.counters,
                self._wall_time(),
                self._during_evaluation,
                due=due,
                last=last and self._run.evaluation_interval > 0,
            )
        except _EvaluationStopped:
            self._notify("a signal stopped the evaluation under way: it has no result")
            return False
        finally:
            if due and (last or not self._evaluations.beside):
                self._run_parts.timings.add("evaluate", monotonic() - begun)

    def _during_evaluation(self) -> None:
        self._show("evaluating")
        self._saving.presence.require()
        if self._signals.received:
            raise _EvaluationStopped

    # --- metrics --------------------------------------------------------------------------------------------

    def _line_due(self, before: Counters) -> bool:
        seconds = self._run.log_every_s or (inf if self._exact else LINE_EVERY_S)
        late = self._wall_time() - self._line_at >= seconds
        return late or crosses(before.env_steps, self.counters.env_steps, self._run.log_interval)

    def _renew_counters(self) -> None:
        """Bring the counters up to this moment that do not advance with learning."""
        self.counters = replace(
            self.counters,
            wall_time_s=self._wall_time(),
            actor_restarts=self._restarts_before + self._restarts,
            evaluator_restarts=self._evaluator_restarts_before + self._evaluations.restarts,
            evaluation_s=self._evaluations.seconds,
            env_stall_max_s=max(self.counters.env_stall_max_s, self._longest_stall),
        )

    def _write_renewed_line(self) -> None:
        """Write a line of this moment."""
        self._renew_counters()
        self._write_line()

    def _write_line(self) -> None:
        self._line_at = self.counters.wall_time_s
        self.line = self._recorder.line(self.counters, self._timings())
        self._time_limit.check(self.counters.env_steps, int(self.line["episodes"] or 0))
        for callback in self._callbacks:
            answer = answer_of(callback, self.line)
            if answer == "stop":
                self._stop = self._stop or Ending("interrupted", "stopped by a callback", 0)
            elif answer:
                self._recorder.give(answer)

    def _timings(self) -> Timings:
        """Return where the time of all workers has gone."""
        timings = Timings()
        for seconds in (self._run_parts.timings.seconds, *self._spent()):
            timings.merge(seconds)
        return timings

    def _wall_time(self) -> float:
        return self._wall_time_before + monotonic() - self._begun

    def _show(self, phase: Phase, *, at_once: bool = False) -> None:
        now, phase = monotonic(), "stopping" if self._signals.received else phase
        if phase == self._shown[0] and now < self._shown[1] + SHOW_EVERY_S and not at_once:
            return
        self._shown = (phase, now)
        counters = self.counters
        known: dict[str, Any] = {key: self.line.get(key) for key in _SHOWN}
        self._progress.update(
            Status(
                env_steps=counters.env_steps,
                steps=self._run.steps,
                learning_step=counters.learning_step,
                updates=counters.updates,
                updates_refused=counters.updates_refused,
                actor_restarts=counters.actor_restarts,
                env_stall_max_s=counters.env_stall_max_s,
                phase=phase,
                timings=self._timings(),
                bottleneck=self._bottleneck(),
                **known,
            )
        )

    # --- checkpoints ----------------------------------------------------------------------------------------

    def save_start(self) -> None:
        """Save version 0, before acting begins: a run that is stopped before its next checkpoint resumes from there.

        Raises:
            ConfigError: there is no room for it.
        """
        with self._signals.patience():
            self._saving.save_start(self.counters, self._whole_state())

    def _save(self) -> None:
        """Save all that a resume needs."""
        self._show("saving")
        self._renew_counters()
        state = self._whole_state()
        with self._signals.patience():
            self._saving.save(self.counters, state, self._checkpoint_arrays())

    def _whole_state(self) -> dict[str, Any]:
        return {
            "counters": {**vars(self.counters), "acted_beyond": 0},
            "runtime": self._run_parts.config.topology(),
            "blas_kernels": blas_kernels(),
            **self._state(),
            "recorder": self._recorder.state(self._timings()),
        }

    def _save_best(self) -> None:
        """Save the weights of the last evaluation, which are the best, and nothing to go on from."""
        with self._signals.patience():
            self._saving.save_best()

    def restore(self, state: Mapping[str, Any], arrays: Tree | None) -> tuple[bool, str]:
        """Go on from a checkpoint's state, and from what it kept of the memory.

        Returns:
            Whether the episodes under way go on too, and what there is to say of the memory.
        """
        self.counters = Counters(**state["counters"])
        self._saving.go_on_from(self.counters.env_steps, state["best"])
        self._restarts_before = self.counters.actor_restarts
        self._evaluator_restarts_before = self.counters.evaluator_restarts
        self._evaluations.seconds, self._env_steps_before = self.counters.evaluation_s, self.counters.env_steps
        self._wall_time_before = self._line_at = self.counters.wall_time_s
        self._recorder.restore(state["recorder"])
        return self._go_on_from(state, arrays)


_SHOWN = (
    "episode_return_mean",
    "episode_return_min",
    "episode_return_max",
    "episode_length_mean",
    "eval_return_mean",
    "best_eval_return_mean",
    "policy_lag_min",
    "policy_lag_mean",
    "policy_lag_max",
    "utd_ratio",
    "sample_age_min",
    "sample_age_mean",
    "sample_age_max",
    "actor_wait_fraction",
    "learner_wait_fraction",
    "slots_filled",
    "gradient_staleness_min",
    "gradient_staleness_mean",
    "gradient_staleness_max",
    "memory_main_mb",
    "memory_children_mb",
)


def crosses(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for interval 0."""
    return interval > 0 and before // interval != after // interval
