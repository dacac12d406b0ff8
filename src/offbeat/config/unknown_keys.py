"""The error for a key that a run does not have."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Any

from offbeat.config.env import ARGUMENT_TABLES, EVAL_KWARGS, KWARGS, EnvConfig
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.other_libraries import OtherName, names_like, other_calls
from offbeat.config.registry import settings_classes
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError, suggestion
from offbeat.core.field_definitions import defaults_of, hints_of
from offbeat.core.field_texts import example_of, syntax_of
from offbeat.core.fields import read
from offbeat.core.typed_text import as_text

ARGUMENTS = {
    "callbacks": "callbacks=[my_function]",
    "progress": "--progress none",
    "run_dir": "--run-dir runs/first",
}
"""Arguments of a run that are no settings, with an example each."""

LIKENESS = 0.8
"""How alike a key and an unknown one must be: enough for typing errors, but not for names that share an ending."""


def unknown_key(
    key: str, value: object, known: Collection[str], remedy: str, *, kind: str | None = None
) -> ConfigError:
    """Return the error for an unknown key.

    It names our key if another library has the unknown one, or else the algorithms that have the key, or else the
    nearest known key.

    Args:
        key: the unknown key.
        value: its value, as it was given.
        known: all keys of the run.
        remedy: end of the message.
        kind: what is unknown, as the user gave it; by default, the key.
    """
    what = kind or f"key {key!r}"
    if meant := prefix_meant(key):
        return ConfigError(f"unknown {what}: {meant}. {remedy}")
    last = key.rpartition(".")[2]  # other libraries have tables too, as in self_play.window
    others = names_like(last) or names_like(key.partition(".")[0])
    owners = [name for name, settings in settings_classes().items() if key in hints_of(settings)]
    if others and (not owners or any(other.key_of(known) in known for other in others)):
        return ConfigError(f"unknown {what}. {_translations(others, value, known)} {remedy}")
    if (in_league := f"{LEAGUE}{last}") in known:
        league = f"it is a key of the table [league]: pass {_syntax(in_league, value)}"
        return ConfigError(f"unknown {what}: {league}. {remedy}")
    if not owners:
        if last in other_calls():
            return ConfigError(f"unknown {what}: {other_calls()[last]}. {remedy}")
        return ConfigError(f"unknown {what}.{suggestion(key, known, LIKENESS)} {remedy}")
    one = owners[0] if len(owners) == 1 else "one of these"
    return ConfigError(
        f"{key} is a setting of {', '.join(owners)}, and not of the algorithm of this run: leave it out, or train with "
        f"{one}. {remedy}"
    )


def prefix_meant(key: str) -> str:
    """Return which prefix a key of the env has, if this one has another one; else ''."""
    table, dot, name = key.partition(".")
    if table == "env" and dot:
        return (
            f"an argument of the env's constructor is {KWARGS}NAME, one in evaluations alone {EVAL_KWARGS}NAME, and "
            "other keys have no prefix"
        )
    prefix = {**ARGUMENT_TABLES, "env_kwargs": KWARGS}.get(table)
    return f"it is an argument of the env's constructor: pass --set {prefix}{name}=VALUE" if prefix and name else ""


def _translations(others: list[OtherName], value: object, known: Collection[str]) -> str:
    """Return what offbeat calls a setting of other libraries, and how to pass it."""

    def meaning(other: OtherName) -> tuple[str, str]:
        key = other.key_of(known)
        return key, other.ours[key]

    useful = [other for other in others if other.key_of(known) in known] or others
    meanings = [list(same) for _, same in groupby(sorted(useful, key=meaning), key=meaning)]
    one = len(meanings) == 1
    return " ".join(_translation(same, value, known, is_only_meaning=one) for same in meanings)


def _translation(same: list[OtherName], value: object, known: Collection[str], *, is_only_meaning: bool) -> str:
    """Return the sentence about a name that means the same in several libraries."""
    ours = same[0].key_of(known)
    differs = same[0].ours[ours]
    libraries = _joined([other.library for other in same])
    name_of = f"It is a name of {libraries}, and" if is_only_meaning else f"With the meaning of {libraries},"
    called = f"{name_of} offbeat calls it {ours}"
    if ours in ARGUMENTS:
        return f"{called}. Pass {differs}; for example, {ARGUMENTS[ours]}."
    if ours not in known:
        return f"{called}, which the algorithm of this run does not have: leave it out."
    if differs and isinstance(value, int | float):  # an example beside the user's own number would look like the answer
        return f"{called}. Pass {differs}."
    if differs:
        return f"{called}. Pass {differs}; for example, {_syntax(ours, None)}."
    return f"{called}: pass {_syntax(ours, value)}."


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _syntax(key: str, value: object) -> str:
    """Return how to pass a key with a plain value, or else with an example."""
    hint, default = _hints_and_defaults().get(key, (Any, None))
    if value == "auto" and not is_valid(key, value, hint) and is_valid(key, "none", hint):
        value = "none"  # what others learn or choose by themselves with auto
    plain = isinstance(value, bool | int | float | str) and is_valid(key, value, hint)
    return syntax_of(key, hint, as_text(value) if plain else example_of(hint, default))


def is_valid(key: str, value: object, hint: Any) -> bool:
    """Return whether a setting with this type hint accepts a value."""
    try:
        read(key, value, hint)
    except ConfigError:
        return False
    return True


def _hints_and_defaults() -> dict[str, tuple[Any, Any]]:
    """Return the type hint and the default of each key."""
    tables = [*settings_classes().values(), RunConfig, RuntimeConfig, EnvConfig]
    own = {key: (hint, defaults_of(table)[key]) for table in tables for key, hint in hints_of(table).items()}
    of_league = defaults_of(LeagueConfig)
    return own | {f"{LEAGUE}{key}": (hint, of_league[key]) for key, hint in hints_of(LeagueConfig).items()}
