"""Changes to the settings of a run that is resumed: which settings may change, and why the others may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.keys import POLICIES, is_arguments, parts_of, setting_of, values_of
from offbeat.config.league import LEAGUE
from offbeat.config.new_run import anew, from_weights
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


NewRun = Callable[[Config, Path, Mapping[str, object]], str]
"""Returns the remedy to start a new run, with its command: `anew` or `from_weights`."""
Refusal = tuple[str, NewRun | str]
"""Why a resume cannot change a setting, and the remedy: a new run, or another one in words."""

_RUN: Mapping[str, Refusal] = {
    "algorithm": ("the saved networks and optimizers are those of the algorithm", anew),
    "env": ("the saved policy and episodes are those of the env", from_weights),
    "preset": ("a preset gives a new run its settings", "pass the settings themselves with --set"),
    "seed": ("every random stream of the run depends on it", from_weights),
    "imports": (
        "they are recorded when a run starts",
        "import them before the resume{with_flag}",
    ),
    "init_from": ("it gives a new run its initial weights", anew),
}
"""Keys of [run] that a resume cannot change -> the reason, and the remedy, where there is a better one than below."""
_RUNTIME: Mapping[str, Refusal] = {
    "split": ("the topology of a run is chosen at its start", from_weights),
    "decorrelate": ("it is about the first episodes of a run", from_weights),
}
"""Keys of [runtime] that a resume cannot change, and that have a reason of their own."""
_OF_THE_TOPOLOGY: Refusal = ("the saved envs, tickets and versions depend on it", from_weights)
_OF_THE_RUN: Refusal = ("the saved policies depend on it", from_weights)
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
            raise _refused(config, run, given, key, getattr(config.run, key), given[key], *_RUN[key])
    if "policies" in given and not _same_policies(config, given["policies"]):
        kind = choice_of(given["policies"]).kind
        wanted = f"other {kind}" if kind == config.run.policies else kind
        remedy = from_weights if _all_have_weights(config, given["policies"]) else anew
        raise _refused(config, run, given, "policies", config.run.policies, wanted, _OF_THE_RUN[0], remedy)
    others = {key: value for key, value in given.items() if key not in (*STARTS_FROM, "policies")}
    after = with_settings(config, others)
    if config.league is None and after.league is not None:
        raise ConfigError(
            f"{run} has no league, and a resume cannot add one: it starts with the first weights of a run. Instead, "
            f"{from_weights(config, run, given)}"
        )
    for key, (old, new) in changes_between(config, after).items():
        # The reason is about what was saved with the settings so far, and what the run will do with it.
        against = reason_against(config, key) and reason_against(after, key)
        if reason := against or _reason_against_value(after, key, old, new):
            raise _refused(config, run, given, key, old, new, *reason)
    return after


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


def _all_have_weights(config: Config, given: object) -> bool:
    """Whether each of the given policies of a new run can start from the weights of a policy of this run.

    They are those of the only policy, or else of the policy with the same name or the one that `init_policy` names.
    """
    if config.run.policies == "shared" or len(config.policies) == 1:
        return True
    tables = choice_of(given).tables
    new = read_policies(tables, "policies") if tables else {}
    return bool(new) and all((policy.init_policy or name) in config.policies for name, policy in new.items())


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
        return None if key in _RUN_MAY_CHANGE else _RUN.get(key, _OF_THE_RUN)
    if key in hints_of(RuntimeConfig):
        return None if key in MAY_DIFFER else _RUNTIME.get(key, _OF_THE_TOPOLOGY)
    if key in hints_of(EnvConfig):
        return _reason_of_env(key, config.algorithm_settings)
    if key.startswith(LEAGUE):
        return "the saved opponents and results depend on it", from_weights
    reason = config.algorithm_settings.reason_against_change(key)
    return (reason, anew if key in config.algorithm_settings.network_keys else from_weights) if reason else None


def _reason_against_value(config: Config, key: str, old: object, new: object) -> Refusal | None:
    """Return the same for a key that may change, but perhaps not from `old` to `new`."""
    reason = config.algorithm_settings.reason_against_value(setting_of(key), old, new)
    return (reason, anew) if reason else None


def _reason_of_env(key: str, settings: AlgorithmSettings) -> Refusal | None:
    """Return the same for a key of [env]."""
    if key in ("curriculum", "eval_kwargs") or (key in _REWARDS and settings.learns_from == "unrolls"):
        return None
    what = "replay has rewards that were made" if key in _REWARDS else "policy and episodes belong to an env"
    return f"the saved {what} with it", from_weights


def _refused(
    config: Config,
    run: Path,
    given: Mapping[str, object],
    key: str,
    old: object,
    new: object,
    reason: str,
    remedy: NewRun | str,
) -> ConfigError:
    if isinstance(remedy, str):
        instead = remedy.format(with_flag=for_reader(", with --import MODULE", ""))
    else:
        instead = remedy(config, run, given)
    shown = f"{value_for_reader(old)}{_default_layers(config, key, old)}"
    name = "env_kwargs" if key == "kwargs" else key
    return ConfigError(
        f"{name} is {shown} in {run}, and a resume cannot change it to {value_for_reader(new)}: {reason}. "
        f"Instead, {instead}"
    )


def _default_layers(config: Config, key: str, value: object) -> str:
    """Return which hidden layers a run has that was given none; '' for another setting or value."""
    layers = getattr(config.algorithm_settings, "default_hidden_sizes", None)
    if setting_of(key) != "hidden_sizes" or value != "none" or layers is None:
        return ""
    shown = value_for_reader([*layers])
    return f" (the default: {shown}; no layers if an encoder has all inputs, unless critics need one)"
