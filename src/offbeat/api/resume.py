"""Resumes a run: the checks that are made first, and the changes to the run directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.api.run_context import Started
from offbeat.api.start_warnings import start_warnings
from offbeat.config.changes import MAY_DIFFER, Changed, changed_config, from_weights
from offbeat.config.config import Config
from offbeat.config.run_config import LIMITS
from offbeat.config.runtimes import runtime_entry
from offbeat.core.errors import ConfigError
from offbeat.core.files import replace_or_overwrite, stage, sync
from offbeat.core.threads import blas_kernels
from offbeat.core.typed_text import as_text
from offbeat.core.types import DEFAULT_POLICY, in_brief
from offbeat.run_directory.directory import RunDirectory

if TYPE_CHECKING:
    from offbeat.core.types import Tree
    from offbeat.metrics.counters import Counters
    from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
    from offbeat.run_directory.store import CheckpointStore
    from offbeat.runtime.parts import Parts, PolicyParts
    from offbeat.runtime.training_loop import TrainingLoop

LATEST, BEST = "latest", "best"
"""Names of checkpoints. A run is resumed from the latest by default."""
OF_ENV = ("observation", "action", "no_decision")
"""Fields of a policy's spec that follow from the env."""
NAMED_ARRAYS = 3
"""Number of arrays that a message names."""
NOTHING: Changed = {}

# --- checks before any change -------------------------------------------------------------------------------


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
    from offbeat.runtime.saved_state import require_state

    saved = directory.read_checkpoint(checkpoint, with_replay=with_replay)
    if saved.state is None:
        store = directory.store()
        other = store.how_to_resume(but=store.path(checkpoint).resolve().name)
        remedy = other or ", and the run has no other one: start a new run"
        raise ConfigError(
            f"the checkpoint {checkpoint} of {directory.path} has only the weights, and no run can continue from it"
            f"{remedy}"
        )
    require_state(saved.state, directory.path)
    return saved, saved.state


def resumed_config(config: Config, run: Path, counters: Mapping[str, Any], given: Mapping[str, object]) -> Config:
    """Return the config of the resumed run: with the given settings, and without the limits of earlier parts.

    Args:
        config: the config of the run.
        run: the run directory, for messages.
        counters: the counters of its checkpoint.
        given: the settings that change, by key.

    Raises:
        ConfigError: a setting cannot change, or the run has already reached its end.
    """
    changed = changed_config(config.without_limits(), given, run)
    env_steps, seconds, limits = counters["env_steps"], counters["wall_time_s"], changed.run
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
    return changed


def require_fit(saved: Checkpoint, parts: Parts, run: Path) -> None:
    """Refuse a checkpoint whose policies or arrays differ from those of the current settings.

    Raises:
        ConfigError: with the differences.
    """
    names = [policy.name for policy in parts.policies]
    if list(saved.policies) != names:
        raise ConfigError(
            f"the checkpoint of {run} has the policies {', '.join(saved.policies)}, but these settings have "
            f"{', '.join(names)}: use the policies that it was trained with, as in {run / 'config.toml'}"
        )
    for policy in parts.policies:
        require_policy_fit(saved.policies[policy.name], policy, parts.config, run)


def require_policy_fit(
    saved: SavedPolicy, policy: PolicyParts, config: Config, run: Path, settings: Changed = NOTHING, remedy: str = ""
) -> None:
    """Refuse a saved policy whose spec or arrays differ from those of a policy with the current settings.

    Args:
        saved: from a checkpoint.
        policy: the policy of the new run.
        config: settings of the new run.
        run: run directory of the checkpoint, for messages.
        settings: the settings of the network that differ, if they are known: key -> value in the checkpoint and now.
            The message names them in place of what follows from them.
        remedy: what to pass so that they are the same.

    Raises:
        ConfigError: with the differences.
    """
    if differences := _differences(saved, policy, settings):
        name = "" if policy.name == DEFAULT_POLICY else f" as the policy {policy.name}"
        raise ConfigError(
            f"the checkpoint of {run}, trained on {saved.about['env']}, does not fit {config.run.env} with these "
            f"settings{name}: {'; '.join(differences)}. Use the env, the network and the normalisation that it was "
            f"trained with, as in {run / 'config.toml'}" + f": {remedy}" * bool(remedy)
        )


def _differences(saved: SavedPolicy, policy: PolicyParts, settings: Changed) -> list[str]:
    """Return the differences between a saved policy and the policy of a run, as phrases."""
    from offbeat.models.spec import PolicySpec

    spec, current = PolicySpec.from_json(saved.about.get("policy")), policy.spec
    both = {field.name: (getattr(spec, field.name), getattr(current, field.name)) for field in fields(PolicySpec)}
    differs = {name: tuple(map(in_brief, values)) for name, values in both.items() if values[0] != values[1]}
    arrays = sorted({name for name, _ in _shapes(saved.weights) ^ _shapes(policy.algorithm.weights())})
    if not differs and not arrays:
        return []
    if settings:
        of_env = {name: values for name, values in differs.items() if name in OF_ENV}
        differs = {**of_env, **{key: tuple(map(as_text, values)) for key, values in settings.items()}}
    if differs:
        return [f"{name} is {old} in the checkpoint and {new} now" for name, (old, new) in differs.items()]
    more = f" and {len(arrays) - NAMED_ARRAYS} more" if len(arrays) > NAMED_ARRAYS else ""
    return [f"these arrays are missing in one of them, or have another shape: {', '.join(arrays[:NAMED_ARRAYS])}{more}"]


def _shapes(weights: Tree) -> set[tuple[str, tuple[int, ...]]]:
    return {(name, array.shape) for name, array in weights.items()}


def require_same_runtime_kind(state: dict[str, Any], runtime: str, config: Config, run: Path) -> None:
    """Refuse to resume a lock-free run in a runtime with one learner, and the reverse.

    Args:
        state: the state of the checkpoint.
        runtime: the runtime to resume in.
        config: the config of the run.
        run: the run directory.

    Raises:
        ConfigError: the state of a lock-free run is divided among its workers.
    """
    before = state["runtime"]["runtime"]
    if runtime_entry(before).workers_learn != runtime_entry(runtime).workers_learn:
        raise ConfigError(
            f"{run} used the {before} runtime and cannot be resumed in {runtime}: in hogwild each worker has a part of "
            f"the saved state. Leave --runtime out, or {from_weights(config, run, f'--runtime {runtime}')}"
        )


def require_topology(state: dict[str, Any], config: Config, run: Path) -> None:
    """Refuse to resume with another topology: the saved envs, tickets and versions depend on it.

    Args:
        state: the state of the checkpoint.
        config: the config of the resumed run.
        run: the run directory.

    Raises:
        ConfigError: with the differences.
    """
    current = config.topology()
    differences = [
        f"{key} is {value} in the checkpoint and {current.get(key)} now"
        for key, value in state["runtime"].items()
        if key not in MAY_DIFFER and current.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"the checkpoint of {run} was saved with other settings than its config.toml has: "
            f"{'; '.join(differences)}. Restore these values in config.toml, or {from_weights(config, run)}"
        )


# --- changes to the run directory ---------------------------------------------------------------------------


class Changes:
    """The changes that a resume makes to a run directory.

    The config is replaced, and metrics lines and checkpoints after the resumed checkpoint, which becomes the latest,
    are deleted. If settings were changed, the old config stays in the directory.
    """

    def __init__(
        self, directory: RunDirectory, config: Config, checkpoint: str, state: dict[str, Any], changed: Changed
    ) -> None:
        """Prepare the changes.

        Args:
            directory: the run directory.
            config: the config of the resumed run.
            checkpoint: the name of the checkpoint.
            state: the state of the checkpoint.
            changed: the settings that differ from those of the run so far.
        """
        from offbeat.metrics.sinks import metrics_up_to

        self._directory = directory
        self._env_steps = state["counters"]["env_steps"]
        self._new_latest = None if checkpoint == LATEST else _linkable(directory.store(), checkpoint, self._env_steps)
        """The name of the checkpoint that becomes the latest; None if it is the latest already."""
        self._before = {path: _content(path) for path in (directory.status, directory.tracker)}
        self._metrics = metrics_up_to(directory.metrics, state["counters"]["learning_step"])
        self.metrics_size = len(self._metrics)
        self._configs = {directory.config: config.as_toml()}
        """The new content of config files by path, in the order in which they are written."""
        changed = {key: values for key, values in changed.items() if key not in LIMITS}
        if changed:
            note = f"# the settings up to env step {self._env_steps}; then these were changed: {', '.join(changed)}\n"
            old = {directory.next_old_config(): note.encode() + directory.config.read_bytes()}
            self._configs = {**old, **self._configs}

    def commit(self) -> None:
        """Write all new files, then replace the config, the link `latest` and the metrics, each atomically.

        The order matters if the process is killed in between. Until the link is changed, nothing is lost, and the next
        resume continues from the newest checkpoint: before the config is replaced with the old settings, and afterwards
        with the new ones. From the change of the link on it continues from the chosen checkpoint with the new settings,
        and removes the later metrics lines and checkpoints itself.

        The undo renames a copy of the old config, which is made first: this needs no space on the disk.

        Raises:
            OSError: the disk is full or fails; nothing was changed.
        """
        store, directory = self._directory.store(), self._directory
        files = {**self._configs, **({directory.metrics: self._metrics} if directory.metrics.exists() else {})}
        with ExitStack() as temporary, ExitStack() as undo:
            staged: dict[Path, Path] = {}
            for path, content in files.items():
                staged[path] = stage(path, content)
                temporary.callback(_if_possible, staged[path].unlink, missing_ok=True)
            old = directory.config.with_name(f".{directory.config.name}.old")
            temporary.callback(_if_possible, old.unlink, missing_ok=True)
            shutil.copy(directory.config, old)
            sync(old)
            for path in self._configs:
                if path == directory.config:
                    undo.callback(_if_possible, old.replace, path)
                else:
                    undo.callback(_if_possible, path.unlink, missing_ok=True)
                staged.pop(path).replace(path)
            sync(directory.path)
            if self._new_latest is not None:
                undo.callback(_if_possible, store.restore_latest, store.linked_latest())
                store.make_latest(self._new_latest)
            for path, new in staged.items():
                new.replace(path)
            undo.pop_all()
        with suppress(OSError):  # all has been changed: it is too late to refuse
            sync(directory.path)
        store.drop_beyond(self._env_steps)

    def roll_back(self) -> bool:
        """Restore the directory as it was before the resume, except for log.txt. Return True: no change remains."""
        for path, content in self._before.items():
            if content is None:
                _if_possible(path.unlink, missing_ok=True)
            else:
                _if_possible(replace_or_overwrite, path, content)
        return True


def _linkable(store: CheckpointStore, name: str, env_steps: int) -> str:
    """Return the name of the directory of a checkpoint, for a link.

    In a copy of a run without links, `best` is a directory, which the next best weights replace.

    Args:
        store: the checkpoints of the run.
        name: best or step-<12 digits>.
        env_steps: the env steps of this checkpoint.

    Raises:
        ConfigError: `best` is a directory, and the checkpoint that it is a copy of is missing.
    """
    found = store.path(name).resolve().name
    return store.path(f"step-{env_steps:012d}").name if found == BEST else found


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _if_possible(change: Callable[..., object], *arguments: object, **named: object) -> None:
    """Change a file or a link. If the disk fails, it stays as it is."""
    with suppress(OSError):
        change(*arguments, **named)


@dataclass
class Continuation:
    """The checkpoint from which a run is resumed. The replay is released after it is restored, to close its file."""

    run: Path
    saved: Checkpoint
    """The checkpoint without its replay."""
    state: dict[str, Any]
    replay: Tree | None
    changed: Changed
    """The settings that differ from those of the run so far."""

    def start(self, parts: Parts, loop: TrainingLoop) -> Started:
        """Restore the parts and start acting."""
        from offbeat.runtime.saved_state import refuse_mismatches
        from offbeat.runtime.saving import score_of

        replay, self.replay = self.replay, None
        with refuse_mismatches(self.run):
            parts.require_like(self.state)
            parts.load_weights(self.saved.weights_by_policy)
            continued, memory = loop.restore(self.state, replay, score_of(self.saved))
        warnings = start_warnings(parts, env_steps=loop.counters.env_steps, counts_anew=replay is None)
        del replay
        resumed = self._resumed(loop.counters, memory, continues_episodes=continued)
        return Started(f"{resumed}{self._changes(parts.config)}{_kernels(self.state)}", warnings)

    def _resumed(self, counters: Counters, memory: str, *, continues_episodes: bool) -> str:
        """Return where the run continues, and what was restored.

        Args:
            counters: the restored counters.
            memory: the message about the memory.
            continues_episodes: whether the unfinished episodes were restored.
        """
        if not counters.learning_step:
            return "resumed from the start: nothing had been learned"
        episodes = (
            "unfinished episodes continue"
            if continues_episodes
            else "unfinished episodes were not saved: they are cut, and new episodes start"
        )
        restored = "weights, optimizer, normalisation, schedules and random streams restored"
        dropped = "only the newest checkpoint has its replay" if self.saved.replay_dropped else ""
        details = "; ".join(filter(None, (restored, memory, dropped, episodes)))
        return f"resumed at {counters.env_steps} env steps: {details}"

    def _changes(self, config: Config) -> str:
        """Return a message about the changed settings, and about policies that have their own values of them."""
        changes = ", ".join(f"{key} from {old} to {new}" for key, (old, new) in self.changed.items())
        own = (
            f"; the policy {name} keeps its own {key} of {policy.settings[key]}"
            for name, policy in config.policies.items()
            for key in self.changed
            if key in policy.settings
        )
        return f"; settings changed: {changes}{''.join(own)}" if self.changed else ""


def _kernels(state: dict[str, Any]) -> str:
    """Return a note if BLAS has other kernels here than on the machine where the run was saved."""
    before, now = state.get("blas_kernels"), blas_kernels()
    return f"; OpenBLAS uses the kernels {now}, not {before}: results differ by rounding" * (before != now)
