"""Initial weights from other runs: `init_from` of the run, or of the table [policies.NAME] of a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from offbeat.api.running.checkpoint_fit import require_policy_fit
from offbeat.api.running.resume_checks import read_resumable
from offbeat.config.assignments import set_flag
from offbeat.config.keys import ENCODER_KWARGS, flat
from offbeat.core.errors import ConfigError
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.typed_text import argument_text
from offbeat.run_directory.directory import RunDirectory

if TYPE_CHECKING:
    from offbeat.config.changes import Changed
    from offbeat.config.config import Config
    from offbeat.core.types import Tree
    from offbeat.run_directory.checkpoint import SavedPolicy
    from offbeat.runtime.parts import Parts


class InitialPolicy(NamedTuple):
    """What a policy takes from the latest checkpoint of another run."""

    run: Path
    source: str
    """Name of the policy in that run."""
    weights: Tree
    statistics: Mapping[str, Any]
    """State of the algorithm, which has the normalisation."""


def initial_policies(parts: Parts) -> dict[str, InitialPolicy]:
    """Read what the policies of a new run take from other runs, by policy. Those without `init_from` are left out.

    Raises:
        ConfigError: a run has no such policy, its checkpoint is damaged, its network is another one, or its critic
            learned values in other units.
    """
    from offbeat.api.running.initial_sources import source_of
    from offbeat.runtime.loop.state_checks import refuse_mismatches
    from offbeat.runtime.parts import state_of_policy

    runs = parts.config.initial_runs
    directories = {run: RunDirectory.open(Path(run)) for run in dict.fromkeys(runs.values())}
    read = {run: read_resumable(directory) for run, directory in directories.items()}
    initial = {}
    for policy in parts.policies:
        if policy.name not in runs:
            continue
        directory, (saved, state) = directories[runs[policy.name]], read[runs[policy.name]]
        run = directory.path
        source = source_of(policy.name, parts.config, list(saved.policies), run)
        settings = directory.read_settings_of(source)
        _require_same_arrays(policy.name, parts.config, run, settings)
        differing = _differing(policy.name, parts.config, saved.policies[source], settings)
        remedy = _remedy(policy.name, parts.config, {key: theirs for key, (theirs, _) in differing.items()})
        require_policy_fit(saved.policies[source], policy, parts.config, run, differing, remedy)
        if policy.trained:
            _require_same_scale(policy.name, parts.config, run, settings)
        with refuse_mismatches(run):
            statistics = state_of_policy(source, state)["learner"]["algorithm"]
        initial[policy.name] = InitialPolicy(run, source, saved.policies[source].weights, statistics)
    return initial


def _require_same_arrays(policy: str, config: Config, run: Path, saved: Mapping[str, object]) -> None:
    """Refuse the weights of a run in which a setting had another value, on which it depends which arrays there are.

    Args:
        policy: the policy of the new run.
        config: the config of the new run.
        run: the run directory.
        saved: the settings of the policy in that run, as its config.toml has them.

    Raises:
        ConfigError: with the settings of both runs.
    """
    own = config.of_policy(policy)
    for key, value in own.tables()[own.run.algorithm].items():
        theirs = saved.get(key, value)
        if theirs != value and (reason := own.algorithm_settings.reason_against_value(key, theirs, value)):
            raise ConfigError(
                f"{key} is {value}, but in {run}, whose weights are to be used, it was {theirs}: {reason}. Instead, "
                f"{_remedy(policy, config, {key: theirs})}"
            )


def _differing(policy: str, config: Config, saved: SavedPolicy, settings: Mapping[str, object]) -> Changed:
    """Return the settings on which the network depends, and that another run has other values of.

    Args:
        policy: the policy of the new run.
        config: the config of the new run.
        saved: the policy in the other run.
        settings: its settings there, as config.toml has them.

    Returns:
        Key -> the value there, and here. It has the algorithm too, if it is another one.
    """
    own = config.of_policy(policy)
    values = own.tables()[own.run.algorithm]
    keys = [key for key in own.algorithm_settings.network_keys if key in settings]
    both = {
        "algorithm": (saved.about["algorithm"], own.run.algorithm),
        **{key: (settings[key], values[key]) for key in keys},
    }
    return {key: (theirs, ours) for key, (theirs, ours) in both.items() if theirs != ours}


def _require_same_scale(policy: str, config: Config, run: Path, saved: Mapping[str, object]) -> None:
    """Refuse the weights of a run whose critic learned values in other units. The arguments are the same.

    Raises:
        ConfigError: with the settings of both runs.
    """
    settings = config.of_policy(policy).algorithm_settings
    for key, value in settings.scale_of_values().items():
        theirs = saved.get(key, value)
        if theirs != value:
            raise ConfigError(
                f"{key} is {value:g}, but the critic of {run} learned with {theirs}, so all its values would be wrong "
                f"by a factor: {_remedy(policy, config, {key: theirs})}"
            )


def _remedy(policy: str, config: Config, values: Mapping[str, object]) -> str:
    """Return how to give a policy these values of settings, by key; '' if there is nothing to do with its settings."""
    settings = {key: value for key, value in values.items() if key != "algorithm"}
    if policy in config.policies and settings:
        table = ", ".join(f"{key} = {_in_toml(value)}" for key, value in settings.items())
        return f"write {table} in the settings of [policies.{policy}]"
    passed, surplus = set_flag(flat(settings)), ", ".join(_surplus(config, settings))
    return " and ".join([*([f"pass {passed}"] if passed else []), *([f"leave {surplus} out"] if surplus else [])])


def _in_toml(value: object) -> str:
    return argument_text(value) if isinstance(value, Mapping) else json.dumps(value)


def _surplus(config: Config, settings: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the encoder of a run that other settings of it do not have, as keys."""
    tables: dict[str, dict[str, Any]] = config.tables()
    ours = tables[config.run.algorithm].get("encoder_kwargs", {})
    theirs = settings.get("encoder_kwargs", ours)
    return [f"{ENCODER_KWARGS}{name}" for name in ours if name not in theirs]


def load_initial(parts: Parts, initial: Mapping[str, InitialPolicy]) -> None:
    """Load the initial weights into the policies of a new run."""
    for policy in parts.policies:
        if policy.name in initial:
            policy.algorithm.load_weights(initial[policy.name].weights)


def origin_of(parts: Parts, initial: Mapping[str, InitialPolicy]) -> str:
    """Return a message about the initial weights; '' if there are none."""
    if not initial:
        return ""
    runs = {policy: _described(policy, each) for policy, each in initial.items()}
    if len(runs) == len(parts.policies) and len(set(runs.values())) == 1:
        return f"initial weights and normalisation are those of {next(iter(runs.values()))}"
    each = ", ".join(f"those of {run} for {policy}" for policy, run in runs.items())
    return f"initial weights and normalisation are {each}"


def _described(policy: str, initial: InitialPolicy) -> str:
    same = initial.source in (policy, DEFAULT_POLICY)
    return str(initial.run) if same else f"{initial.run} (policy {initial.source})"
