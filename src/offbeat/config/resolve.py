"""Puts a config together: from a config.toml, or from defaults, the preset, flags and `--set`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.preset_files import preset_tables
from offbeat.config.registry import ALGORITHMS, TABLES, algorithm_entry, import_modules
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig, refused_key
from offbeat.config.runtimes import OPTIONAL_KEYS, runtime_entry
from offbeat.config.settings import AlgorithmSettings
from offbeat.config.trust import code_of, require
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.fields import build, hints_of, read
from offbeat.core.threads import usable_cores

OPTIONS = "docs/reference/options.md"
"""Where all keys are listed."""


def load(path: Path) -> Config:
    """Read a config.toml, and import what it names.

    Raises:
        ConfigError: it is missing, no TOML, has a key or value that is not accepted, or names code that is neither
            installed nor named by the caller (see ``trust.py``).
    """
    tables = read_tables(path)
    _run_of(tables, str(path))
    require(code_of(tables), str(path))
    return _from_tables(tables, str(path))


def load_run(path: Path) -> RunConfig:
    """Read only the table [run] of a config.toml: no algorithm is needed for it, and so no torch.

    Raises:
        ConfigError: as `load`.
    """
    return _run_of(read_tables(path), str(path))


def read_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a config.toml, as they stand there.

    Raises:
        ConfigError: it is missing, or no TOML.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file: give a run directory, as `offbeat train` makes one")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise ConfigError(f"{path} {what}: give a run directory, as `offbeat train` makes one") from None
    except (ValueError, RecursionError) as error:  # of numbers with thousands of digits, ValueError itself
        raise ConfigError(f"{path} is not TOML ({error}): restore it from the run that wrote it") from None


def _run_of(tables: Mapping[str, Any], where: str) -> RunConfig:
    return build(RunConfig, tables.get("run", {}), f"{where}, table [run]")


def _from_tables(tables: Mapping[str, Any], where: str) -> Config:
    run = _run_of(tables, where)
    import_modules(run.imports)
    settings_class = _settings_class(run.algorithm)
    for name in tables:
        if name not in (*TABLES, run.algorithm):
            raise unknown("table", name, (*TABLES, run.algorithm), f"See {where}.")
    env = build(EnvConfig, tables.get("env", {}), f"{where}, table [env]")
    runtime = build(RuntimeConfig, tables.get("runtime", {}), f"{where}, table [runtime]")
    settings = build(settings_class, tables.get(run.algorithm, {}), f"{where}, table [{run.algorithm}]")
    return Config(run, runtime, settings, env.completed(run.env))


# --- from the command line ----------------------------------------------------------------------------------


def resolve(
    algorithm: str,
    env: str,
    *,
    preset: str | None = None,
    flags: Mapping[str, object] | None = None,
    assignments: Mapping[str, object] | None = None,
) -> Config:
    """Put a config together: defaults, then the preset, then flags and `--set` assignments.

    Without `preset`, the one for this algorithm and env applies, if there is one.

    Raises:
        ConfigError: a name or value is not accepted, or one key is given twice.
    """
    if not isinstance(env, str):
        raise ConfigError(f"env is {env!r}, but the id of an env is expected, such as 'CartPole-v1': register yours")
    _check_run_flags(flags or {})
    typed = {**(assignments or {}), **(flags or {})}
    import_modules(read("imports", typed.get("imports", ()), hints_of(RunConfig)["imports"]))
    algorithm_entry(algorithm)
    runtime_entry(read("runtime", typed.get("runtime", RuntimeConfig.runtime), hints_of(RuntimeConfig)["runtime"]))
    tables = preset_tables(algorithm, env, preset)
    settings_class = _settings_class(algorithm)
    homes = {
        **dict.fromkeys(hints_of(settings_class), algorithm),
        **dict.fromkeys(hints_of(RuntimeConfig), "runtime"),
        **dict.fromkeys(hints_of(EnvConfig), "env"),
        **dict.fromkeys(hints_of(RunConfig), "run"),
    }
    for name in ("algorithm", "env", "preset"):
        del homes[name]
    given: set[str] = set()
    for source in (flags or {}, assignments or {}):
        for key, value in source.items():
            if key not in homes:
                raise unknown("key", key, homes, f"`offbeat train --help` lists flags; {OPTIONS} lists keys.")
            if key in given:
                raise ConfigError(f"{key} is given twice, by a flag and by --set: keep one of them")
            given.add(key)
            tables.setdefault(homes[key], {})[key] = value
    tables["run"].update(algorithm=algorithm, env=env)
    runtime, settings = tables.setdefault("runtime", {}), tables.setdefault(algorithm, {})
    _refuse_unsupported(settings_class, algorithm, given)
    _suit_runtime(runtime, settings_class, given)
    laid_out = build(RuntimeConfig, runtime, f"{OPTIONS}, table [runtime]")
    tables[algorithm] = settings_class.suited(settings, given, laid_out)
    return _from_tables(tables, OPTIONS)


def _check_run_flags(flags: Mapping[str, object]) -> None:
    """Check the flags that need no algorithm first: a mistyped number should not wait for torch to load."""
    hints = {**hints_of(RunConfig), **hints_of(RuntimeConfig)}
    for key, value in flags.items():
        if key in hints:
            read(key, value, hints[key])


def setting_names() -> set[str]:
    """Return every key that `--set` knows, of all algorithms."""
    tables = [RunConfig, EnvConfig, RuntimeConfig, *map(_settings_class, ALGORITHMS)]
    return {name for table in tables for name in hints_of(table)}


def _settings_class(algorithm: str) -> type[AlgorithmSettings]:
    """Return the class of an algorithm's settings.

    Raises:
        ConfigError: there is no such algorithm, or a key of its settings has another meaning already.
    """
    settings = algorithm_entry(algorithm).config_class()
    taken = hints_of(RunConfig).keys() | hints_of(EnvConfig).keys() | hints_of(RuntimeConfig).keys()
    for key in hints_of(settings):
        if key in taken:
            raise ConfigError(
                f"{algorithm} has a setting {key}, which every run has: give the one of yours another name"
            )
    return settings


def _refuse_unsupported(settings: type[AlgorithmSettings], algorithm: str, given: set[str]) -> None:
    """Refuse keys that the algorithm does not support, though they say what is the default anyway."""
    for key, instead in settings.unsupported_keys.items():
        if key in given:
            raise ConfigError(f"{key} is given, which is not supported by {algorithm}: {instead}")


def _suit_runtime(table: dict[str, Any], settings: type[AlgorithmSettings], given: set[str]) -> None:
    """Leave out of a preset what the chosen runtime does not support, and fill in the defaults that depend on it.

    The number of workers stands in the config: elsewhere there may be more cores.

    Raises:
        ConfigError: the runtime refuses a key that is given, or a split is to be measured and is given.
    """
    entry = runtime_entry(table.get("runtime", RuntimeConfig.runtime))
    for key in OPTIONAL_KEYS:
        if key not in given and key not in entry.supports:
            table.pop(key, None)
    for key in entry.refuses:
        if key in given:
            raise refused_key(key, table[key], entry)
        table.pop(key, None)
    if entry.workers_learn:
        table.setdefault("workers", usable_cores())
    keys = {"max_lag", "split"} - settings.unsupported_keys.keys() - entry.refuses.keys()
    if entry.overlaps and "max_lag" in keys:
        table.setdefault("max_lag", entry.default_max_lag)
    if entry.overlaps and "split" in keys:
        _suit_split(table, given)


def _suit_split(table: dict[str, Any], given: set[str]) -> None:
    """Let the split be measured where the user has not laid it out."""
    if given >= {"actors", "split"} and table["split"] == "measured":
        raise ConfigError(
            "split is measured, which chooses the number of actors, but actors is given too: leave out one or the other"
        )
    if not given & {"actors", "envs_per_actor", "unrolls_per_batch"} and table.get("lag", "bounded") != "exact":
        table.setdefault("split", "measured")


def parse_assignments(items: list[str]) -> dict[str, str]:
    """Turn ['key=value', ...] into a dict.

    Raises:
        ConfigError: an item has no '=', or a key stands twice.
    """
    assignments: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {item!r} is no key=value: pass, for example, --set learning_rate=0.001")
        if key in assignments:
            raise ConfigError(f"--set gives {key} twice ({assignments[key]!r} and {value!r}): keep one of them")
        assignments[key] = value
    return assignments
