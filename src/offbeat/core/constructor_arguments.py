"""Arguments of a constructor of the user: missing and unknown ones are refused before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from offbeat.core.errors import ConfigError, suggestion

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def require_arguments(
    name: str, maker: Callable[..., Any], kwargs: Mapping[str, Any], syntax: str, *, positional: int = 0
) -> None:
    """Refuse arguments that a class or function does not have, and a call without those that it needs.

    Args:
        name: what the class or function is called in messages.
        maker: the class or function.
        kwargs: the arguments that it will be called with, by name.
        syntax: how an argument is passed, with NAME in place of its name: a flag, a space and a pair.
        positional: the number of arguments that it will be called with before these.

    Raises:
        ConfigError: an argument is missing or unknown.
    """
    try:
        parameters = inspect.signature(maker, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # compiled code may have no signature
        return
    before = [each.name for each in parameters if each.kind in _POSITIONAL][:positional]
    named = [each for each in parameters if each.kind in _NAMED and each.name not in before]
    names = [each.name for each in named]
    accepts_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    for key in kwargs:
        if key in before or not (accepts_any or key in names):
            raise unknown_argument(name, key, names)
    missing = [each.name for each in named if each.default is each.empty and each.name not in kwargs]
    if missing:
        flag, pair = syntax.split(" ")
        pairs = " ".join(pair.replace("NAME", each) for each in missing)
        raise ConfigError(
            f"{name} needs the argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}: pass {flag} {pairs}"
        )


def unknown_argument(name: str, key: str, names: Collection[str]) -> ConfigError:
    """Return the error for an argument that a constructor does not have; `names` are those that it has."""
    listed = f"Its arguments are {', '.join(names)}" if names else "It has no arguments"
    return ConfigError(f"{name} has no argument {key!r}.{suggestion(key, names)} {listed}")
