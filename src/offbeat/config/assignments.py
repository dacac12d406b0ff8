"""Assignments as they are typed, read and written: `--set key=value ...` and `--env-kwargs NAME=VALUE ...`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from offbeat.config.keys import is_argument, is_arguments
from offbeat.core.errors import ConfigError
from offbeat.core.typed_text import argument_text, as_text, value_of


def parse_assignments(items: Iterable[str]) -> dict[str, object]:
    """Turn ['key=value', ...] into a dict of texts. Arguments of constructors, and tables of them, are TOML values or
    texts.

    Raises:
        ConfigError: an item has no '=', or a key is given twice.
    """
    texts = _named_texts(items, "--set", "key=value", example="learning_rate=0.001")
    return {key: value_of(text) if is_arguments(key) else text for key, text in texts.items()}


def parse_env_kwargs(items: Iterable[str]) -> dict[str, object]:
    """Turn ['name=value', ...] into arguments of the env's constructor: TOML values or texts.

    Raises:
        ConfigError: an item has no '=', or a name is given twice.
    """
    texts = _named_texts(items, "--env-kwargs", "NAME=VALUE", example="size=8")
    return {name: value_of(text) for name, text in texts.items()}


def assignments_of(settings: Mapping[str, object]) -> list[str]:
    """Return settings as ['key=value', ...], which `parse_assignments` and the types of the keys turn back into them.

    Args:
        settings: key -> value; `keys.flat` turns a table of arguments of a constructor into such keys.
    """
    return [f"{key}={argument_text(value) if is_argument(key) else as_text(value)}" for key, value in settings.items()]


def set_flag(settings: Mapping[str, object]) -> str:
    """Return `--set` with the settings, quoted as for a shell; '' without settings."""
    return _flag("--set", assignments_of(settings))


def env_kwargs_flag(kwargs: Mapping[str, object]) -> str:
    """Return `--env-kwargs` with arguments of the env's constructor, quoted as for a shell; '' without arguments."""
    return _flag("--env-kwargs", [f"{name}={argument_text(value)}" for name, value in kwargs.items()])


def given_twice(key: str) -> ConfigError:
    """Return the error for a key that is given by a flag and by `--set`."""
    return ConfigError(f"{key} is given twice, by a flag and by --set: pass only one of them")


def _flag(flag: str, items: list[str]) -> str:
    return shlex.join([flag, *items]) if items else ""


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
