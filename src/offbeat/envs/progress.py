"""Envs that are told how far the training has come, and whose parameters a curriculum sets.

An env listens by having a method ``set_progress(fraction)``, 0 at the begin of training and 1 at its end. The values of
a curriculum are handed to its method ``set_parameters(**values)``, or else written to its attributes of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from offbeat.config.curriculum import Parameter
from offbeat.core.errors import ConfigError

AnyEnv = gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]
ProgressSetter = Callable[[float], None]


def progress_setters(envs: Sequence[AnyEnv], curriculum: Sequence[Parameter], env_id: str) -> list[ProgressSetter]:
    """Return what sets the progress of the envs: nothing for those that do not listen.

    Raises:
        ConfigError: an env does not have a parameter of the curriculum.
    """
    listening = [getattr(_with(env, "set_progress"), "set_progress", None) for env in envs]
    setters = [listen for listen in listening if listen is not None]
    if curriculum:
        setters += [_setter(env, curriculum, env_id) for env in envs]
    return setters


def _setter(env: AnyEnv, curriculum: Sequence[Parameter], env_id: str) -> ProgressSetter:
    """Return what sets an env's parameters to their values at a progress."""
    setter = getattr(_with(env, "set_parameters"), "set_parameters", None)
    owners = {parameter.name: _with(env, parameter.name) for parameter in curriculum}
    for name, owner in owners.items():
        if setter is None and owner is None:
            raise ConfigError(
                f"curriculum sets {name}, but {env_id} has no such attribute: give it one, or a method "
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


def _with(env: Any, name: str) -> Any:
    """Return the env, or the outermost wrapper around it, that has an attribute of its own; None where none does."""
    while isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
        if name in vars(env) or hasattr(type(env), name):
            return env
        env = env.env
    return env if hasattr(env, name) else None
