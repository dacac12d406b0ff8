"""What is checked before a run is resumed: its checkpoint, and the settings that it is to have from then on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.config.changes import FROM_WEIGHTS, changed_config, fixed_settings, with_names
from offbeat.config.config import Config
from offbeat.config.runtimes import runtime_entry
from offbeat.core.errors import ConfigError
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import LATEST
from offbeat.tracking.tracker import require_tracker

if TYPE_CHECKING:
    from offbeat.run_directory.checkpoint import Checkpoint


def read_resumable(
    directory: RunDirectory, checkpoint: str = LATEST, *, with_replay: bool = False
) -> tuple[Checkpoint, dict[str, Any]]:
    """Read a checkpoint of a run, and its state.

    Args:
        directory: the run directory.
        checkpoint: latest, best or step-<12 digits>.
        with_replay: whether to read its replay too.

    Raises:
        ConfigError: there is no such checkpoint, or it has only weights.
    """
    from offbeat.runtime.loop.state_checks import require_state

    saved = directory.read_checkpoint(checkpoint, with_replay=with_replay)
    if saved.state is None:
        store = directory.checkpoint_store()
        other = store.how_to_resume(but=store.path(checkpoint).resolve().name)
        remedy = other or ", and the run has no other one: start a new run"
        raise ConfigError(
            f"the checkpoint {checkpoint} of {directory.path} has only the weights, and no run can continue from it"
            f"{remedy}"
        )
    require_state(saved.state, directory.path)
    return saved, saved.state


def config_to_resume(before: Config, run: Path, state: dict[str, Any], given: Mapping[str, object]) -> Config:
    """Return the config of the resumed run: with the given settings, and without the limits of earlier parts.

    Args:
        before: the config of the run.
        run: the run directory, for messages.
        state: the state of its checkpoint.
        given: the settings that change, by key; they may have the runtime.

    Raises:
        ConfigError: a setting cannot change, the run has already reached its end, or the state does not fit.
    """
    settings = dict(given)
    chosen = settings.pop("runtime", None)
    runtime = before.runtime.runtime if chosen is None else str(chosen)
    _require_same_runtime_kind(state, runtime, before, run)
    # The runtime changes first, because it decides which of the other settings are supported.
    config = changed_config(before.in_runtime(runtime).without_limits(), settings, run)
    _refuse_finished(config, run, state)
    _require_fixed_settings(state, config, run)
    require_tracker(config.run.tracker)
    return config


def _refuse_finished(config: Config, run: Path, state: dict[str, Any]) -> None:
    """Refuse to resume a run that has already reached a limit, unless its last evaluation was stopped.

    Args:
        config: the config of the resumed run.
        run: the run directory.
        state: the state of the checkpoint.

    Raises:
        ConfigError: with the limit that is reached.
    """
    counters, limits = state["counters"], config.run
    env_steps, seconds = counters["env_steps"], counters["wall_time_s"]
    if limits.evaluation_interval > 0 and state["evaluations"]["is_due"]:
        return  # if a limit is reached, the resumed run only makes this evaluation
    if limits.steps <= env_steps:
        command = RunDirectory(run).next_command("resume", f"--steps {2 * env_steps}")
        raise ConfigError(
            f"{run} has learned from {env_steps} env steps, and steps is {limits.steps}: nothing is left to do. To "
            f"train longer, run `{command}`, or pass any number above {env_steps}"
        )
    if limits.stop_at is not None and limits.stop_at <= env_steps:
        raise ConfigError(
            f"{run} has learned from {env_steps} env steps, and stop_at is {limits.stop_at}: nothing is left to do. "
            f"Leave stop_at out, or pass a number above {env_steps}"
        )
    if limits.time is not None and limits.time <= seconds:
        raise ConfigError(
            f"{run} has trained for {seconds:.0f} seconds, and time is {limits.time:g}, of all parts of the run "
            f"together: nothing is left to do. Leave time out, or pass a number above {seconds:.0f}"
        )


def _require_same_runtime_kind(state: dict[str, Any], runtime: str, config: Config, run: Path) -> None:
    """Refuse to resume a lock-free run in a runtime with one learner, and the reverse.

    Args:
        state: the state of the checkpoint.
        runtime: the runtime to resume in.
        config: the config of the run.
        run: the run directory.

    Raises:
        ConfigError: the state of a lock-free run is divided among its workers.
    """
    before = state["runtime"]
    if runtime_entry(before).workers_learn != runtime_entry(runtime).workers_learn:
        raise ConfigError(
            f"{run} used the {before} runtime and cannot be resumed in {runtime}: in hogwild each worker has a part of "
            f"the saved state. Leave --runtime out, or {with_names(FROM_WEIGHTS, config, run)}"
        )


def _require_fixed_settings(state: dict[str, Any], config: Config, run: Path) -> None:
    """Refuse to resume with other settings that the saved envs, tickets and versions depend on.

    Args:
        state: the state of the checkpoint.
        config: the config of the resumed run.
        run: the run directory.

    Raises:
        ConfigError: with the differences.
    """
    current = fixed_settings(config)
    differences = [
        f"{key} is {value} in the checkpoint and {current.get(key)} now"
        for key, value in state["settings"].items()
        if current.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"the checkpoint of {run} was saved with other settings than its config.toml has: "
            f"{'; '.join(differences)}. Restore these values in config.toml, or {with_names(FROM_WEIGHTS, config, run)}"
        )
