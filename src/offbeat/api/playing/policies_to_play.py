"""The policies that `offbeat.evaluate` and `offbeat.watch` play, and the env that they play in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offbeat.api.hub.download import is_published
from offbeat.api.named_code import env_settings, name_of_env, name_of_wrapper
from offbeat.api.playing.load import load_all, load_for_env
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.snapshots import AveragePolicy
from offbeat.api.playing.trained import Trained
from offbeat.config.importing import accept
from offbeat.config.resolve import env_config
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.files import GivenPath, user_path
from offbeat.core.frozen_table import EMPTY, PlainTable
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.run_directory.store import LATEST

GivenPolicies = GivenPath | LoadedPolicy | Mapping[str, LoadedPolicy]
"""A run or a policy of the hub, given as for `load`; or its loaded policy, or all of them by name."""
GivenEnv = str | Callable[..., Any]


def policies_to_play(
    given: GivenPolicies,
    env: GivenEnv | None = None,
    *,
    checkpoint: str = LATEST,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | type[Any]] | None = None,
    trust_code: bool = False,
) -> dict[str, LoadedPolicy]:
    """Return policies by name, with the env that they are to play in: by default, that of the run's evaluations.

    Args:
        given: a run, a policy, or several policies.
        env: another env than that of the run, as for `offbeat.train`; None: that of the run.
        checkpoint: latest, best or step-<12 digits>, of a run.
        env_kwargs: arguments of the env's constructor that replace those of the run's evaluations.
        wrappers: wrappers of the env, as for `offbeat.train`; None: those of the training.
        trust_code: as for `offbeat.load`.

    Raises:
        ConfigError: as `offbeat.load`; or a checkpoint of a loaded policy is asked for.
    """
    policies = _loaded(given, checkpoint, trust_code=trust_code)
    changes = env_settings(env_kwargs, wrappers)
    name = None if env is None else name_of_env(env)
    accept(*(() if name is None else (name,)), *(() if wrappers is None else map(name_of_wrapper, wrappers)))
    return {
        policy: LoadedPolicy(loaded.acting_policy, _in_env(loaded.trained, name, changes))
        for policy, loaded in policies.items()
    }


def trained_of(policies: Mapping[str, LoadedPolicy]) -> Trained:
    """Return the env and the progress of a training run; all its policies have the same."""
    return next(iter(policies.values())).trained


def _loaded(given: GivenPolicies, checkpoint: str, *, trust_code: bool) -> dict[str, LoadedPolicy]:
    if not isinstance(given, LoadedPolicy | Mapping):
        _require_path(given)
        if is_published(given):
            return load_all(given, checkpoint, trust_code=trust_code)
        _, policies = load_for_env(user_path(given), checkpoint, trust_code=trust_code)
        return policies
    if checkpoint != LATEST:
        raise ConfigError(
            f"checkpoint is {checkpoint!r}, but loaded policies are given: load them from this checkpoint"
        )
    policies = {DEFAULT_POLICY: given} if isinstance(given, LoadedPolicy) else dict(given)
    if not policies or not all(isinstance(policy, LoadedPolicy) for policy in policies.values()):
        raise ConfigError(
            f"run is {in_short(given)}, but the loaded policies of a run are expected, by name: pass "
            "offbeat.load_all(run)"
        )
    return _of_one_run(policies)


def _require_path(given: object) -> None:
    """Refuse a function that acts, but is no policy of a run.

    Raises:
        ConfigError: with what to pass instead.
    """
    if isinstance(given, AveragePolicy):
        raise ConfigError("run is an average policy: pass the run to offbeat.evaluate, with average=True")
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"run is {in_short(given)}, but a run directory, a Run or a loaded policy is expected: pass the run"
        )


def _of_one_run(policies: dict[str, LoadedPolicy]) -> dict[str, LoadedPolicy]:
    """Return policies that a caller has given by name. One that acts in an env with one agent has the usual name.

    Raises:
        ConfigError: they cannot play together.
    """
    first, *others = policies.values()
    if not others:
        return policies if first.trained.agents else {DEFAULT_POLICY: first}
    worlds = [(each.trained.env, each.trained.env_config) for each in policies.values()]
    if not all(each.trained.agents for each in policies.values()) or any(world != worlds[0] for world in worlds):
        envs = ", ".join(dict.fromkeys(env for env, _ in worlds))
        raise ConfigError(
            f"run is the policies {', '.join(policies)}, trained in {envs}, but all policies of one run with several "
            "agents are expected: pass offbeat.load_all(run), or one policy"
        )
    return policies


def _in_env(trained: Trained, env: str | None, changes: Mapping[str, object]) -> Trained:
    """Return what is known of a training, with the env of its evaluations or another one, and with changed settings of
    the env by key.
    """
    settings = trained.env_config.in_evaluations
    if env is not None and env != trained.env:
        settings = replace(settings, kwargs=EMPTY)  # they are those of another constructor
    changed = env_config(changes)
    kwargs = PlainTable({**settings.kwargs, **changed.kwargs})
    wrappers = changed.wrappers if "wrappers" in changes else settings.wrappers
    return replace(
        trained, env=trained.env if env is None else env, env_config=replace(settings, kwargs=kwargs, wrappers=wrappers)
    )
