"""The types of a run's settings, and what they say of the values of a search."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from offbeat.config.env import EnvConfig
from offbeat.config.keys import is_argument, setting_of
from offbeat.config.league import LEAGUE, LeagueConfig
from offbeat.config.registry import algorithm_entry
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import read
from offbeat.experiments.search import Choices, Over, Range, refuse_duplicates


def setting_hints(algorithm: str) -> dict[str, Any]:
    """Return key -> type hint, for all settings of a run."""
    tables = (RunConfig, EnvConfig, RuntimeConfig, algorithm_entry(algorithm).config_class())
    return {key: hint for table in tables for key, hint in hints_of(table).items()}


def kind_of(hint: Any) -> Any:
    """Return the type without bounds and without 'or none'."""
    if get_origin(hint) is Annotated:
        return kind_of(get_args(hint)[0])
    options = [option for option in get_args(hint) if option is not NoneType]
    return kind_of(options[0]) if len(options) == 1 and NoneType in get_args(hint) else hint


def for_settings(where: str, algorithm: str, over: Over) -> Over:
    """Return a search space in which ranges of settings that accept only whole numbers have no others.

    What an argument of a constructor accepts is not known: its range has whole numbers if low, high and step are
    integers.

    Args:
        where: the file of the spec, for messages.
        algorithm: name of the algorithm.
        over: the search space, whose ranges have all numbers.

    Raises:
        ConfigError: a setting with a range does not accept its numbers, or a list has a value twice, such as 0.5 and
            "1/2".
    """
    hints = setting_hints(algorithm) | {f"{LEAGUE}{key}": hint for key, hint in hints_of(LeagueConfig).items()}
    for key, values in over.items():
        if isinstance(values, Choices):
            refuse_duplicates(where, key, values.values, partial(_read, hint=hints.get(setting_of(key))))
    return {
        key: replace(values, whole=_is_whole(where, key, values, hints)) if isinstance(values, Range) else values
        for key, values in over.items()
    }


def _read(value: object, hint: Any) -> object:
    """Return a value as a setting of this type has it; unchanged if the type is unknown, or does not accept it."""
    with suppress(ConfigError):
        return value if hint is None else read("", value, hint)
    return value


def _is_whole(where: str, key: str, values: Range, hints: Mapping[str, Any]) -> bool:
    if setting_of(key) not in hints:
        return is_argument(key) and values.integers
    kind = kind_of(hints[setting_of(key)])
    if kind not in (int, float, Fraction):
        raise ConfigError(
            f"{where}: {key} is searched over a range, but does not accept numbers: list its values, {key} = [...]"
        )
    if kind is int and not values.has_whole_bounds:
        raise ConfigError(
            f"{where}: {key} accepts only whole numbers: low, high and step of its range must be whole numbers"
        )
    return kind is int
