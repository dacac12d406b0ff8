"""Changes to the settings of a run that is resumed: which settings may change, and why the others may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from shlex import quote

from offbeat.config.assignments import env_kwargs_flag, set_flag
from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.own_settings import POLICIES, own_values, parts_of, setting_of
from offbeat.config.policies import tables_of
from offbeat.config.resolve import resolve, with_settings
from offbeat.config.run_config import LIMITS, REPORTING, RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import OPTIONAL_KEYS
from offbeat.config.settings import AlgorithmSettings
from offbeat.config.trust import modules_of, policies_code
from offbeat.core.argument_notation import for_reader
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import flag_of, hints_of
from offbeat.core.field_texts import syntax_of
from offbeat.core.typed_text import as_text

MAY_DIFFER = {
    *("runtime", "shards", "inference", "step_timeout_s", "reset_timeout_s", "stall_timeout_s", "restart_budget"),
    *("device", "learner_threads"),
    *OPTIONAL_KEYS,
} - {"workers", "hogwild_moments"}
"""Settings of the runtime that may change when a run is resumed: no part of a checkpoint depends on them."""
_REWARDS = ("reward_scale", "clip_rewards")
"""Settings of the rewards that are learned from. A replay contains rewards of the earlier values."""


class NewRun(Enum):
    """A new run as the remedy. A message says it with the command."""

    ANEW = "start a new run"
    FROM_WEIGHTS = "start a new run from this run's weights"


Refusal = tuple[str, NewRun | str]
"""Why a resume cannot change a setting, and the remedy: a new run, or another one in words."""

_RUN: Mapping[str, Refusal] = {
    "algorithm": ("the saved networks and optimizers are those of the algorithm", NewRun.ANEW),
    "env": ("the saved policy and episodes are those of the env", NewRun.FROM_WEIGHTS),
    "preset": ("a preset gives a new run its settings", "pass the settings themselves with --set"),
    "seed": ("every random stream of the run depends on it", NewRun.FROM_WEIGHTS),
    "imports": (
        "they are recorded when a run starts",
        "import them before the resume{with_flag}",
    ),
    "init_from": ("it gives a new run its initial weights", NewRun.ANEW),
    "tracker": ("the run is recorded there from its start", "leave it out"),
}
"""Keys of [run] that a resume cannot change -> the reason, and the remedy, where there is a better one than below."""
_RUNTIME: Mapping[str, Refusal] = {
    "split": ("the topology of a run is chosen at its start", NewRun.FROM_WEIGHTS),
    "decorrelate": ("it is about the first episodes of a run", NewRun.FROM_WEIGHTS),
}
"""Keys of [runtime] that a resume cannot change, and that have a reason of their own."""
_OF_THE_TOPOLOGY: Refusal = ("the saved envs, tickets and versions depend on it", NewRun.FROM_WEIGHTS)
_OF_THE_RUN: Refusal = ("the saved policies depend on it", NewRun.FROM_WEIGHTS)
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
    for key in ("algorithm", "env", "preset"):
        if key in given and given[key] != getattr(config.run, key):
            raise _refused(config, run, key, getattr(config.run, key), given[key], *_RUN[key])
    others = {key: value for key, value in given.items() if key not in ("algorithm", "env", "preset")}
    after = with_settings(config, others)
    if config.league is None and after.league is not None:
        raise ConfigError(
            f"{run} has no league, and a resume cannot add one: it starts with the first weights of a run. Instead, "
            f"{from_weights(config, run, _flags_of_league(after.league))}"
        )
    for key, (old, new) in changes_between(config, after).items():
        # The reason is about what was saved with the settings so far, and what the run will do with it.
        against = reason_against(config, key) and reason_against(after, key)
        if reason := against or _reason_against_value(after, key, old, new):
            raise _refused(config, run, key, old, new, *reason)
    return after


def changes_between(before: Config, after: Config) -> Changed:
    """Return the settings in which two configs of the same algorithm differ."""
    earlier, values = values_of(before), values_of(after)
    old = {key: earlier.get(key, earlier.get(setting_of(key))) for key in values}  # no own value: that of the run
    return {key: (old[key], value) for key, value in values.items() if old[key] != value}


def values_of(config: Config) -> dict[str, object]:
    """Return key -> value of all settings of a config, with the keys as in `--set`."""
    tables = config.tables()
    policies = tables.pop("policies", {})
    values = {
        f"{LEAGUE if name == 'league' else ''}{key}": value
        for name, table in tables.items()
        for key, value in table.items()
    }
    return {**values, **dict(own_values(policies))}


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
        return _reason_of_env(key, config.settings)
    if key.startswith(LEAGUE):
        return "the saved opponents and results depend on it", NewRun.FROM_WEIGHTS
    reason = config.settings.reason_against_change(key)
    return (reason, NewRun.ANEW if key in config.settings.network_keys else NewRun.FROM_WEIGHTS) if reason else None


def _reason_against_value(config: Config, key: str, old: object, new: object) -> Refusal | None:
    """Return the same for a key that may change, but perhaps not from `old` to `new`."""
    reason = config.settings.reason_against_value(setting_of(key), old, new)
    return (reason, NewRun.ANEW) if reason else None


def _reason_of_env(key: str, settings: AlgorithmSettings) -> Refusal | None:
    """Return the same for a key of [env]."""
    if key == "curriculum" or (key in _REWARDS and settings.learns_from == "unrolls"):
        return None
    what = "replay has rewards that were made" if key in _REWARDS else "policy and episodes belong to an env"
    return f"the saved {what} with it", NewRun.FROM_WEIGHTS


def _refused(
    config: Config, run: Path, key: str, old: object, new: object, reason: str, remedy: NewRun | str
) -> ConfigError:
    change = "" if key in ("algorithm", "env") else _as_flags(key, new)
    match remedy:
        case NewRun.FROM_WEIGHTS:
            instead = from_weights(config, run, change, env=str(new) if key == "env" else config.run.env, but=key)
        case NewRun.ANEW:
            algorithm = str(new) if key == "algorithm" else config.run.algorithm
            flags = [*_flags_of_world(config, run / "config.toml", key), change]
            instead = f"{remedy.value}: {_train_command(algorithm, config.run.env, flags)}"
        case str():
            instead = remedy.format(with_flag=for_reader(", with --import MODULE", ""))
    shown = f"{old}{_default_layers(config, key, old)}"
    return ConfigError(
        f"{key} is {shown} in {run}, and a resume cannot change it to {new}: {reason}. Instead, {instead}"
    )


def _default_layers(config: Config, key: str, value: object) -> str:
    """Return which hidden layers a run has that was given none; '' for another setting or value."""
    layers = getattr(config.settings, "default_hidden_sizes", None)
    if setting_of(key) != "hidden_sizes" or value != "none" or layers is None:
        return ""
    return f" (the default: {list(layers)}, or no layers if an encoder has all inputs)"


def from_weights(config: Config, run: Path, change: str = "", *, env: str | None = None, but: str = "") -> str:
    """Return the remedy to start a new run from the weights of a run, with its command.

    Args:
        config: the config of the run.
        run: the run directory.
        change: flags of the new run.
        env: the env of the new run; None: that of the run.
        but: a setting that the new run does not take from the run.
    """
    file, note, env = run / "config.toml", "", config.run.env if env is None else env
    if any(policy.init_policy or (policy.train and policy.init_from) for policy in config.policies.values()):
        note = f", where FILE.toml has the tables [policies.NAME] of {file} without init_from and init_policy"
        file = Path("FILE.toml")
    own = [*_flags_of_world(config, file, but), *_own_flags(config, env, but)]
    command = _train_command(config.run.algorithm, env, [f"--init-from {quote(str(run))}", *own, change])
    condition = "" if env == config.run.env else f", if {env} has the same observations and actions"
    return f"{NewRun.FROM_WEIGHTS.value}{condition}: {command}{note}"


def _train_command(algorithm: str, env: str, flags: Iterable[str]) -> str:
    return f"`{' '.join(['offbeat train', quote(algorithm), quote(env), *filter(None, flags)])}`"


def _flags_of_world(config: Config, file: Path, but: str) -> Iterator[str]:
    """Yield the flags for what a run imports, for its policies with the modules of their encoders, and for its league.

    Args:
        config: the config of the run.
        file: has the tables of its policies.
        but: a key that is left out.
    """
    modules = (*config.run.imports, *modules_of(policies_code(tables_of(config.policies))))
    yield from (f"--import {quote(module)}" for module in modules)
    if config.run.policies != "shared" and but != "policies":
        yield f"--policies {quote(str(file)) if config.run.policies == 'tables' else config.run.policies}"
    if config.league is not None:
        yield _flags_of_league(config.league, but)


def _flags_of_league(league: LeagueConfig, but: str = "") -> str:
    """Return the flags for the settings of a league that are not the defaults, without those of the key `but`."""
    usual = asdict(LeagueConfig())
    values = {key: value for key, value in asdict(league).items() if value != usual[key]}
    own = {f"{LEAGUE}{key}": value for key, value in values.items() if f"{LEAGUE}{key}" != but}
    return set_flag(own if own or but.startswith(LEAGUE) else {"league": True})


def _own_flags(config: Config, env: str, but: str) -> list[str]:
    """Return the flags for the settings of a run's network and env that a new run does not have by itself. Without them
    its network would not fit the weights.

    Args:
        config: the config of the run.
        env: the env of the new run. If it is another one, the settings of the env are left out.
        but: a key that is left out.
    """
    values = values_of(config)
    keys = [*config.settings.network_keys, *(hints_of(EnvConfig) if env == config.run.env else ())]
    with suppress(ConfigError):  # the new env may be misspelt
        usual = values_of(resolve(config.run.algorithm, env))
        return [_as_flags(key, values[key]) for key in keys if key != but and values[key] != usual[key]]
    return []


def _as_flags(key: str, value: object) -> str:
    """Return the flags that give a new run this value of a setting, quoted as for a shell; '' for an empty table."""
    if isinstance(value, Mapping):
        return env_kwargs_flag(value)
    hints = {**hints_of(RunConfig), **hints_of(RuntimeConfig)}
    if key in hints and flag_of(hints[key]):
        return syntax_of(key, hints[key], quote(as_text(value)))
    return set_flag({key: value})
