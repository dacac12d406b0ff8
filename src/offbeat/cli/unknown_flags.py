"""The error for a flag that a command does not take."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offbeat.cli.words import is_flag
from offbeat.config.env import EnvConfig
from offbeat.config.keys import CONSTRUCTOR_TABLES
from offbeat.config.league import LEAGUE
from offbeat.config.other_libraries import names_like
from offbeat.config.registry import ALGORITHMS
from offbeat.config.resolve import setting_names
from offbeat.config.unknown_keys import ARGUMENTS, unknown_key
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import hints_of


def unknown_flag(command: str, flags: Collection[str], name: str, value: str, positional: Sequence[str]) -> ConfigError:
    """Return the error for an unknown flag: it names the setting, or what other libraries call it.

    Args:
        command: the name of the command.
        flags: those that it takes.
        name: the flag.
        value: what follows it.
        positional: the positional arguments before it.
    """
    key, remedy = name.lstrip("-").replace("-", "_"), f"`offbeat {command} --help` shows the flags."
    if "--set" in flags and name.startswith("--"):
        settings = _settings_of(command)
        if setting := next((each for each in (key, f"{LEAGUE}{key}") if each in settings), None):
            value = "" if is_flag(value) else value
            table = CONSTRUCTOR_TABLES.get(setting)
            assigned = f"{setting}={value or 'VALUE'}" if table is None else f"{table}{value or 'NAME=VALUE'}"
            perhaps = ", if a resume may change it" if command == "resume" else ""
            return ConfigError(f"{name} is not a flag, but a setting: pass --set {assigned}{perhaps}")
        arguments = () if command == "check" else ARGUMENTS
        if any(ours in (*settings, *arguments) for other in names_like(key) for ours in other.ours):
            algorithm = next((name for name in positional[:1] if name in ALGORITHMS), None)
            text = None if is_flag(value) else value
            return unknown_key(key, text, _settings_of(command, algorithm), remedy, kind=f"flag {name!r}")
    return unknown("flag", name, (*flags, "--help"), remedy, likeness=0.7)


def _settings_of(command: str, algorithm: str | None = None) -> Collection[str]:
    """Return the keys that the `--set` of a command takes; `algorithm` None: those of all algorithms."""
    return hints_of(EnvConfig) if command == "check" else setting_names(algorithm)
