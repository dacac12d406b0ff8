"""Changes to the settings of a run that is resumed: which settings may change, and why the others may not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.keys import POLICIES, is_arguments, parts_of, setting_of, values_of
from offbeat.config.league import LEAGUE
from offbeat.config.policies import names_of, read_policies
from offbeat.config.policy_choice import choice_of
from offbeat.config.resolve import with_settings
from offbeat.config.run_config import LIMITS, REPORTING, STARTS_FROM, RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import OPTIONAL_KEYS
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.argument_notation import for_reader, value_for_reader
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of

MAY_DIFFER = {
    *("runtime", "shards", "inference", "step_timeout_s", "reset_timeout_s", "stall_timeout_s", "restart_budget"),
    *("device", "learner_threads"),
    *OPTIONAL_KEYS,
} - {"workers", "hogwild_moments"}
"""Settings of the runtime that may change when a run is resumed: no part of a checkpoint depends on them."""
_REWARDS = ("reward_scale", "clip_rewards")
"""Settings of the rewards that are learned from. A replay contains rewards of the earlier values."""

_ANEW = "start a new run with the settings that you need: {file} has those of this run"
"""The remedy if a new run cannot have the weights of this one, as a text for `with_names`."""
FROM_WEIGHTS = (
    "start a new run from this run's weights, `offbeat train {algorithm} {env} --init-from {run}`, with the settings "
    "that you need: {file} has those of this run"
)
"""The remedy if it can."""
Refusal = tuple[str, str]
"""Why a resume cannot change a setting, and what to do instead: a text for `with_names`."""

_RUN: Mapping[str, Refusal] = {
    "algorithm": ("the saved networks and optimizers are those of the algorithm", _ANEW),
    "env": (
        "the saved policy and episodes are those of the env",
        (
            "start a new run, with `offbeat train {algorithm} ENV --init-from {run}` if the envs have the same "
            "observations and actions"
        ),
    ),
    "preset": ("a preset gives a new run its settings", "pass the settings themselves with --set"),
    "seed": ("every random stream of the run depends on it", FROM_WEIGHTS),
    "imports": (
        "they are recorded when a run starts",
        "import them before the resume{with_flag}",
    ),
    "policies": (
        "the saved policies depend on it",
        (
            "start a new run, with `offbeat train {algorithm} {env} --init-from {run}` if this run has policies of the "
            "same names, or only one"
        ),
    ),
    "init_from": ("it gives a new run its initial weights", _ANEW),
}
"""Keys of [run] that a resume cannot change -> the reason, and the remedy."""
_RUNTIME: Mapping[str, Refusal] = {
    "split": ("the topology of a run is chosen at its start", FROM_WEIGHTS),
    "decorrelate": ("it is about the first episodes of a run", FROM_WEIGHTS),
}
"""Keys of [runtime] that a resume cannot change, and that have a reason of their own."""
_OF_THE_TOPOLOGY: Refusal = ("the saved envs, tickets and versions depend on it", FROM_WEIGHTS)
_RUN_MAY_CHANGE = {"steps", *LIMITS, *REPORTING}
"""Keys of [run] that a resume can change: limits, evaluation, checkpoints and logging."""

Changed = dict[str, tuple[object, object]]
"""Key -> value before and after, as config.toml has them."""


def changed_config(config: Config, given: Mapping[str, object], run: Path) -> Config:
    """Return the config of a run with changed settings.

    Args:
        config: the config of the run.
        given: key -> new value, as `offbeat train` accepts them.
        run: the run directory, for messages.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or the setting cannot change in a resume.
    """
    for key in STARTS_FROM:
        if key in given and given[key] != getattr(config.run, key):
            raise _refused(config, run, key, getattr(config.run, key), given[key], *_RUN[key])
    if "policies" in given and not _same_policies(config, given["policies"]):
        kind = choice_of(given["policies"]).kind
        wanted = f"other {kind}" if kind == config.run.policies else kind
        raise _refused(config, run, "policies", config.run.policies, wanted, *_RUN["policies"])
    others = {key: value for key, value in given.items() if key not in (*STARTS_FROM, "policies")}
    after = with_settings(config, others)
    if config.league is None and after.league is not None:
        raise ConfigError(
            f"{run} has no league, and a resume cannot add one: it starts with the first weights of a run. Instead, "
            f"{with_names(FROM_WEIGHTS, config, run)}"
        )
    for key, (old, new) in changes_between(config, after).items():
        # The reason is about what was saved with the settings so far, and what the run will do with it.
        against = reason_against(config, key) and reason_against(after, key)
        if reason := against or _reason_against_value(after, key, old, new):
            raise _refused(config, run, key, old, new, *reason)
    return after


def with_names(remedy: str, config: Config, run: Path) -> str:
    """Return a remedy, such as `FROM_WEIGHTS`, with the names of a run."""
    return remedy.format(
        algorithm=quote(config.run.algorithm),
        env=quote(config.run.env),
        run=quote(str(run)),
        file=run / "config.toml",
        with_flag=for_reader(", with --import MODULE", ""),
    )


def fixed_settings(config: Config) -> dict[str, object]:
    """Return, by key, the settings that a checkpoint depends on: a resume compares them with those of its config.toml.

    Of each policy these are its agents, whether it learns, and its own values of such keys.
    """
    keys = {*hints_of(RuntimeConfig), *config.algorithm_settings.topology_keys} - MAY_DIFFER
    fixed = {
        key: value for key, value in values_of(config).items() if key.startswith(LEAGUE) or setting_of(key) in keys
    }
    fixed["policies"] = ", ".join(config.policies or names_of(()))
    for name, policy in config.policies.items():
        fixed |= {f"{POLICIES}{name}.agents": list(policy.agents), f"{POLICIES}{name}.train": policy.train}
    return fixed


def _same_policies(config: Config, given: object) -> bool:
    """Whether a run already has the given policies."""
    choice = choice_of(given)
    if choice.kind != config.run.policies or choice.assignment is not None:
        return False
    if choice.tables is None:
        return True
    policies = read_policies(choice.tables, "policies")
    return [*policies.items()] == [*config.policies.items()]  # in this order: an agent has the first that matches


def changes_between(before: Config, after: Config) -> Changed:
    """Return the settings in which two configs of the same algorithm differ."""
    earlier, values = values_of(before), values_of(after)
    old = {key: earlier.get(key, earlier.get(setting_of(key))) for key in values}  # no own value: that of the run
    return {key: (old[key], value) for key, value in values.items() if _differ(key, old[key], value)}


def _differ(key: str, old: object, new: object) -> bool:
    """Whether two values of a setting differ. Other settings than arguments of constructors have types of their own."""
    return old != new or (is_arguments(key) and _typed(old) != _typed(new))


def _typed(value: object) -> object:
    """Return a value with its types: 1, 1.0 and true are equal in Python, but not for a constructor."""
    match value:
        case Mapping():
            return {key: _typed(each) for key, each in value.items()}
        case list() | tuple():
            return [_typed(each) for each in value]
    return type(value), value


def reason_against(config: Config, key: str) -> Refusal | None:
    """Return why a resume cannot change a setting of a run with this config, and the remedy; None if it can."""
    if key.startswith(POLICIES):
        policy, own = parts_of(key)
        return reason_against(config.of_policy(policy), own)
    if key in hints_of(RunConfig):
        return None if key in _RUN_MAY_CHANGE else _RUN[key]
    if key in hints_of(RuntimeConfig):
        return None if key in MAY_DIFFER else _RUNTIME.get(key, _OF_THE_TOPOLOGY)
    if key in hints_of(EnvConfig):
        return _reason_of_env(key, config.algorithm_settings)
    if key.startswith(LEAGUE):
        return "the saved opponents and results depend on it", FROM_WEIGHTS
    reason = config.algorithm_settings.reason_against_change(key)
    return (reason, _ANEW if key in config.algorithm_settings.network_keys else FROM_WEIGHTS) if reason else None


def _reason_against_value(config: Config, key: str, old: object, new: object) -> Refusal | None:
    """Return the same for a key that may change, but perhaps not from `old` to `new`."""
    reason = config.algorithm_settings.reason_against_value(setting_of(key), old, new)
    return (reason, _ANEW) if reason else None


def _reason_of_env(key: str, settings: AlgorithmSettings) -> Refusal | None:
    """Return the same for a key of [env]."""
    if key in ("curriculum", "eval_kwargs") or (key in _REWARDS and settings.learns_from == "unrolls"):
        return None
    what = "replay has rewards that were made" if key in _REWARDS else "policy and episodes belong to an env"
    return f"the saved {what} with it", FROM_WEIGHTS


def _refused(config: Config, run: Path, key: str, old: object, new: object, reason: str, remedy: str) -> ConfigError:
    shown = f"{value_for_reader(old)}{_default_layers(config, key, old)}"
    name = "env_kwargs" if key == "kwargs" else key
    return ConfigError(
        f"{name} is {shown} in {run}, and a resume cannot change it to {value_for_reader(new)}: {reason}. "
        f"Instead, {with_names(remedy, config, run)}"
    )


def _default_layers(config: Config, key: str, value: object) -> str:
    """Return which hidden layers a run has that was given none; '' for another setting or value."""
    layers = getattr(config.algorithm_settings, "default_hidden_sizes", None)
    if setting_of(key) != "hidden_sizes" or value != "none" or layers is None:
        return ""
    shown = value_for_reader([*layers])
    return f" (the default: {shown}; no layers if an encoder has all inputs, unless critics need one)"
