"""Reads a config.toml: all of it as a `Config`, or a part of it that needs no algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.importing import import_modules
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.other_libraries import other_calls
from offbeat.config.policies import read_policies
from offbeat.config.policy_agents import Assignment
from offbeat.config.registry import TABLES, algorithm_entry
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.settings import AlgorithmSettings
from offbeat.config.trust import code_of, require
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import build
from offbeat.core.toml_files import read_toml


def load(path: Path) -> Config:
    """Read a config.toml, and import the modules that it names.

    Raises:
        ConfigError: the file is missing, is not TOML, has an invalid key or value, or names code that is neither
            installed nor named by the caller (see ``trust.py``).
    """
    tables = read_tables(path)
    _run_of(tables, str(path))
    require(code_of(tables), str(path))
    return from_tables(tables, str(path))


def load_run(path: Path) -> RunConfig:
    """Read only the table [run] of a config.toml. No algorithm is imported, and so no torch.

    Raises:
        ConfigError: as `load`.
    """
    return _run_of(read_tables(path), str(path))


def load_runtime(path: Path) -> RuntimeConfig:
    """Read only the table [runtime] of a config.toml. No algorithm is imported, and so no torch.

    Raises:
        ConfigError: as `load`.
    """
    return _runtime_of(read_tables(path), str(path))


def load_settings_of(path: Path, policy: str) -> dict[str, object]:
    """Read only the algorithm's table of a config.toml, with a policy's own values, unchecked. No code is imported.

    Raises:
        ConfigError: the file is missing, is not TOML, or has no such tables.
    """
    tables, where = read_tables(path), str(path)
    algorithm = _run_of(tables, where).algorithm
    policies = read_policies(tables.get("policies", {}), where)
    table = tables.get(algorithm, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where}, table [{algorithm}] is {table!r}: restore the file as the run wrote it")
    return {**table, **(policies[policy].settings if policy in policies else {})}


def read_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a config.toml, unchecked.

    Raises:
        ConfigError: the file is missing, or is not TOML.
    """
    expected = "pass a run directory that `offbeat train` has created"
    return read_toml(path, str(path), if_unreadable=expected, if_invalid="restore the file as the run wrote it")


def _runtime_of(tables: Mapping[str, Any], where: str) -> RuntimeConfig:
    return build(RuntimeConfig, tables.get("runtime", {}), f"{where}, table [runtime]")


def _run_of(tables: Mapping[str, Any], where: str) -> RunConfig:
    return build(RunConfig, tables.get("run", {}), f"{where}, table [run]")


def from_tables(tables: Mapping[str, Any], where: str, assignment: Assignment | None = None) -> Config:
    """Build the config, and import the modules that it names.

    Args:
        tables: the tables, as in a config.toml.
        where: where they come from, for messages.
        assignment: chooses the policies of an env with several agents.

    Raises:
        ConfigError: a table, key or value is invalid.
    """
    run = _run_of(tables, where)
    import_modules(run.imports)
    settings_class = settings_class_of(run.algorithm)
    for name in tables:
        if name not in (*TABLES, run.algorithm):
            raise unknown("table", name, (*TABLES, run.algorithm), f"See {where}.")
    env = build(EnvConfig, tables.get("env", {}), f"{where}, table [env]")
    runtime = _runtime_of(tables, where)
    settings = build(settings_class, tables.get(run.algorithm, {}), f"{where}, table [{run.algorithm}]")
    policies = read_policies(tables.get("policies", {}), where)
    league = league_of(tables, where)
    if league is not None and league.outcome and league.outcome not in env.info_metrics:
        env = replace(env, info_metrics=(*env.info_metrics, league.outcome))
    return Config(run, runtime, settings, env.completed(run.env), policies, league, assignment)


def league_of(tables: Mapping[str, Any], where: str) -> LeagueConfig | None:
    """Return the table [league]; None if there is none."""
    if "league" not in tables:
        return None
    given, source = tables["league"], f"{where}, table [league]"
    for key in given if isinstance(given, Mapping) else ():
        if key in other_calls() and key not in hints_of(LeagueConfig):
            raise ConfigError(f"unknown key '{LEAGUE}{key}': {other_calls()[key]}. See {source}.")
    return build(LeagueConfig, given, source, prefix=LEAGUE)


def settings_class_of(algorithm: str) -> type[AlgorithmSettings]:
    """Return the class of an algorithm's settings.

    Raises:
        ConfigError: the algorithm is not registered, or one of its keys is already a key of another table.
    """
    settings = algorithm_entry(algorithm).config_class()
    taken = hints_of(RunConfig).keys() | hints_of(EnvConfig).keys() | hints_of(RuntimeConfig).keys()
    for key in hints_of(settings):
        if key in taken:
            raise ConfigError(
                f"{algorithm} has a setting {key}, which is already a setting of every run: rename the algorithm's"
            )
    return settings
