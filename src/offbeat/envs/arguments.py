"""Arguments of an env's constructor: missing and unknown ones are refused before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from offbeat.config.env import KWARGS
from offbeat.core.errors import ConfigError, suggestion

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def require_arguments(env_id: str, maker: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that a class or function does not have, and a call without those that it needs.

    Args:
        env_id: 'module:name' of the class or function.
        maker: the class or function.
        kwargs: the arguments that it will be called with.

    Raises:
        ConfigError: an argument is missing or unknown.
    """
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # compiled code may have no signature
        return
    named = [each for each in parameters if each.kind in _NAMED]
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        for key in kwargs:
            if key not in (names := [each.name for each in named]):
                raise unknown_argument(env_id, key, names)
    missing = [each.name for each in named if each.default is each.empty and each.name not in kwargs]
    if missing:
        flags = " ".join(f"{KWARGS}{name}=VALUE" for name in missing)
        raise ConfigError(
            f"{env_id} needs the argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}: pass --set {flags}, "
            "in Python kwargs={...}"
        )


def unknown_argument(env_id: str, key: str, names: Collection[str]) -> ConfigError:
    """Return the error for an argument that an env's constructor does not have; `names` are those that it has."""
    listed = f"Its arguments are {', '.join(names)}" if names else "It has no arguments"
    return ConfigError(f"{env_id} has no argument {key!r}.{suggestion(key, names)} {listed}")
