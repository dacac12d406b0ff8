"""The flags of the command line with which an env is made exactly as a run makes it, for messages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields

import gymnasium as gym

from offbeat.config.assignments import env_kwargs_flag, set_flag
from offbeat.config.env import EnvConfig, adapter_prefix
from offbeat.config.importing import accepted_modules

_NOT_OF_THE_ENV = ("kwargs", "eval_kwargs", "wrappers", "clip_rewards", "reward_scale")
"""Keys of [env] that are no `--set`, or change only what is learned from."""
_LIBRARIES = ("gymnasium", "ale_py", "offbeat")
"""Packages whose envs are registered without an import by the user."""


def env_flags(env_id: str, settings: EnvConfig) -> str:
    """Return the flags for the modules, arguments, wrappers and settings with which an env is made."""
    return " ".join(filter(None, _flags(env_id, settings)))


def _flags(env_id: str, settings: EnvConfig) -> Iterator[str]:
    for module in accepted_modules() if _needs_import(env_id) else ():
        yield f"--import {shlex.quote(module)}"
    yield env_kwargs_flag(settings.kwargs)
    for wrapper in settings.wrappers:
        yield f"--wrapper {shlex.quote(wrapper)}"
    usual = EnvConfig().completed(env_id)
    keys = [field.name for field in fields(EnvConfig) if field.name not in _NOT_OF_THE_ENV]
    values = {key: getattr(settings, key) for key in keys}
    yield set_flag({key: value for key, value in values.items() if value not in (None, getattr(usual, key))})


def _needs_import(env_id: str) -> bool:
    """Whether a module of the user registers the env."""
    if ":" in env_id or adapter_prefix(env_id) or env_id not in gym.registry:
        return False
    point = gym.registry[env_id].entry_point
    module = point if isinstance(point, str) else getattr(point, "__module__", "")
    return module.partition(".")[0].partition(":")[0] not in _LIBRARIES
