"""Passes the training progress to envs, and sets the parameters of a curriculum.

An env gets the progress if it has a method ``set_progress(fraction)``: 0 at the start of training, 1 at its end. The
values of a curriculum are passed to the env's method ``set_parameters(**values)``. Without such a method, its
attributes of these names are set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from offbeat.config.curriculum import Parameter
from offbeat.core.errors import ConfigError

ProgressSetter = Callable[[float], None]


def progress_setters(env: Any, curriculum: Sequence[Parameter], env_id: str) -> list[ProgressSetter]:
    """Return the functions that pass the progress to an env: none if it does not use it.

    Raises:
        ConfigError: the env does not have a parameter of the curriculum.
    """
    method = getattr(owner_of(env, "set_progress"), "set_progress", None)
    setters = [] if method is None else [method]
    if curriculum:
        setters.append(_parameter_setter(env, curriculum, env_id))
    return setters


def _parameter_setter(env: Any, curriculum: Sequence[Parameter], env_id: str) -> ProgressSetter:
    """Return the function that sets an env's parameters to their values at a given progress."""
    setter = getattr(owner_of(env, "set_parameters"), "set_parameters", None)
    owners = {parameter.name: owner_of(env, parameter.name) for parameter in curriculum}
    for name, owner in owners.items():
        if setter is None and owner is None:
            raise ConfigError(
                f"curriculum sets {name}, but {env_id} has no such attribute: add it, or a method "
                "set_parameters(**values)"
            )

    def set_values(progress: float) -> None:
        values = {parameter.name: parameter.at(progress) for parameter in curriculum}
        if setter is not None:
            setter(**values)
            return
        for name, value in values.items():
            setattr(owners[name], name, value)

    return set_values


def owner_of(env: Any, name: str) -> Any:
    """Return the outermost wrapper, or the env itself, that defines an attribute; None if none does."""
    while isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
        if name in vars(env) or hasattr(type(env), name):
            return env
        env = env.env
    return env if hasattr(env, name) else None
