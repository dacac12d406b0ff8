"""The conductor: around each learning step it decides what else is to be done, whatever the runtime.

It keeps the counters, sets the hold that brings a run to quiescence, evaluates, lets checkpoints be saved (saving.py),
writes metrics and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from time import monotonic
from typing import Any, Literal

from offbeat.checkpoint import CheckpointStore
from offbeat.envs.make import make_envs
from offbeat.errors import RunFailed
from offbeat.metrics.progress import Phase, Progress, Status
from offbeat.metrics.recorder import Counters, Recorder
from offbeat.metrics.timings import Timings
from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.runtime.acting import Acting
from offbeat.runtime.saving import Saving
from offbeat.runtime.signals import StopSignals
from offbeat.runtime.wiring import Parts
from offbeat.threads import blas_kernels
from offbeat.types import Tree
from offbeat.workers.evaluator import EVALUATION_ENVS, evaluate
from offbeat.workers.learner import Learned

LINES_PER_RUN = 200
"""Metrics lines over `steps`, at least."""
LINE_EVERY_S = 10.0
"""Seconds between metrics lines, at most, as far as learning steps end that often."""
SHOW_EVERY_S = 0.1
"""Seconds between looks at the run that are offered to whoever shows it, at least."""

Callback = Callable[[dict[str, Any]], Literal["stop"] | None]
"""Is given each metrics line; may answer 'stop' to stop at the next boundary."""


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    state: Literal["finished", "interrupted"]
    reason: str
    exit_code: int
    verdict: str = ""
    """Who waited for whom, over the whole run."""


class _EvaluationStopped(Exception):
    """A signal came during an evaluation."""


class Conductor:
    """See the module's docstring."""

    def __init__(
        self,
        parts: Parts,
        acting: Acting,
        store: CheckpointStore,
        recorder: Recorder,
        progress: Progress,
        tell: Callable[[str], None],
        signals: StopSignals,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._parts, self._acting, self._run = parts, acting, parts.config.run
        self._recorder, self._progress = recorder, progress
        self._signals, self._callbacks = signals, callbacks
        self._saving = Saving(parts, store, tell)
        self.counters = Counters()
        self.ending: Ending | None = None
        self._hold: int | None = None
        self._in_step = False
        """Whether a learning step is under way: the weights are then between two versions."""
        self._stop: Ending | None = None
        self._wall_time_before = 0.0
        self._restarts_before = 0
        self._begun = monotonic()
        self._line_at = 0.0
        self._shown: tuple[Phase, float] = ("training", 0.0)
        """Which phase was shown last, and when."""
        self.line: dict[str, Any] = {}
        """The last metrics line."""

    def begin_anew(self) -> None:
        """Begin a run: its weights are version 0, and every actor begins new episodes."""
        self._parts.learner.publish(0)
        self._acting.begin([None] * self._parts.config.runtime.actors)

    def begin(self) -> None:
        """Actors have begun: show how things stand, and let the clock run from here."""
        self._begun = monotonic()
        self._show("training")

    # --- around a learning step -----------------------------------------------------------------------------

    @property
    def learned(self) -> int:
        """Learning steps 0 .. learned-1 are finished."""
        return self.counters.learning_step

    @property
    def training_progress(self) -> float:
        """From 0 to 1 over `steps`: what schedules run over."""
        return min(1.0, self.counters.env_steps / self._run.steps)

    def before_learning(self, env_steps: int) -> None:
        """Before the next learning step, which will add `env_steps`: set the hold, if something needs quiescence.

        It must be set before the step is finished, as that would allow tickets beyond it. The end of the run needs
        it too: what lies beyond would never be learned from.
        """
        after = self.counters.env_steps + env_steps
        self._stop = self._stop or self._wanted_stop(after)
        checkpoint = _crosses(self.counters.env_steps, after, self._run.checkpoint_interval)
        if self._hold is None and (self._stop or checkpoint or after >= self._run.steps):
            self._hold = self._parts.pace.hold(self.learned)
            self._acting.hold(self._hold)
        self._in_step = True

    def _wanted_stop(self, env_steps: int) -> Ending | None:
        run = self._run
        if self._signals.received:
            return Ending("interrupted", f"stopped by {self._signals.received.name}", 130)
        if run.stop_at is not None and env_steps >= run.stop_at:
            return Ending("interrupted", f"stopped at --stop-at {run.stop_at}", 0)
        if run.time is not None and self._wall_time() >= run.time:
            return Ending("interrupted", f"stopped after --time {run.time:g} seconds", 0)
        return None

    def after_learning(self, learned: Learned, slots_filled: float) -> None:
        """Count a finished learning step, then do what is due: evaluate, write, save, end."""
        self._in_step = False
        before, self.counters = self.counters, self._count(learned)
        self._recorder.episodes(learned.episode_returns, learned.episode_lengths)
        self._recorder.learned({**learned.metrics, "slots_filled": slots_filled})
        finished = self.counters.env_steps >= self._run.steps
        evaluated = self._evaluation_due(before, finished) and self._evaluate()
        if evaluated or self._line_due(before):  # before the checkpoint: a resume begins after this line
            self._renew_counters()
            self._write_line()
        if finished:
            self.ending = Ending("finished", f"learned from {self.counters.env_steps} env steps", 0)
        elif self._quiescent:
            self.ending = self._stop
            if not self._stop:
                self._save()
                self._hold = None
                self._acting.hold(None)
        elif self._saving.best_is_unsaved:
            with self._signals.patience():
                self._saving.save_best(self.counters)
        self._show("training")

    @property
    def _quiescent(self) -> bool:
        """Whether every ticket that may begin has been learned from."""
        return self._parts.pace.tickets_of(self.learned).start == self._hold

    def _count(self, learned: Learned) -> Counters:
        counters = self.counters
        env_steps = counters.env_steps + learned.env_steps
        return replace(
            counters,
            env_steps=env_steps,
            frames=env_steps * self._parts.env.frame_skip,
            learning_step=counters.learning_step + 1,
            updates=counters.updates + learned.updates,
            updates_refused=counters.updates_refused + learned.refused,
        )

    # --- evaluation -----------------------------------------------------------------------------------------

    def _evaluation_due(self, before: Counters, finished: bool) -> bool:
        interval = self._run.evaluation_interval
        return _crosses(before.env_steps, self.counters.env_steps, interval) or (finished and interval > 0)

    def _evaluate(self) -> bool:
        """Evaluate the newest version on envs and seeds of its own; return whether no signal stopped it."""
        begun = monotonic()
        policy = NumpyPolicy(self._parts.policy)
        policy.load(self._parts.weights.read(self.learned))
        episodes, seed = self._run.eval_episodes, self._run.seed
        envs = make_envs(self._run.env, min(episodes, EVALUATION_ENVS), seed=seed, role="evaluation")
        try:
            result = evaluate(policy, envs, episodes=episodes, seed=seed, on_step=self._during_evaluation)
        except _EvaluationStopped:
            return False
        finally:
            envs.close()
            self._parts.timings.add("evaluate", monotonic() - begun)
        self._recorder.evaluated(result.return_mean, result.return_std, result.length_mean)
        self._saving.evaluated(result.return_mean)
        return True

    def _during_evaluation(self, _ended: int) -> None:
        self._show("evaluating")
        if self._signals.received:
            raise _EvaluationStopped

    # --- metrics --------------------------------------------------------------------------------------------

    def _line_due(self, before: Counters) -> bool:
        every = max(1, self._run.steps // LINES_PER_RUN)
        exact = self._parts.config.runtime.lag == "exact"  # then no line comes at a moment that the clock chose
        late = not exact and self._wall_time() - self._line_at >= LINE_EVERY_S
        return late or _crosses(before.env_steps, self.counters.env_steps, every)

    def _renew_counters(self) -> None:
        """Bring the counters up to this moment that do not advance with learning."""
        self.counters = replace(
            self.counters,
            wall_time_s=self._wall_time(),
            actor_restarts=self._restarts_before + self._acting.restarts,
            env_stall_max_s=max(self.counters.env_stall_max_s, self._acting.longest_stall),
        )

    def _write_line(self) -> None:
        self._line_at = self.counters.wall_time_s
        self.line = self._recorder.line(self.counters, self._timings())
        for callback in self._callbacks:
            if callback(dict(self.line)) == "stop":
                self._stop = self._stop or Ending("interrupted", "stopped by a callback", 0)

    def _timings(self) -> Timings:
        """Return where the time of all workers has gone."""
        timings = Timings()
        for seconds in (self._parts.timings.seconds, *self._acting.spent()):
            timings.merge(seconds)
        return timings

    def _wall_time(self) -> float:
        return self._wall_time_before + monotonic() - self._begun

    def _show(self, phase: Phase, *, at_once: bool = False) -> None:
        now, phase = monotonic(), "stopping" if self._signals.received else phase
        if phase == self._shown[0] and now < self._shown[1] + SHOW_EVERY_S and not at_once:
            return
        self._shown = (phase, now)
        counters, verdict = self.counters, self._recorder.verdict
        known: dict[str, Any] = {key: self.line.get(key) for key in _SHOWN}
        self._progress.update(
            Status(
                env_steps=counters.env_steps,
                steps=self._run.steps,
                learning_step=self.learned,
                updates=counters.updates,
                updates_refused=counters.updates_refused,
                actor_restarts=counters.actor_restarts,
                env_stall_max_s=counters.env_stall_max_s,
                phase=phase,
                timings=self._timings(),
                verdict=verdict.sentence if verdict else "",
                **known,
            )
        )

    # --- checkpoints ----------------------------------------------------------------------------------------

    def close(self) -> Ending:
        """Save the end of the run, write its last line, and return how it ended."""
        if self.ending is None:
            raise RuntimeError("the runtime returned before the run had ended")
        self._signals.at_rest()
        acted, committed = self._acting.acted, self._parts.pace.acted_before_learn
        beyond = takewhile(lambda step: committed(step) <= acted, count(self.learned))
        self.counters = replace(
            self.counters, acted_beyond=sum(self._parts.learner.valid_rows(step) for step in beyond)
        )
        self._save()
        self._write_line()
        self._recorder.conclude(self._timings(), monotonic() - self._begun)
        self._show("saving", at_once=True)
        if unsaved := self._saving.unsaved(self.counters):
            raise RunFailed(
                f"the end of the run could not be saved, see log.txt: {unsaved} env steps since the last "
                "checkpoint are lost; make room on the disk and type offbeat resume with this run's directory"
            )
        exit_code = 130 if self._signals.received else self.ending.exit_code
        verdict = self._recorder.verdict
        return replace(self.ending, exit_code=exit_code, verdict=verdict.sentence if verdict else "")

    def salvage(self) -> None:
        """Save what has been learned when acting failed: new episodes will begin from there.

        Where learning failed, the weights lie between two versions: the last checkpoint stands.
        """
        if self._saving.unsaved(self.counters) and not self._in_step:
            self._save()
            self._write_line()

    def lost(self) -> str:
        """Say what a stop costs that did not wait for a boundary."""
        return (
            "stopped without a checkpoint of this moment: the unfinished batch, and "
            f"{self._saving.unsaved(self.counters)} env steps learned from since the last checkpoint, are lost"
        )

    def _save(self) -> None:
        """Save all that a resume needs."""
        self._show("saving")
        self._renew_counters()
        with self._signals.patience():
            self._saving.save(self.counters, self._state())

    def _state(self) -> dict[str, Any]:
        """Return what resuming needs; states of envs only where every acted ticket has been learned from."""
        return {
            "counters": {**vars(self.counters), "acted_beyond": 0},
            "runtime": self._parts.config.layout(),
            "blas_kernels": blas_kernels(),
            "learner": self._parts.learner.state(),
            "versions": {str(version): vector for version, vector in self._parts.weights.kept().items()},
            "actors": self._acting.snapshots() if self._quiescent else [None] * self._parts.config.runtime.actors,
            "recorder": self._recorder.state(self._timings()),
            "best": self._saving.best,
        }

    def restore(self, state: dict[str, Any], kept: Tree | None) -> tuple[bool, str]:
        """Go on from a checkpoint's state, and from what it kept of the memory.

        Returns:
            Whether the episodes under way go on too, and what there is to say of the memory.
        """
        self.counters = Counters(**state["counters"])
        self._saving.go_on_from(self.counters.env_steps, state["best"])
        self._restarts_before = self.counters.actor_restarts
        self._wall_time_before = self._line_at = self.counters.wall_time_s
        self._recorder.restore(state["recorder"])
        self._parts.learner.restore(state["learner"])
        memory = self._parts.learner.take_over(kept, self.learned)
        for version, vector in sorted(state["versions"].items(), key=lambda item: int(item[0])):
            self._parts.weights.open(int(version))[:] = vector
            self._parts.weights.commit(int(version))
        continued = None not in state["actors"]
        self._acting.begin(state["actors"] if continued else [None] * len(state["actors"]))
        return continued, memory


_SHOWN = (
    "episode_return_mean",
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
)


def _crosses(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for interval 0."""
    return interval > 0 and before // interval != after // interval
