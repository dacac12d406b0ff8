"""Builds a config from the defaults, the preset, flags and `--set`; from a config.toml: `config_file.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from offbeat.config.assignments import given_twice
from offbeat.config.config import Config
from offbeat.config.config_file import from_tables, settings_class_of
from offbeat.config.env import ARGUMENT_PREFIXES, EnvConfig
from offbeat.config.importing import import_modules
from offbeat.config.keys import (
    ENCODER_KWARGS,
    POLICIES,
    PREFIXES,
    order_of,
    refuse_repeated,
    set_argument,
    set_own,
    set_value,
)
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.policies import read_policies, tables_of
from offbeat.config.policy_choice import PolicyChoice, choice_of
from offbeat.config.preset_files import preset_tables
from offbeat.config.registry import ALGORITHMS, algorithm_entry, settings_classes
from offbeat.config.run_config import STARTS_FROM, RunConfig
from offbeat.config.runtime_config import RuntimeConfig, refused_key
from offbeat.config.runtimes import OPTIONAL_KEYS, runtime_entry
from offbeat.config.settings import AlgorithmSettings
from offbeat.config.unknown_keys import prefix_meant, unknown_key
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import defaults_of, hints_of, required
from offbeat.core.field_texts import example_of, syntax_of
from offbeat.core.fields import build, in_short, read
from offbeat.core.process.threads import usable_cores
from offbeat.core.typed_text import as_text


def settings_list(algorithm: str) -> str:
    """Return the command that lists all settings of an algorithm, for messages."""
    return f"`offbeat list settings {algorithm}`"


def resolve(
    algorithm: str,
    env: str,
    *,
    preset: str | None = None,
    flags: Mapping[str, object] | None = None,
    assignments: Mapping[str, object] | None = None,
) -> Config:
    """Build a config: the defaults, then the preset, then flags and `--set` assignments.

    Without `preset`, the one for this algorithm and env applies if there is one.

    Raises:
        ConfigError: a name or value is invalid, or a key is given twice.
    """
    if not isinstance(env, str):
        raise ConfigError(
            f"env is {env!r}, but an env id such as 'CartPole-v1' is expected, or the path of your env, my_module:MyEnv"
        )
    choice, (flags, assignments) = _policy_choice(flags or {}, assignments or {})
    _check_run_flags(flags)
    _refuse_swapped(algorithm, env)
    _check_names(algorithm, {**assignments, **flags})
    choice.require_code()
    tables = preset_tables(algorithm, env, preset)
    settings_class, where = settings_class_of(algorithm), settings_list(algorithm)
    if choice.tables is not None:
        tables["policies"] = tables_of(read_policies(choice.tables, "policies"))
    values = _once(flags, assignments)
    given, table_of = set(values), _table_of_keys(algorithm, settings_class)
    _set_given(tables, table_of, values, algorithm=algorithm, own=hints_of(settings_class))
    tables["run"].update(algorithm=algorithm, env=env)
    runtime, settings = tables.setdefault("runtime", {}), tables.setdefault(algorithm, {})
    _refuse_unsupported(settings_class, algorithm, given)
    _set_runtime_defaults(runtime, settings_class, given)
    runtime_config = build(RuntimeConfig, runtime, f"{where}, table [runtime]")
    tables[algorithm] = settings_class.with_defaults(settings, given, runtime_config)
    _require_given(settings_class, algorithm, tables[algorithm])
    return from_tables(tables, where, choice.assignment)


def env_config(assignments: Mapping[str, object]) -> EnvConfig:
    """Return the table [env] with the given values.

    Raises:
        ConfigError: a key is not one of this table, or a value is invalid.
    """
    keys, where = hints_of(EnvConfig), f"{settings_list('ppo')}, table [env]"
    for key in assignments:
        if key not in keys and not key.startswith(ARGUMENT_PREFIXES):
            remedy = f"Only settings of the env can be given here: see {where}."
            if meant := prefix_meant(key):
                raise ConfigError(f"unknown key {key!r}: {meant}. {remedy}")
            raise unknown("key", key, keys, remedy)
    tables: dict[str, dict[str, Any]] = {}
    _set_given(tables, dict.fromkeys(keys, "env"), assignments, algorithm="ppo", own={})
    return build(EnvConfig, tables.get("env", {}), where)


def _policy_choice(*sources: Mapping[str, object]) -> tuple[PolicyChoice, list[Mapping[str, object]]]:
    """Return the given choice of policies, and the sources with the value of `policies` as [run] has it."""
    given = [source["policies"] for source in sources if "policies" in source]
    choice = choice_of(given[0] if given else RunConfig.policies)
    return choice, [{**source, "policies": choice.kind} if "policies" in source else source for source in sources]


def with_settings(config: Config, given: Mapping[str, object]) -> Config:
    """Return a config with other values of some settings.

    Args:
        config: the config to start from.
        given: key -> value, as flags or `--set` give them.

    Raises:
        ConfigError: a key is unknown, or a value is invalid.
    """
    tables: dict[str, dict[str, Any]] = config.tables()
    settings = type(config.algorithm_settings)
    algorithm, hints = config.run.algorithm, hints_of(settings)
    _set_given(tables, _table_of_keys(algorithm, settings), given, algorithm=algorithm, own=hints)
    return from_tables(tables, settings_list(algorithm))


def _require_given(settings: type[AlgorithmSettings], algorithm: str, table: Mapping[str, object]) -> None:
    """Refuse a table without a setting that has no default."""
    hints = hints_of(settings)
    for name in (field.name for field in required(settings) if field.name not in table):
        syntax = syntax_of(name, hints[name], example_of(hints[name]))
        raise ConfigError(f"{algorithm} has a setting {name} without a default: pass it, for example, {syntax}")


def _refuse_swapped(algorithm: str, env: str) -> None:
    if env in ALGORITHMS and algorithm not in ALGORITHMS:
        raise ConfigError(
            f"the algorithm is {algorithm!r} and the env is {env!r}, an algorithm: swap them, as in "
            f"`offbeat train {env} {algorithm}`"
        )


def _check_names(algorithm: str, given: Mapping[str, object]) -> None:
    """Import the given modules, and refuse an unknown algorithm or runtime before torch is loaded."""
    import_modules(read("imports", given.get("imports", ()), hints_of(RunConfig)["imports"]))
    algorithm_entry(algorithm)
    runtime_entry(read("runtime", given.get("runtime", RuntimeConfig.runtime), hints_of(RuntimeConfig)["runtime"]))


def _table_of_keys(algorithm: str, settings: type[AlgorithmSettings]) -> dict[str, str]:
    """Return key -> name of its table, for all keys that can be given."""
    table_of = {
        **dict.fromkeys(hints_of(settings), algorithm),
        **dict.fromkeys(hints_of(RuntimeConfig), "runtime"),
        **dict.fromkeys(hints_of(EnvConfig), "env"),
        **dict.fromkeys(hints_of(RunConfig), "run"),
        "league": "league",
    }
    for name in STARTS_FROM:
        del table_of[name]
    return table_of


def _once(*sources: Mapping[str, object]) -> dict[str, object]:
    """Return the values of all sources by key.

    Raises:
        ConfigError: a key is given twice.
    """
    values: dict[str, object] = {}
    for key, value in (item for source in sources for item in source.items()):
        if key in values:
            raise given_twice(key)
        values[key] = value
    return values


def _set_given(
    tables: dict[str, dict[str, Any]],
    table_of: Mapping[str, str],
    values: Mapping[str, object],
    *,
    algorithm: str,
    own: Mapping[str, Any],
) -> None:
    """Write the given values into the tables.

    Args:
        tables: the tables, which are changed.
        table_of: key -> name of its table.
        values: key -> value.
        algorithm: whose settings are listed, for messages.
        own: type hints of the settings of which a policy can have its own values.

    Raises:
        ConfigError: a key is unknown, or is given in a table too.
    """
    prefixes = tuple(prefix for prefix in PREFIXES if prefix != ENCODER_KWARGS or "encoder_kwargs" in own)
    for key, value in values.items():
        if key in STARTS_FROM:
            raise _is_no_setting(key, value)
        if key not in table_of and not key.startswith(prefixes):
            remedy = f"{settings_list(algorithm)} shows all keys."
            raise unknown_key(key, value, setting_names(algorithm) - {*STARTS_FROM}, remedy)
        _refuse_schedule(key, value, table_of)
    refuse_repeated(values)
    for key in sorted(values, key=order_of):
        _set_value(tables, table_of, key, values[key], own)


def _is_no_setting(key: str, value: object) -> ConfigError:
    """Return the error for one of `STARTS_FROM` that is given as a setting."""
    arguments = {"algorithm": "it is the first argument", "env": "it is the second argument, after the algorithm"}
    return ConfigError(f"{key} is no setting: {arguments.get(key, f'pass --{key} {as_text(value)}')}")


def _set_value(
    tables: dict[str, dict[str, Any]], table_of: Mapping[str, str], key: str, value: object, own: Mapping[str, Any]
) -> None:
    """Write the value of a known key into the tables. Arguments and errors are as in `_set_given`."""
    if key.startswith(ARGUMENT_PREFIXES):
        _, table, name = key.split(".", 2)
        set_argument(tables.setdefault("env", {}), table, name, value)
    elif key.startswith(ENCODER_KWARGS):
        table, _, name = key.partition(".")
        set_argument(tables.setdefault(table_of[table], {}), table, name, value)
    elif key.startswith(LEAGUE):
        tables.setdefault("league", {})[key.removeprefix(LEAGUE)] = value
    elif key.startswith(POLICIES):
        set_own(tables.get("policies", {}), key, value, own)
    elif key == "league":
        tables["league"] = _league_table(value)
    else:
        set_value(tables.setdefault(table_of[key], {}), key, value)


def _refuse_schedule(key: str, value: object, known: Collection[str]) -> None:
    """Refuse a function or a list in place of a number with a schedule: in other libraries they are schedules.

    A list may also be typed, as in 1e-3,1e-4.
    """
    schedule = f"{key}_schedule"
    is_list = isinstance(value, list | tuple) or (isinstance(value, str) and "," in value)
    if schedule in known and (callable(value) or is_list):
        search = "; to try several values, list them under [search.over] in a spec" if is_list else ""
        raise ConfigError(
            f"{key} is {'a function' if callable(value) else in_short(value)}, but a number is expected: pass its "
            f"first value, and --set {schedule}=linear if it is to decrease to 0 over the steps of the run, or its "
            f'factors by progress, as in --set {schedule}="0:1 0.5:0.1 1:0"{search}'
        )


def _league_table(value: object) -> dict[str, Any]:
    """Return the table [league] for the value of the key `league`: a table, or true for its defaults."""
    if isinstance(value, Mapping):
        return dict(value)
    if value in (True, "true"):
        return {}
    raise ConfigError(
        f"league is {in_short(value)}, but true or a table is expected: pass --set league=true, or keys of the table "
        "with --set league.KEY=VALUE"
    )


def _check_run_flags(flags: Mapping[str, object]) -> None:
    """Check the flags of [run] and [runtime] first: they need no algorithm, so a wrong value is refused before torch
    is loaded.
    """
    hints = {**hints_of(RunConfig), **hints_of(RuntimeConfig)}
    defaults = {**defaults_of(RunConfig), **defaults_of(RuntimeConfig)}
    for key, value in flags.items():
        if key in hints:
            read(key, value, hints[key], default=defaults[key])


def setting_names(algorithm: str | None = None) -> set[str]:
    """Return the keys of all settings for an algorithm; None: over all algorithms."""
    algorithms = settings_classes().values() if algorithm is None else (settings_class_of(algorithm),)
    tables = [RunConfig, EnvConfig, RuntimeConfig, *algorithms]
    of_league = (f"{LEAGUE}{name}" for name in hints_of(LeagueConfig))
    return {"league", *of_league, *(name for table in tables for name in hints_of(table))}


def _refuse_unsupported(settings: type[AlgorithmSettings], algorithm: str, given: set[str]) -> None:
    """Refuse given keys that the algorithm does not support, even if their values are the defaults."""
    for key, instead in settings.unsupported_runtime_keys.items():
        if key in given:
            raise ConfigError(f"{key} is given, which is not supported by {algorithm}: {instead}")


def _set_runtime_defaults(table: dict[str, Any], settings: type[AlgorithmSettings], given: set[str]) -> None:
    """Remove the preset's keys that the runtime does not support, and set the defaults that depend on the algorithm or
    on the runtime.

    The number of workers is written to the config, because another machine may have more cores.

    Raises:
        ConfigError: the runtime refuses a given key, or `actors` is given together with split = "measured".
    """
    entry = runtime_entry(table.get("runtime", RuntimeConfig.runtime))
    for key in OPTIONAL_KEYS:
        if key not in given and key not in entry.supports:
            table.pop(key, None)
    for key in entry.refuses:
        if key in given:
            raise refused_key(key, table[key], entry)
        table.pop(key, None)
    for key, default in settings.runtime_defaults.items():
        table.setdefault(key, default)
    if entry.workers_learn:
        table.setdefault("workers", usable_cores())
    keys = {"max_lag", "split"} - settings.unsupported_runtime_keys.keys() - entry.refuses.keys()
    if entry.overlaps and "max_lag" in keys:
        table.setdefault("max_lag", entry.default_max_lag)
    if entry.overlaps and "split" in keys:
        _set_default_split(table, given)


def _set_default_split(table: dict[str, Any], given: set[str]) -> None:
    """Set split = "measured" if the user has given no part of the layout."""
    if given >= {"actors", "split"} and table["split"] == "measured":
        raise ConfigError(
            "split is measured, which chooses the number of actors, but actors is given too: leave one of them out"
        )
    layout = {"actors", "envs_per_actor", "unrolls_per_batch", "devices"}
    if not given & layout and table.get("lag", "bounded") != "exact":
        table.setdefault("split", "measured")
