"""The command that checks an env exactly as a run makes it, for messages about envs that failed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import fields

import gymnasium as gym

from offbeat.config.env import EnvConfig, adapter_prefix
from offbeat.config.importing import accepted_modules
from offbeat.core.field_texts import as_text
from offbeat.core.frozen_table import thawed, value_of

_NOT_OF_THE_ENV = ("kwargs", "wrappers", "clip_rewards", "reward_scale")
"""Keys of [env] that are no `--set` of the command, or change only what is learned from."""
_LIBRARIES = ("gymnasium", "ale_py", "offbeat")
"""Packages whose envs are registered without an import by the user."""


def check_command(env_id: str, settings: EnvConfig) -> str:
    """Return `offbeat check` with the modules, arguments, wrappers and settings with which an env is made."""
    return " ".join(["offbeat check", shlex.quote(env_id), *_flags(env_id, settings)])


def _flags(env_id: str, settings: EnvConfig) -> Iterator[str]:
    for module in accepted_modules() if _needs_import(env_id) else ():
        yield f"--import {shlex.quote(module)}"
    if settings.kwargs:
        yield " ".join(["--env-kwargs", *(shlex.quote(f"{k}={_typed(v)}") for k, v in thawed(settings.kwargs).items())])
    for wrapper in settings.wrappers:
        yield f"--wrapper {shlex.quote(wrapper)}"
    usual = EnvConfig().completed(env_id)
    keys = [field.name for field in fields(EnvConfig) if field.name not in _NOT_OF_THE_ENV]
    changed = [key for key in keys if getattr(settings, key) not in (None, getattr(usual, key))]
    if changed:
        yield " ".join(["--set", *(shlex.quote(f"{key}={as_text(getattr(settings, key))}") for key in changed)])


def _needs_import(env_id: str) -> bool:
    """Whether a module of the user registers the env."""
    if ":" in env_id or adapter_prefix(env_id) or env_id not in gym.registry:
        return False
    point = gym.registry[env_id].entry_point
    module = point if isinstance(point, str) else getattr(point, "__module__", "")
    return module.partition(".")[0].partition(":")[0] not in _LIBRARIES


def _typed(value: object) -> str:
    """Return an argument of an env's constructor as it is typed: a TOML value, or a text."""
    if isinstance(value, str):
        return value if value_of(value) == value else _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_toml, value))}]"
    return as_text(value)


def _in_toml(value: object) -> str:
    """Return an item of a list."""
    return _quoted(value) if isinstance(value, str) else _typed(value)


def _quoted(text: str) -> str:
    """Return a text in quotes, as TOML reads it: unlike JSON it has no surrogates, and no DEL as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
