"""Going on with a run: what is checked before anything is changed, and what is changed then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.config.config import Config
from offbeat.config.runtimes import OPTIONAL_KEYS, runtime_entry
from offbeat.core.errors import ConfigError
from offbeat.core.files import stage, sync
from offbeat.core.threads import blas_kernels
from offbeat.core.types import ActionSpec, Leaf
from offbeat.run_directory.directory import RunDirectory

if TYPE_CHECKING:
    from offbeat.core.types import Tree
    from offbeat.run_directory.checkpoint import Checkpoint
    from offbeat.runtime.parts import Parts
    from offbeat.runtime.training_loop import TrainingLoop

# --- what is checked first ----------------------------------------------------------------------------------


def resumable(directory: RunDirectory, *, with_replay: bool = False) -> tuple[Checkpoint, dict[str, Any]]:
    """Read the latest checkpoint of a run, and its state.

    Raises:
        ConfigError: there is none, or it holds only weights.
    """
    from offbeat.runtime.saved_state import require_state

    saved = directory.read_checkpoint("latest", with_replay=with_replay)
    if saved.state is None:
        full = ", ".join(directory.store().full()) or "none"
        raise ConfigError(
            f"the latest checkpoint of {directory.path} holds only weights, for evaluation; of those in "
            f"{directory.checkpoints}, these can be gone on from: {full}: let the link latest mean one of them"
        )
    require_state(saved.state, directory.path)
    return saved, saved.state


def extended(config: Config, run: Path, env_steps: int, steps: int | None) -> Config:
    """Return the config to go on with: the stops of the last time no longer hold, `steps` may be more.

    Raises:
        ConfigError: nothing is left to do.
    """
    wanted = config.run.steps if steps is None else steps
    if wanted <= env_steps:
        raise ConfigError(
            f"{run} has learned from {env_steps} env steps, and steps is {wanted}, so nothing is left to do: "
            f"run offbeat resume {run} --steps {2 * env_steps}, or any number above {env_steps}"
        )
    return config.with_run(steps=wanted, stop_at=None, time=None)


def require_fit(saved: Checkpoint, parts: Parts, run: Path) -> None:
    """Refuse a checkpoint whose policy or other arrays are not those that these settings make.

    Raises:
        ConfigError: with what differs.
    """
    from offbeat.models.spec import PolicySpec

    theirs = PolicySpec.from_json(saved.policy.get("policy"))
    differences = [
        f"{field.name} is {_brief(getattr(theirs, field.name))} there and "
        f"{_brief(getattr(parts.policy, field.name))} here"
        for field in fields(PolicySpec)
        if getattr(theirs, field.name) != getattr(parts.policy, field.name)
    ]
    arrays, wanted = _shapes(saved.weights), _shapes(parts.algorithm.weights())
    if not differences and arrays != wanted:
        differences = [f"{name} is only in one of them, or of another shape" for name, _ in sorted(arrays ^ wanted)]
    if differences:
        raise ConfigError(
            f"the checkpoint of {run}, trained on {saved.policy['env']}, does not fit {parts.config.run.env} with "
            f"these settings: {'; '.join(differences)}. Use the env, the network and the normalisation that it was "
            "trained with"
        )


def _brief(value: object) -> str:
    """Say in a few words what a field of a policy's spec is."""
    if isinstance(value, ActionSpec):
        return f"{value.kind} {list(value.nvec or value.shape)}"
    if isinstance(value, tuple) and value and isinstance(value[0], Leaf):
        return ", ".join(f"{leaf.name} {list(leaf.choices or leaf.shape)}" for leaf in value)
    return str(value)


def _shapes(weights: Tree) -> set[tuple[str, tuple[int, ...]]]:
    return {(name, array.shape) for name, array in weights.items()}


_MAY_DIFFER = {"runtime", *OPTIONAL_KEYS} - {"workers", "hogwild_moments"}
"""Settings of the runtime that no part of a checkpoint belongs to."""


def require_same_kind(state: dict[str, Any], runtime: str) -> None:
    """Refuse to go on lock-free with a run that was not, and the other way round.

    Raises:
        ConfigError: each worker of a lock-free run has a part of it.
    """
    before = state["runtime"]["runtime"]
    if runtime_entry(before).workers_learn != runtime_entry(runtime).workers_learn:
        raise ConfigError(
            f"the run was in the {before} runtime, and cannot go on in {runtime}: of a lock-free run, each worker has "
            "a part. Begin a new run from this one's weights with --init-from"
        )


def require_topology(state: dict[str, Any], config: Config) -> None:
    """Refuse to go on with another topology: envs, tickets and versions belong to the one that was saved.

    Raises:
        ConfigError: with what differs.
    """
    here = config.topology()
    differences = [
        f"{key} is {value} there and {here.get(key)} here"
        for key, value in state["runtime"].items()
        if key not in _MAY_DIFFER and here.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"the checkpoint was made with another topology than config.toml says: {'; '.join(differences)}. Put "
            "these back as they were, or begin a new run from this one's weights with --init-from"
        )


# --- what is changed then -----------------------------------------------------------------------------------


class Changes:
    """What a resume changes in a run directory: the config, the end of the metrics, checkpoints of another timeline."""

    def __init__(self, directory: RunDirectory, config: Config, state: dict[str, Any]) -> None:
        from offbeat.metrics.sinks import metrics_up_to

        self._directory, self._env_steps = directory, state["counters"]["env_steps"]
        self._before = {path: _content(path) for path in (directory.status, directory.tracker)}
        metrics = metrics_up_to(directory.metrics, state["counters"]["learning_step"])
        self.metrics_size = len(metrics)
        self._after = {directory.config: config.as_toml()}
        if directory.metrics.exists():
            self._after[directory.metrics] = metrics

    def commit(self) -> None:
        """Make the changes: first all that can fail for want of room, then what replaces the old in one step each.

        Raises:
            OSError: there is no room; nothing was changed.
        """
        staged: dict[Path, Path] = {}
        try:
            for path, content in self._after.items():
                staged[path] = stage(path, content)
        except OSError:
            for new in staged.values():
                new.unlink(missing_ok=True)
            raise
        for path, new in staged.items():
            new.replace(path)
        sync(self._directory.path)
        self._directory.store().drop_beyond(self._env_steps)

    def take_back(self) -> bool:
        """Let the directory be as it was before the resume was tried, but for the log: nothing is kept of it."""
        status = self._before.pop(self._directory.status)
        if status is not None:
            self._directory.put_status(status)
        for path, content in self._before.items():
            with suppress(OSError):
                path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
        return True


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@dataclass
class Continuation:
    """Where a resume goes on from. The replay is let go of as soon as it is restored: its file is not held on to."""

    run: Path
    saved: Checkpoint
    """Without its replay."""
    state: dict[str, Any]
    replay: Tree | None

    def start(self, parts: Parts, loop: TrainingLoop) -> str:
        """Restore the parts, and let acting begin; return what there is to say of it."""
        from offbeat.runtime.saved_state import misfits_refused

        replay, self.replay = self.replay, None
        with misfits_refused(self.run):
            parts.require_like(self.state)
            parts.algorithm.load_weights(self.saved.weights)
            continued, memory = loop.restore(self.state, replay)
        del replay
        if not loop.counters.learning_step:
            return f"resumed from the start: nothing had been learned{_kernels(self.state)}"
        episodes = (
            "episodes under way go on where they were"
            if continued
            else "episodes under way were not saved: new ones begin, at a marked cut"
        )
        restored = "weights, optimizer, normalisers, schedules and random streams restored"
        dropped = "only the newest checkpoint keeps its replay" if self.saved.replay_dropped else ""
        details = "; ".join(filter(None, (restored, memory, dropped, episodes)))
        return f"resumed at {loop.counters.env_steps} env steps: {details}{_kernels(self.state)}"


def _kernels(state: dict[str, Any]) -> str:
    """Say whether BLAS computes otherwise here than where the run was saved."""
    before, now = state.get("blas_kernels"), blas_kernels()
    return f"; OpenBLAS computes with {now}, not {before}: equal to rounding, not bit for bit" * (before != now)
