"""Arguments of an env's constructor: missing and unknown ones are refused before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

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
        flags = " ".join(f"{name}=VALUE" for name in missing)
        raise ConfigError(
            f"{env_id} needs the argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}: pass "
            f"--env-kwargs {flags}"
        )


def unknown_argument(env_id: str, key: str, names: Collection[str]) -> ConfigError:
    """Return the error for an argument that an env's constructor does not have; `names` are those that it has."""
    listed = f"Its arguments are {', '.join(names)}" if names else "It has no arguments"
    return ConfigError(f"{env_id} has no argument {key!r}.{suggestion(key, names)} {listed}")


# --- render_mode --------------------------------------------------------------------------------------------


def accepts(maker: Callable[..., Any], name: str) -> bool:
    """Whether a class or function has an argument of this name, or accepts any."""
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # compiled code may have no signature
        return True
    return name in parameters or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())


def require_render_mode(env_id: str, maker: Callable[..., Any], env: Any, render_mode: str) -> None:
    """Refuse an env that was made without the argument render_mode, and has another mode.

    Args:
        env_id: the id of the env, for messages.
        maker: the class or function that has made it.
        env: the env.
        render_mode: the mode that is needed.

    Raises:
        ConfigError: with the remedy.
    """
    own = getattr(env, "render_mode", None)
    if own != render_mode:
        use = "a window" if render_mode == "human" else "a picture"
        remedy = (
            "Give its __init__ the argument render_mode=None, and write self.render_mode = render_mode in it"
            if isinstance(maker, type)
            else "Give the function the argument render_mode=None, and pass it to the env that it makes"
        )
        raise ConfigError(
            f"{env_id} cannot be rendered here: it has no argument render_mode, and its env has render_mode {own!r}, "
            f"but {use} needs {render_mode!r}. {remedy}"
        )
