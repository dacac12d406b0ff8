"""The conductor: around each learning step it decides what else is to be done, whatever the runtime.

It keeps the counters, sets the hold that brings a run to quiescence, evaluates, takes checkpoints, writes
metrics and ends the run. A runtime asks it only: may this ticket begin, and has the run ended?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal

from offbeat.checkpoint import Checkpoint, CheckpointStore
from offbeat.envs.make import make_envs
from offbeat.errors import RunFailed
from offbeat.metrics.progress import Phase, Progress, Status
from offbeat.metrics.recorder import Counters, Recorder
from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.runtime.signals import StopSignals
from offbeat.runtime.wiring import Parts
from offbeat.workers.evaluator import EVALUATION_ENVS, evaluate
from offbeat.workers.learner import Learned

LINES_PER_RUN = 200
"""Metrics lines over `steps`, at least."""
LINE_EVERY_S = 10.0
"""Seconds between metrics lines, at most, as far as learning steps end that often."""

Callback = Callable[[dict[str, Any]], Literal["stop"] | None]
"""Is given each metrics line; may answer 'stop' to stop at the next boundary."""


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    state: Literal["finished", "interrupted"]
    reason: str
    exit_code: int


class _EvaluationStopped(Exception):
    """A signal came during an evaluation."""


class Conductor:
    """See the module's docstring."""

    def __init__(
        self,
        parts: Parts,
        store: CheckpointStore,
        recorder: Recorder,
        progress: Progress,
        tell: Callable[[str], None],
        signals: StopSignals,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._parts, self._run = parts, parts.config.run
        self._store, self._recorder, self._progress = store, recorder, progress
        self._tell, self._signals, self._callbacks = tell, signals, callbacks
        self.counters = Counters()
        self.acted = 0
        """Tickets 0 .. acted-1 are committed."""
        self.ending: Ending | None = None
        self._hold: int | None = None
        self._stop: Ending | None = None
        self._best: float | None = None
        """The highest mean return of an evaluation."""
        self._best_is_new = False
        """Whether the weights are the best, and not yet saved as such."""
        self._saved_env_steps = 0
        self._wall_time_before = 0.0
        self._begun = monotonic()
        self._line_at = 0.0
        self.line: dict[str, Any] = {}
        """The last metrics line."""

    def begin(self) -> None:
        """Show how things stand before the first ticket."""
        self._show("training")

    # --- what a runtime asks --------------------------------------------------------------------------------

    @property
    def learned(self) -> int:
        """Learning steps 0 .. learned-1 are finished."""
        return self.counters.learning_step

    @property
    def training_progress(self) -> float:
        """From 0 to 1 over `steps`: what schedules run over."""
        return min(1.0, self.counters.env_steps / self._run.steps)

    def admits(self, ticket: int) -> bool:
        """Whether `ticket` may begin, as far as stops and checkpoints are concerned."""
        return self._hold is None or ticket < self._hold

    def before_learning(self, env_steps: int) -> None:
        """Before the next learning step, which will add `env_steps`: set the hold, if something needs quiescence.

        It must be set before the step is finished, as that would allow tickets beyond it.
        """
        after = self.counters.env_steps + env_steps
        self._stop = self._stop or self._wanted_stop(after)
        checkpoint = _crosses(self.counters.env_steps, after, self._run.checkpoint_interval)
        if self._hold is None and after < self._run.steps and (self._stop or checkpoint):
            self._hold = self._parts.pace.hold(self.learned)

    def _wanted_stop(self, env_steps: int) -> Ending | None:
        run = self._run
        if self._signals.received:
            return Ending("interrupted", f"stopped by {self._signals.received.name}", 130)
        if run.stop_at is not None and env_steps >= run.stop_at:
            return Ending("interrupted", f"stopped at --stop-at {run.stop_at}", 0)
        if run.time is not None and self._wall_time() >= run.time:
            return Ending("interrupted", f"stopped after --time {run.time:g} seconds", 0)
        return None

    def after_learning(self, learned: Learned) -> None:
        """Count a finished learning step, then do what is due: evaluate, write, save, end."""
        before, self.counters = self.counters, self._count(learned)
        self._recorder.episodes(learned.episode_returns, learned.episode_lengths)
        self._recorder.learned(learned.metrics)
        finished = self.counters.env_steps >= self._run.steps
        quiescent = self._hold is not None and self.learned * self._parts.pace.unrolls_per_batch == self._hold
        evaluated = self._evaluation_due(before, finished) and self._evaluate()
        if evaluated or self._line_due(before):  # before the checkpoint: a resume begins after this line
            self._write_line()
        if finished:
            exit_code = 130 if self._signals.received else 0
            self.ending = Ending("finished", f"learned from {self.counters.env_steps} env steps", exit_code)
        elif quiescent:
            self._hold, self.ending = None, self._stop
            if not self._stop:
                self._save(quiescent=True)
        elif self._best_is_new:
            self._save_best()
        self._show("training")

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
            wall_time_s=self._wall_time(),
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
        if self._best is None or result.return_mean > self._best:
            self._best, self._best_is_new = result.return_mean, True
        return True

    def _during_evaluation(self, _ended: int) -> None:
        self._show("evaluating")
        if self._signals.received:
            raise _EvaluationStopped

    # --- metrics --------------------------------------------------------------------------------------------

    def _line_due(self, before: Counters) -> bool:
        every = max(1, self._run.steps // LINES_PER_RUN)
        late = self._wall_time() - self._line_at >= LINE_EVERY_S
        return late or _crosses(before.env_steps, self.counters.env_steps, every)

    def _write_line(self) -> None:
        self.counters = replace(self.counters, wall_time_s=self._wall_time())
        self._line_at = self.counters.wall_time_s
        self.line = self._recorder.line(self.counters, self._parts.timings)
        for callback in self._callbacks:
            if callback(dict(self.line)) == "stop":
                self._stop = self._stop or Ending("interrupted", "stopped by a callback", 0)

    def _wall_time(self) -> float:
        return self._wall_time_before + monotonic() - self._begun

    def _show(self, phase: Phase) -> None:
        known = {key: self.line.get(key) for key in _SHOWN}
        self._progress.update(
            Status(
                env_steps=self.counters.env_steps,
                steps=self._run.steps,
                learning_step=self.learned,
                updates=self.counters.updates,
                updates_refused=self.counters.updates_refused,
                phase="stopping" if self._signals.received else phase,
                timings=self._parts.timings,
                **known,
            )
        )

    # --- checkpoints ----------------------------------------------------------------------------------------

    def close(self) -> Ending:
        """Save the end of the run, write its last line, and return how it ended."""
        if self.ending is None:
            raise RuntimeError("the runtime returned before the run had ended")
        pace = self._parts.pace
        beyond = range(self.learned, self.acted // pace.unrolls_per_batch)
        self.counters = replace(
            self.counters, acted_beyond=sum(self._parts.learner.valid_rows(step) for step in beyond)
        )
        self._save(quiescent=self.acted == self.learned * pace.unrolls_per_batch)
        self._write_line()
        if self._unsaved:
            raise RunFailed(
                f"the end of the run could not be saved, see log.txt: {self._unsaved} env steps since the last "
                "checkpoint are lost; make room on the disk and type offbeat resume with this run's directory"
            )
        return self.ending

    def salvage(self) -> None:
        """Save what has been learned when acting failed: new episodes will begin from there."""
        if self._unsaved:
            self._save(quiescent=False)
            self._write_line()

    def lost(self) -> str:
        """Say what a stop costs that did not wait for a boundary."""
        return (
            f"stopped without a checkpoint of this moment: the unfinished batch, and {self._unsaved} env steps learned "
            "from since the last checkpoint, are lost"
        )

    @property
    def _unsaved(self) -> int:
        """Env steps that have been learned from since the last checkpoint to resume from."""
        return self.counters.env_steps - self._saved_env_steps

    def _save(self, *, quiescent: bool) -> None:
        """Save all that a resume needs; the same checkpoint is the best too, if the weights are."""
        self._show("saving")
        self.counters = replace(self.counters, wall_time_s=self._wall_time())
        names = ("best", "latest") if self._best_is_new else ("latest",)
        self._write(Checkpoint(self._parts.algorithm.weights(), self._policy_json(), self._state(quiescent)), names)

    def _save_best(self) -> None:
        """Save the weights alone: where the run is not quiescent, it cannot be resumed."""
        self._write(Checkpoint(self._parts.algorithm.weights(), self._policy_json(), None), ("best",))

    def _write(self, checkpoint: Checkpoint, names: tuple[str, ...]) -> None:
        """Write a checkpoint; if that fails, as on a full disk, say so and go on: the last one is intact."""
        begun = monotonic()
        self._best_is_new = False
        try:
            self._store.save(self.counters.env_steps, checkpoint, names)
            if checkpoint.state is not None:
                self._saved_env_steps = self.counters.env_steps
        except OSError as error:
            self._tell(f"a checkpoint could not be written ({error}): the run goes on, and the previous one is intact")
        finally:
            self._parts.timings.add("checkpoint", monotonic() - begun)

    def _policy_json(self) -> dict[str, Any]:
        counters = self.counters
        return {
            "env": self._run.env,
            "algorithm": self._run.algorithm,
            "env_steps": counters.env_steps,
            "learning_step": counters.learning_step,
            "updates": counters.updates,
            "policy": self._parts.policy.to_json(),
        }

    def _state(self, quiescent: bool) -> dict[str, Any]:
        """Return what resuming needs; states of envs only where every acted ticket has been learned from."""
        return {
            "counters": {**vars(self.counters), "acted_beyond": 0},
            "runtime": self._parts.config.tables()["runtime"],
            "learner": self._parts.learner.state(),
            "versions": {str(version): vector for version, vector in self._parts.weights.kept().items()},
            "actors": [actor.snapshot() if quiescent else None for actor in self._parts.actors],
            "recorder": self._recorder.state(),
            "best": self._best,
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Go on from a checkpoint's state; return whether the episodes under way go on too."""
        self.counters = Counters(**state["counters"])
        self._saved_env_steps = self.counters.env_steps
        self._wall_time_before = self._line_at = self.counters.wall_time_s
        self.acted = self.learned * self._parts.pace.unrolls_per_batch
        self._best = state["best"]
        self._recorder.restore(state["recorder"])
        self._parts.learner.restore(state["learner"])
        for version, vector in sorted(state["versions"].items(), key=lambda item: int(item[0])):
            self._parts.weights.open(int(version))[:] = vector
            self._parts.weights.commit(int(version))
        continued = all(snapshot is not None for snapshot in state["actors"])
        for actor, snapshot in zip(self._parts.actors, state["actors"], strict=True):
            if continued:
                actor.restore(snapshot)
            else:
                actor.begin()
        return continued


_SHOWN = (
    "episode_return_mean",
    "episode_length_mean",
    "eval_return_mean",
    "best_eval_return_mean",
    "policy_lag_min",
    "policy_lag_mean",
    "policy_lag_max",
)


def _crosses(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]; never for interval 0."""
    return interval > 0 and before // interval != after // interval
