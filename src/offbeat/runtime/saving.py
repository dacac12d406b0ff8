"""Saving: which checkpoints are written, and which weights are the best so far."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from offbeat.checkpoint import Checkpoint, CheckpointStore
from offbeat.metrics.recorder import Counters
from offbeat.runtime.wiring import Parts


class Saving:
    """Writes the checkpoints of a run. A full disk costs a checkpoint, not the run: the last one is intact."""

    def __init__(self, parts: Parts, store: CheckpointStore, tell: Callable[[str], None]) -> None:
        self._parts, self._store, self._tell = parts, store, tell
        self._best: float | None = None
        """The mean return of the evaluation whose weights are saved as the best."""
        self._new_best: float | None = None
        """That of the weights as they are now, if it is higher and they are not yet saved."""
        self._saved_env_steps = 0

    def go_on_from(self, env_steps: int, best: float | None) -> None:
        """The run goes on from a checkpoint after so many env steps."""
        self._saved_env_steps, self._best = env_steps, best

    def evaluated(self, return_mean: float) -> None:
        """The weights as they are now have this mean return: they may be the best."""
        if self._best is None or return_mean > self._best:
            self._new_best = return_mean

    @property
    def best(self) -> float | None:
        """The highest mean return of an evaluation, with the weights as they are now counted in."""
        return self._best if self._new_best is None else self._new_best

    @property
    def best_is_unsaved(self) -> bool:
        """Whether the weights as they are now are the best, and not yet saved."""
        return self._new_best is not None

    def unsaved(self, counters: Counters) -> int:
        """Return the env steps that have been learned from since the last checkpoint to resume from."""
        return counters.env_steps - self._saved_env_steps

    def save(self, counters: Counters, state: dict[str, Any]) -> None:
        """Save all that a resume needs; the same checkpoint is the best too, if the weights are."""
        names = ("best", "latest") if self.best_is_unsaved else ("latest",)
        self._write(counters, state, names)

    def save_best(self, counters: Counters) -> None:
        """Save the weights alone: where the run is not quiescent, it cannot be resumed."""
        self._write(counters, None, ("best",))

    def _write(self, counters: Counters, state: dict[str, Any] | None, names: tuple[str, ...]) -> None:
        begun = monotonic()
        kept = self._parts.learner.kept() if state is not None else None
        checkpoint = Checkpoint(self._parts.algorithm.weights(), self._policy(counters), state, kept)
        try:
            self._store.save(counters.env_steps, checkpoint, names)
            self._best = self.best
            if state is not None:
                self._saved_env_steps = counters.env_steps
        except OSError as error:
            self._tell(f"a checkpoint could not be written ({error}): the run goes on, and the previous one is intact")
        finally:
            self._new_best = None  # the weights will have changed before the next save
            self._parts.timings.add("checkpoint", monotonic() - begun)

    def _policy(self, counters: Counters) -> dict[str, Any]:
        """Return what the policy is, and how it came to be, as JSON."""
        run = self._parts.config.run
        return {
            "env": run.env,
            "algorithm": run.algorithm,
            "env_steps": counters.env_steps,
            "learning_step": counters.learning_step,
            "updates": counters.updates,
            "policy": self._parts.policy.to_json(),
        }
