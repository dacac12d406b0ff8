"""The argument render_mode of an env's constructor."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from offbeat.core.errors import ConfigError


def accepts_render_mode(maker: Callable[..., Any]) -> bool:
    """Whether a class or function has an argument render_mode, or accepts any."""
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # compiled code may have no signature
        return True
    return "render_mode" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


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
