"""Assignments as they are typed: `--set key=value ...` and `--env-kwargs NAME=VALUE ...`."""

from __future__ import annotations

from collections.abc import Iterable

from offbeat.config.env import KWARGS
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import value_of


def parse_assignments(items: Iterable[str]) -> dict[str, object]:
    """Turn ['key=value', ...] into a dict of texts. Arguments of the env's constructor are TOML values or texts.

    Raises:
        ConfigError: an item has no '=', or a key is given twice.
    """
    texts = _named_texts(items, "--set", "key=value", example="learning_rate=0.001")
    return {key: value_of(text) if key.startswith(KWARGS) else text for key, text in texts.items()}


def parse_env_kwargs(items: Iterable[str]) -> dict[str, object]:
    """Turn ['name=value', ...] into arguments of the env's constructor: TOML values or texts.

    Raises:
        ConfigError: an item has no '=', or a name is given twice.
    """
    texts = _named_texts(items, "--env-kwargs", "NAME=VALUE", example="size=8")
    return {name: value_of(text) for name, text in texts.items()}


def _named_texts(items: Iterable[str], flag: str, form: str, *, example: str) -> dict[str, str]:
    """Split the items of a flag at their first '='. Refuse an item without one, and a name that is given twice."""
    texts: dict[str, str] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise ConfigError(f"{flag} {item!r} is not {form}: pass, for example, {flag} {example}")
        if name in texts:
            raise ConfigError(f"{flag} gives {name} twice ({texts[name]!r} and {text!r}): pass only one of them")
        texts[name] = text
    return texts


def given_twice(key: str) -> ConfigError:
    """Return the error for a key that is given by a flag and by `--set`."""
    return ConfigError(f"{key} is given twice, by a flag and by --set: pass only one of them")
