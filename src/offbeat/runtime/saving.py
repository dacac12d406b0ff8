"""Saving: which checkpoints are written, and which weights are the best so far."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from offbeat.core.errors import ConfigError
from offbeat.core.types import Tree
from offbeat.metrics.recorder import Counters
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy, load
from offbeat.runtime.parts import Parts, PolicyParts
from offbeat.runtime.watchers import Watchers

SCORE = "eval_return_mean"
"""In policy.json of a best checkpoint: the mean return that made it the best."""


class _Evaluated(NamedTuple):
    """Weights, and what they reached."""

    return_mean: float
    weights: Mapping[str, Tree]
    """By policy."""
    counters: Counters
    """How far the run had come with them."""


class Saving:
    """Writes the checkpoints of a run. A full disk costs a checkpoint, not the run: the last one is intact."""

    def __init__(self, run_parts: Parts, watchers: Watchers) -> None:
        run = run_parts.config.run
        self._policies = run_parts.policies
        self._run_parts, self._directory, self._warn = run_parts, watchers.directory, watchers.warn
        self._store = watchers.directory.store(run.checkpoints_kept)
        self.presence = watchers.directory.presence()
        self._every_s = run.checkpoint_every_s
        self._tried_at = monotonic()
        self._best: float | None = None
        """The mean return of the evaluation whose weights are saved as the best."""
        self._new_best: _Evaluated | None = None
        """Weights with a higher one, which are not yet saved."""
        self._saved_env_steps = 0

    def go_on_from(self, env_steps: int, best: float | None) -> None:
        """The run goes on from a checkpoint after so many env steps, when the best had this mean return.

        A best that was saved later stays the best, until an evaluation is better: what crashed after it loses it not.
        """
        score = self._score_of_best()
        self._saved_env_steps, self._best = env_steps, best if score is None else score

    def _score_of_best(self) -> float | None:
        """Return the mean return of the best checkpoint; None if there is none, or its return is not known."""
        with suppress(ConfigError):  # it is damaged
            score = next(iter(load(self._store.path("best")).policies.values())).about.get(SCORE)
            return float(score) if isinstance(score, int | float) else None
        return None

    def evaluated(self, return_mean: float, weights: Mapping[str, Tree], counters: Counters) -> None:
        """These weights, with which the run had come so far, have this mean return: they may be the best."""
        if self._best is None or return_mean > self._best:
            self._new_best = _Evaluated(return_mean, weights, counters)

    @property
    def best_is_unsaved(self) -> bool:
        """Whether the weights that were evaluated last are the best, and not yet saved."""
        return self._new_best is not None

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due by the clock."""
        return 0 < self._every_s <= monotonic() - self._tried_at

    def unsaved(self, counters: Counters) -> int:
        """Return the env steps that have been learned from since the last checkpoint to resume from."""
        return counters.env_steps - self._saved_env_steps

    def lost(self, counters: Counters) -> str:
        """Return a message about what a stop costs that did not wait for a boundary."""
        return (
            "stopped without a checkpoint of this moment: the unfinished batch, and "
            f"{self.unsaved(counters)} env steps learned from since the last checkpoint, are lost"
        )

    def save_start(self, counters: Counters, state: dict[str, Any]) -> None:
        """Save version 0.

        Raises:
            ConfigError: it could not be written, so the run had better not begin.
            RunDirectoryGone: the directory is not there any more.
        """
        try:
            self._write(counters, self._run_parts.snapshot(), {**state, "best": None}, None, ("latest",))
        except OSError as error:
            self.presence.require(at_once=True)
            raise ConfigError(
                f"a checkpoint cannot be written to the run directory {self._directory.path} "
                f"({error.strerror or error}), so the run does not start: free some disk space, or pass another "
                "directory with --run-dir"
            ) from None

    def save(self, counters: Counters, state: dict[str, Any], arrays: Tree | None) -> None:
        """Save all that a resume needs. It is the best checkpoint too, if its weights are the best and unsaved."""
        if self._new_best and self._new_best.counters.env_steps != counters.env_steps:
            self.save_best()
        names = ("best", "latest") if self._new_best else ("latest",)
        best = self._new_best.return_mean if self._new_best else self._best
        weights = self._run_parts.snapshot()
        if self._try_to_write(counters, weights, {**state, "best": best}, arrays, names):
            self._saved_env_steps = counters.env_steps

    def save_best(self) -> None:
        """Save the weights that were evaluated last, and nothing to go on from."""
        assert self._new_best is not None
        self._try_to_write(self._new_best.counters, self._new_best.weights, None, None, ("best",))

    def _try_to_write(self, *arguments: Any) -> bool:
        """Write a checkpoint; return whether it could be.

        Raises:
            RunDirectoryGone: the run directory is no longer there.
        """
        best = self._new_best
        try:
            self._write(*arguments)
        except OSError as error:
            self.presence.require(at_once=True)
            self._warn(
                f"a checkpoint could not be written ({error}): the run continues, and the previous checkpoint is intact"
            )
            return False
        finally:
            self._new_best = None  # the weights will have changed before the next save
        if best:
            self._best = best.return_mean
        return True

    def _write(
        self,
        counters: Counters,
        weights: Mapping[str, Tree],
        state: dict[str, Any] | None,
        arrays: Tree | None,
        names: tuple[str, ...],
    ) -> None:
        begun = monotonic()
        policies = {own.name: SavedPolicy(weights[own.name], self._about(own, counters)) for own in self._policies}
        checkpoint = Checkpoint(policies, state, arrays)
        try:
            if state is not None:
                self._directory.sync_metrics()
            self._store.save(counters.env_steps, checkpoint, names)
        finally:
            self._run_parts.timings.add("checkpoint", monotonic() - begun)
            if state is not None:
                self._tried_at = monotonic()

    def _about(self, policy: PolicyParts, counters: Counters) -> dict[str, Any]:
        """Return what a policy is, and how it came to be, as JSON."""
        run = self._run_parts.config.run
        return {
            "env": run.env,
            "env_config": self._run_parts.config.tables()["env"],
            "algorithm": run.algorithm,
            "env_steps": counters.env_steps,
            "learning_step": counters.learning_step,
            "updates": counters.updates,
            **({SCORE: self._new_best.return_mean} if self._new_best else {}),
            "policy": policy.spec.to_json(),
        }
