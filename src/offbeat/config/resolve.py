"""Puts a config together: from a config.toml, or from defaults, the preset, flags and `--set`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from offbeat.config.env import EnvConfig, family_of
from offbeat.config.registry import ALGORITHMS, TABLES, algorithm_entry, import_modules
from offbeat.config.tables import ONLY, TAKES_TURNS, Config, RunConfig, RuntimeConfig, _takes_turns
from offbeat.config.trust import code_of, require
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.fields import build, hints_of, read
from offbeat.core.threads import usable_cores


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
    given_imports = {**(assignments or {}), **(flags or {})}.get("imports", ())
    import_modules(read("imports", given_imports, hints_of(RunConfig)["imports"]))
    algorithm_entry(algorithm)
    tables = _preset_tables(algorithm, env, preset)
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
                raise unknown(
                    "key", key, homes, "`offbeat train --help` lists flags; docs/reference/options.md lists keys."
                )
            if key in given:
                raise ConfigError(f"{key} is given twice, by a flag and by --set: keep one of them")
            given.add(key)
            tables.setdefault(homes[key], {})[key] = value
    tables["run"].update(algorithm=algorithm, env=env)
    tables.setdefault("runtime", {})
    _refuse_unused(settings_class, algorithm, given)
    _leave_out_other_runtimes(tables["runtime"], given)
    if tables["runtime"].get("runtime") == "hogwild":
        _suit_hogwild(tables["runtime"], tables.setdefault(algorithm, {}), given)
    elif settings_class.learns_from == "replay":
        _suit_replay(tables["runtime"], tables.setdefault(algorithm, {}), given)
    else:
        _suit_runtime(tables["runtime"], given)
    return _from_tables(tables, "docs/reference/options.md")


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


def _settings_class(algorithm: str) -> type[Any]:
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


def _refuse_unused(settings: type[Any], algorithm: str, given: set[str]) -> None:
    """Refuse keys that the algorithm has no use for, though they say what is the default anyway."""
    for key, instead in settings.unsupported_keys.items():
        if key in given:
            raise ConfigError(f"{key} is given, which is not supported by {algorithm}: {instead}")


def _leave_out_other_runtimes(runtime: dict[str, Any], given: set[str]) -> None:
    """Leave out of a preset what the chosen runtime does not support; what was typed is refused."""
    name = runtime.get("runtime", "serial")
    for key, runtimes in ONLY.items():
        if key not in given and name not in runtimes:
            runtime.pop(key, None)


def _suit_hogwild(runtime: dict[str, Any], settings: dict[str, Any], given: set[str]) -> None:
    """Leave out of a preset what lock-free workers do not support; what was typed is refused.

    The number of workers is told in the config: elsewhere there may be more cores.
    """
    for key, why in TAKES_TURNS.items():
        if key in given:
            raise _takes_turns(key, runtime[key], why)
        runtime.pop(key, None)
    if "max_ahead" not in given:
        settings.pop("max_ahead", None)
    _suit_ratio(settings, given)
    runtime.setdefault("workers", usable_cores())


def _suit_replay(runtime: dict[str, Any], settings: dict[str, Any], given: set[str]) -> None:
    """Let all actors act at once, also beside the learner."""
    _suit_ratio(settings, given)
    actors = read("actors", runtime.get("actors", 1), hints_of(RuntimeConfig)["actors"])
    settings.setdefault("max_ahead", actors - (runtime.get("runtime", "serial") == "serial"))


def _suit_ratio(settings: dict[str, Any], given: set[str]) -> None:
    """Let a ratio that is given take the place of the preset's."""
    ratios = given & {"utd_ratio", "steps_per_update"}
    if len(ratios) == 1:
        (other,) = {"utd_ratio", "steps_per_update"} - ratios
        settings.pop(other, None)


def _suit_runtime(table: dict[str, Any], given: set[str]) -> None:
    """Fill in the defaults that depend on the runtime: some lag to overlap in, and a measured split.

    Raises:
        ConfigError: a split is to be measured, and is given.
    """
    if table.get("runtime", "serial") == "serial":
        return
    table.setdefault("max_lag", 1)
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


# --- presets ------------------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    """Return the names of the presets that come with offbeat."""
    return sorted(p.name.removesuffix(".toml") for p in _presets().iterdir() if p.name.endswith(".toml"))


def _presets() -> Any:
    return resources.files("offbeat") / "config" / "presets"


def _preset_tables(algorithm: str, env: str, preset: str | None) -> dict[str, dict[str, Any]]:
    name = preset or _preset_for(algorithm, env)
    if name is None:
        return {"run": {}}
    if name not in preset_names():
        raise unknown("preset", name, preset_names(), "`offbeat list presets` shows them.")
    tables: dict[str, dict[str, Any]] = tomllib.loads((_presets() / f"{name}.toml").read_text())
    for table in ALGORITHMS:
        if table in tables and table != algorithm:
            raise ConfigError(f"preset {name!r} is for {table}, not {algorithm}: run offbeat train {table} {env}")
    tables.setdefault("run", {})["preset"] = name
    return tables


def _preset_for(algorithm: str, env: str) -> str | None:
    """Return the name of the preset for an algorithm and an env, or for the family of the env; None for none."""
    own, family = env.lower().replace("/", "-").replace(":", "-"), family_of(env)
    names = (f"{algorithm}-{which}" for which in (own, family) if which)
    return next((name for name in names if name in preset_names()), None)
