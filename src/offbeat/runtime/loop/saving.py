"""Saving: writes the checkpoints of a run and tracks its best weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.files import remedy_for
from offbeat.core.types import Tree
from offbeat.metrics.counters import Counters
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy, TooLarge, load
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.parts import Parts, PolicyParts

SCORE = "eval_return_mean"
"""Key in policy.json: mean return of the evaluation of these weights, if it had ended when they were saved. Of several
policies all have that of those that learn together: the checkpoint `best` is chosen by it."""


class _Evaluated(NamedTuple):
    """Weights with the mean return of their evaluation."""

    return_mean: float
    weights: Mapping[str, Tree]
    """By policy. Empty if the run was resumed from a checkpoint with these weights."""
    counters: Counters
    """Counters of the run at these weights."""

    def is_at(self, counters: Counters) -> bool:
        """Whether these are the weights of the run at the counters."""
        return numbers_of(self.counters) == numbers_of(counters)


class _Save(NamedTuple):
    """What is written to a checkpoint."""

    counters: Counters
    """Counters of the run at the weights."""
    weights: Mapping[str, Tree]
    """By policy."""
    state: dict[str, Any] | None
    """The state that a resume needs; None: the weights only."""
    arrays: Tree | None
    """The arrays of a replay, if it is saved."""
    names: tuple[str, ...]
    """The names under which the checkpoint is found: best, latest."""


class Saving:
    """Writes the checkpoints of a run. If writing fails, training continues and the last checkpoint stays intact."""

    def __init__(self, parts: Parts, services: RunServices) -> None:
        run = parts.config.run
        self._policies = parts.policies
        self._parts, self._directory, self._warn = parts, services.directory, services.warn
        self._store = services.directory.checkpoint_store(run.checkpoints_kept)
        self.presence = services.directory.presence()
        self._every_s = run.checkpoint_every_s
        self._tried_at = monotonic()
        self._best: float | None = None
        """Mean return of the saved best weights."""
        self._last: _Evaluated | None = None
        """The weights that were evaluated last. After a resume, those of its checkpoint if they were evaluated."""
        self._new_best: _Evaluated | None = None
        """Weights with a higher mean return that are not saved yet. Others may have been evaluated since."""
        self.best_is_due = False
        """Whether the best weights are to be saved now. If that fails, the next checkpoint tries it again."""
        self._saved_env_steps = 0
        self._written: list[Path] = []
        self.failure = self.remedy = ""
        """Why the last checkpoint that could not be written was not, and what to do about it."""

    def take_written(self) -> list[Path]:
        """Return the directories of the checkpoints that were written since the last call, the oldest first."""
        written, self._written = self._written, []
        return written

    def restore(self, counters: Counters, score: float | None) -> None:
        """Continue a run from a checkpoint. If a better one was saved after it, before a crash, that stays the best.

        If the best checkpoint cannot be read, the weights of the next evaluation replace it.

        Args:
            counters: the counters of the checkpoint.
            score: mean return of its weights; None if it is not known.
        """
        self._saved_env_steps, self._best = counters.env_steps, self._score_of_best()
        self._last = None if score is None else _Evaluated(score, {}, counters)

    def _score_of_best(self) -> float | None:
        """Return the mean return of the best checkpoint; None if there is none or its mean return is unknown."""
        if not (best := self._directory.checkpoints_folder / "best").exists():
            return None
        try:
            return score_of(load(best, with_state=False))
        except ConfigError as error:
            self._warn(f"the best checkpoint is replaced by the weights of the next evaluation, because {error}")
            return None

    def evaluated(self, return_mean: float, weights: Mapping[str, Tree], counters: Counters) -> None:
        """Note the result of an evaluation: if it is the best so far, its weights are saved later."""
        self._last = _Evaluated(return_mean, weights, counters)
        best = self._new_best.return_mean if self._new_best else self._best
        if best is None or return_mean > best:
            self._new_best, self.best_is_due = self._last, True

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due by time (`checkpoint_every_s`)."""
        return 0 < self._every_s <= monotonic() - self._tried_at

    def unsaved(self, counters: Counters) -> int:
        """Return the number of env steps that were learned from since the last checkpoint to resume from."""
        return counters.env_steps - self._saved_env_steps

    def lost(self, counters: Counters) -> str:
        """Return a message about the env steps that are lost if the run stops now, without a boundary."""
        unsaved, batch = self.unsaved(counters), "no checkpoint of this moment was saved: the unfinished batch"
        if not unsaved:
            return f"{batch} is lost, and the last checkpoint has all that was learned before"
        return (
            f"{batch}, and {unsaved} env steps learned from since the last checkpoint, are lost. With a smaller "
            "checkpoint_every fewer can be lost"
        )

    def save_start(self, counters: Counters, state: dict[str, Any]) -> None:
        """Save the checkpoint of version 0.

        Raises:
            ConfigError: it cannot be written, or a resume would refuse it. So the run does not start.
            RunDirectoryGone: the run directory does not exist any more.
        """
        try:
            self._write(_Save(counters, self._parts.weights(), state, None, ("latest",)))
            self._written.clear()  # the callbacks have not started yet
        except TooLarge as error:
            raise ConfigError(
                f"a checkpoint of this run cannot be written, so the run does not start: {error}"
            ) from None
        except OSError as error:
            self.presence.require(at_once=True)
            raise ConfigError(
                f"a checkpoint cannot be written to the run directory {self._directory.path} "
                f"({error.strerror or error}), so the run does not start: "
                f"{remedy_for(error, 'pass another directory with --run-dir')}"
            ) from None

    def save(self, counters: Counters, state: dict[str, Any], arrays: Tree | None) -> None:
        """Save a checkpoint to resume from. Also save it as the best one, if its weights are the best and not saved."""
        if self._new_best and not self._new_best.is_at(counters):
            self.save_best()
        best = self._new_best if self._new_best and self._new_best.is_at(counters) else None
        names = ("best", "latest") if best else ("latest",)
        if self._try_to_write(_Save(counters, self._parts.weights(), state, arrays, names)):
            self._saved_env_steps = counters.env_steps

    def save_best(self) -> None:
        """Save the new best weights, without the state that a resume needs."""
        assert self._new_best is not None
        self._try_to_write(_Save(self._new_best.counters, self._new_best.weights, None, None, ("best",)))

    def _try_to_write(self, save: _Save) -> bool:
        """Write a checkpoint; return whether it was written.

        Raises:
            RunDirectoryGone: the run directory does not exist any more.
        """
        self.best_is_due = False
        try:
            self._write(save)
        except OSError as error:
            self.presence.require(at_once=True)
            self.failure, self.remedy = error.strerror or str(error), remedy_for(error)
            self._warn(
                f"a checkpoint could not be written ({error}): the run continues, and the previous checkpoint is intact"
            )
            return False
        if self._new_best and "best" in save.names:
            self._best, self._new_best = self._new_best.return_mean, None
        return True

    def _write(self, save: _Save) -> None:
        started = monotonic()
        numbers = numbers_of(save.counters) | self.score_at(save.counters)
        policies = {
            policy.name: SavedPolicy(save.weights[policy.name], policy_json(self._parts.config, policy, numbers))
            for policy in self._policies
        }
        checkpoint = Checkpoint(policies, save.state, save.arrays)
        try:
            if save.state is not None:
                self._directory.sync_metrics()
            self._written.append(self._stored(save.counters.env_steps, checkpoint, save.names))
        finally:
            self._parts.timings.add("checkpoint", monotonic() - started)
            if save.state is not None:
                self._tried_at = monotonic()

    def _stored(self, env_steps: int, checkpoint: Checkpoint, names: tuple[str, ...]) -> Path:
        """Write a checkpoint; without the states of the envs, if a resume would refuse it because of their size."""
        try:
            return self._store.save(env_steps, checkpoint, names)
        except TooLarge as error:
            if checkpoint.state is None or not _has_episodes(checkpoint.state):
                raise
            reduced = replace(checkpoint, state=_without_episodes(checkpoint.state))
            written = self._store.save(env_steps, reduced, names)
            self._warn(  # not before: if this fails too, the reason is in a warning of its own, of which one is shown
                f"{error}. The checkpoint was written without the states of the envs, and a run that is resumed from "
                "it starts new episodes: the large parts of the state of an env must be a few NumPy arrays"
            )
            return written

    def score_at(self, counters: Counters) -> dict[str, float]:
        """Return the mean return of the weights at the counters by its key; empty if they have not been evaluated."""
        evaluated = (self._new_best, self._last)
        return next(({SCORE: each.return_mean} for each in evaluated if each and each.is_at(counters)), {})


def _has_episodes(state: Mapping[str, Any]) -> bool:
    """Whether the state of a run has a snapshot of an actor or of a lock-free worker."""
    snapshots = [*state.get("actors", ()), *(worker["actor"] for worker in state.get("workers", ()))]
    return any(snapshot is not None for snapshot in snapshots)


def _without_episodes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a run without the snapshots of its actors or of its lock-free workers."""
    actors = {"actors": [None for _ in state["actors"]]} if "actors" in state else {}
    workers = {"workers": [{**worker, "actor": None} for worker in state["workers"]]} if "workers" in state else {}
    return {**state, **actors, **workers}


def score_of(checkpoint: Checkpoint) -> float | None:
    """Return the mean return of the weights of a checkpoint; None if it is unknown."""
    score = next(iter(checkpoint.policies.values())).about.get(SCORE)
    return float(score) if isinstance(score, int | float) else None


def numbers_of(counters: Counters) -> dict[str, float]:
    """Return the numbers of a run that are saved with its weights."""
    return {name: getattr(counters, name) for name in ("env_steps", "learning_step", "updates")}


def policy_json(config: Config, policy: PolicyParts, numbers: Mapping[str, float]) -> dict[str, Any]:
    """Return the content of policy.json: the policy's spec, and the env and training that it comes from.

    Args:
        config: all settings of the run.
        policy: the policy.
        numbers: env steps, learning steps and other numbers of the run at these weights, by name.
    """
    return {
        "env": config.run.env,
        "env_config": config.tables()["env"],
        "algorithm": config.run.algorithm,
        **numbers,
        **({"agents": list(policy.env_spec.agents)} if policy.env_spec.agents else {}),
        **({"trials": asdict(config.trials)} if config.trials else {}),
        **({"sides": list(map(list, policy.sides))} if policy.sides else {}),
        "policy": policy.spec.to_json(),
    }
