"""Saving: which checkpoints are written, and which weights are the best so far."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from offbeat.checkpoint import Checkpoint, CheckpointStore
from offbeat.metrics.recorder import Counters
from offbeat.types import Tree

if TYPE_CHECKING:
    from offbeat.runtime.conductor import Conducted


class _Evaluated(NamedTuple):
    """Weights, and what they reached."""

    return_mean: float
    weights: Tree
    counters: Counters
    """How far the run had come with them."""


class Saving:
    """Writes the checkpoints of a run. A full disk costs a checkpoint, not the run: the last one is intact."""

    def __init__(self, conducted: Conducted, store: CheckpointStore, tell: Callable[[str], None]) -> None:
        self._conducted, self._store, self._tell = conducted, store, tell
        self._best: float | None = None
        """The mean return of the evaluation whose weights are saved as the best."""
        self._new_best: _Evaluated | None = None
        """Weights with a higher one, which are not yet saved."""
        self._saved_env_steps = 0

    def go_on_from(self, env_steps: int, best: float | None) -> None:
        """The run goes on from a checkpoint after so many env steps."""
        self._saved_env_steps, self._best = env_steps, best

    def evaluated(self, return_mean: float, weights: Tree, counters: Counters) -> None:
        """These weights, with which the run had come so far, have this mean return: they may be the best."""
        if self._best is None or return_mean > self._best:
            self._new_best = _Evaluated(return_mean, weights, counters)

    @property
    def best_is_unsaved(self) -> bool:
        """Whether the weights that were evaluated last are the best, and not yet saved."""
        return self._new_best is not None

    def unsaved(self, counters: Counters) -> int:
        """Return the env steps that have been learned from since the last checkpoint to resume from."""
        return counters.env_steps - self._saved_env_steps

    def save(self, counters: Counters, state: dict[str, Any], kept: Tree | None) -> None:
        """Save all that a resume needs. It is the best checkpoint too, if its weights are the best and unsaved."""
        if self._new_best and self._new_best.counters.env_steps != counters.env_steps:
            self.save_best()
        names = ("best", "latest") if self._new_best else ("latest",)
        best = self._new_best.return_mean if self._new_best else self._best
        weights = self._conducted.snapshot()
        if self._write(counters, weights, {**state, "best": best}, kept, names):
            self._saved_env_steps = counters.env_steps

    def save_best(self) -> None:
        """Save the weights that were evaluated last, and nothing to go on from."""
        assert self._new_best is not None
        self._write(self._new_best.counters, self._new_best.weights, None, None, ("best",))

    def _write(
        self,
        counters: Counters,
        weights: Tree,
        state: dict[str, Any] | None,
        kept: Tree | None,
        names: tuple[str, ...],
    ) -> bool:
        """Write a checkpoint; return whether it could be."""
        begun, best = monotonic(), self._new_best
        self._new_best = None  # the weights will have changed before the next save
        try:
            self._store.save(counters.env_steps, Checkpoint(weights, self._policy(counters), state, kept), names)
        except OSError as error:
            self._tell(f"a checkpoint could not be written ({error}): the run goes on, and the previous one is intact")
            return False
        finally:
            self._conducted.timings.add("checkpoint", monotonic() - begun)
        if best:
            self._best = best.return_mean
        return True

    def _policy(self, counters: Counters) -> dict[str, Any]:
        """Return what the policy is, and how it came to be, as JSON."""
        run = self._conducted.config.run
        return {
            "env": run.env,
            "env_config": self._conducted.config.tables()["env"],
            "algorithm": run.algorithm,
            "env_steps": counters.env_steps,
            "learning_step": counters.learning_step,
            "updates": counters.updates,
            "policy": self._conducted.policy.to_json(),
        }
