"""The error for a flag that a command does not take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from offbeat.cli.words import is_flag, take
from offbeat.config.assignments import parse_assignments
from offbeat.config.env import EnvConfig
from offbeat.config.keys import CONSTRUCTOR_TABLES
from offbeat.config.league import LEAGUE
from offbeat.config.other_libraries import names_like
from offbeat.config.registry import ALGORITHMS
from offbeat.config.resolve import setting_names
from offbeat.config.unknown_keys import ARGUMENTS, unknown_key
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.field_definitions import hints_of

TAKES_SETTINGS = ("train", "resume", "bench", "check")
"""Commands that have `--set`."""
MostValues = Mapping[str, int | None]
"""Flag -> how many values may follow it; None: any number."""
Words = tuple[str, list[str]]
"""The name of a flag without dashes, with _ for -, and its values; or '' and a positional argument."""


def unknown_flag(
    command: str, flags: MostValues, name: str, value: str, positional: Sequence[str], given: Sequence[str]
) -> ConfigError:
    """Return the error for an unknown flag: it names the setting, or what other libraries call it.

    Args:
        command: the name of the command.
        flags: those that it takes.
        name: the flag.
        value: what follows it.
        positional: the positional arguments before it.
        given: all words.
    """
    key, remedy = name.lstrip("-").replace("-", "_"), f"`offbeat {command} --help` shows the flags."
    if command in TAKES_SETTINGS and name.startswith("--"):
        settings = _settings_of(command)
        if setting := _setting_named(key, settings):
            value = "" if is_flag(value) else value
            if command == "resume":
                words = list(_words_in(flags, given))
                changes = _changes_in(words, settings) if value else {}
                if refused := _refused_change(words, name, setting, changes):
                    return refused
            table = CONSTRUCTOR_TABLES.get(setting)
            assigned = f"{setting}={value or 'VALUE'}" if table is None else f"{table}{value or 'NAME=VALUE'}"
            return ConfigError(f"{name} is not a flag, but a setting: pass --set {assigned}")
        arguments = () if command == "check" else ARGUMENTS
        if any(ours in (*settings, *arguments) for other in names_like(key) for ours in other.ours):
            algorithm = next((name for name in positional[:1] if name in ALGORITHMS), None)
            text = None if is_flag(value) else value
            return unknown_key(key, text, _settings_of(command, algorithm), remedy, kind=f"flag {name!r}")
    return unknown("flag", name, (*flags, "--help"), remedy, likeness=0.7)


def _settings_of(command: str, algorithm: str | None = None) -> Collection[str]:
    """Return the keys that the `--set` of a command takes; `algorithm` None: those of all algorithms."""
    return hints_of(EnvConfig) if command == "check" else setting_names(algorithm)


def _words_in(flags: MostValues, given: Iterable[str]) -> Iterator[Words]:
    """Yield each flag with its values, even one that the command does not take, and each positional argument."""
    rest = list(given)
    while rest:
        word = rest.pop(0)
        if not is_flag(word):
            yield "", [word]
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        yield flag.lstrip("-").replace("-", "_"), [value] if equals else take(rest, flags.get(flag, 1))


def _setting_named(name: str, settings: Collection[str]) -> str | None:
    """Return the key of the setting with this name, which may be one of the table [league]; None if there is none."""
    return next((key for key in (name, f"{LEAGUE}{name}") if key in settings), None)


def _changes_in(words: Iterable[Words], settings: Collection[str]) -> dict[str, object]:
    """Return the settings that a command changes, by key: with --set or with a flag, even one that it does not take.

    Args:
        words: all flags with their values.
        settings: the keys of all settings.
    """
    changes: dict[str, object] = {}
    assigned: list[str] = []
    for name, values in words:
        if name == "set":
            assigned += values
        elif values and (setting := _setting_named(name, settings)):
            changes[setting] = values[0]
    return {**changes, **parse_assignments(assigned)}


def _refused_change(words: Sequence[Words], flag: str, key: str, changes: Mapping[str, object]) -> ConfigError | None:
    """Return why the run that a command names cannot be resumed with a flag; the code of its env is not imported.

    None: it can be resumed with another value of the setting; or there is no such run. If its config cannot be read,
    such as one with an algorithm of the user's own, the error leaves open whether it can.

    Args:
        words: the positional arguments, and all flags with their values.
        flag: the flag.
        key: the setting of that name.
        changes: all settings that the command changes, by key; empty if the flag has no value.
    """
    from offbeat.config.changes import changed_config, reason_against
    from offbeat.config.config_file import from_tables, read_tables
    from offbeat.config.trust import code_of, require

    run = next((Path(values[0]) for name, values in words if not name), None)
    if run is None or not _is_run(run):
        return None
    file = run / "config.toml"
    try:
        tables = read_tables(file)
        require(replace(code_of(tables), envs=(), encoders=(), wrappers=()), str(file))
        config = from_tables(tables, str(file))
    except ConfigError:  # the command itself says why, once it is typed right
        assigned = f"--set {key}={changes.get(key, 'VALUE')}"
        return ConfigError(f"{flag} is not a flag, but a setting: if a resume may change it, pass {assigned}")
    if (refusal := reason_against(config, key)) is None:
        return None
    modules = [module for name, values in words if name == "import" for module in values]
    # The error proposes the command of a new run, which imports these modules too.
    config = replace(config, run=replace(config.run, imports=(*config.run.imports, *modules)))
    try:
        changed_config(config, changes, run)
    except ConfigError as error:
        return error
    return ConfigError(f"a resume cannot change {key}, because {refusal[0]}: leave out {flag}")


def _is_run(path: Path) -> bool:
    try:
        return (path / "config.toml").is_file()
    except OSError:  # such as a name that is too long
        return False
