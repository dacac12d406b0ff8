"""The presets that offbeat includes: the files in presets/, and the selection of one for an algorithm and an env."""

from __future__ import annotations

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from offbeat.config.env import FAMILIES, adapter_prefix, family_of
from offbeat.config.registry import ALGORITHMS, algorithm_entry
from offbeat.core.errors import ConfigError, unknown

NO_PRESET = "none"
"""Given as the name of a preset: none applies."""


def preset_names() -> list[str]:
    """Return the names of the presets that offbeat includes."""
    return sorted(p.name.removesuffix(".toml") for p in _presets().iterdir() if p.name.endswith(".toml"))


def _presets() -> Traversable:
    return resources.files("offbeat") / "config" / "presets"


def preset_tables(algorithm: str, env: str, preset: str | None) -> dict[str, dict[str, Any]]:
    """Return the tables of the named preset, or else of the preset for the algorithm and the env if there is one.

    Args:
        algorithm: name of the algorithm.
        env: id of the env.
        preset: name of the preset; `NO_PRESET`: none; None: the one for the algorithm and the env.

    A preset that is named may also be for an algorithm of which this one is a subclass.

    Raises:
        ConfigError: the preset does not exist, or is for another algorithm.
    """
    name = preset or _preset_for(algorithm, env)
    if name in (None, NO_PRESET):
        return {"run": {}}
    if name not in preset_names():
        raise unknown("preset", name, preset_names(), "`offbeat list presets` shows them; none: only the defaults.")
    tables: dict[str, dict[str, Any]] = tomllib.loads((_presets() / f"{name}.toml").read_text(encoding="utf-8"))
    for table in [table for table in tables if table in ALGORITHMS and table != algorithm]:
        if not _extends(algorithm, table):
            raise ConfigError(
                f"preset {name!r} is for {table}, not {algorithm}: train with {table}, or leave out --preset"
            )
        tables[algorithm] = tables.pop(table)
    tables.setdefault("run", {})["preset"] = name
    return tables


def _extends(algorithm: str, base: str) -> bool:
    """Return whether the class of an algorithm is a subclass of that of another one, and so has all its settings."""
    entries = algorithm_entry(algorithm), algorithm_entry(base)
    classes = [(entry.algorithm_class(), entry.config_class()) for entry in entries]
    return all(issubclass(*pair) for pair in zip(*classes, strict=True))


def _preset_for(algorithm: str, env: str) -> str | None:
    """Return the name of the preset for an algorithm and an env, or for the env's family; None if there is none.

    The module of an id, as in minigrid:MiniGrid-Empty-5x5-v0, is no part of the preset's name.
    """
    env_id = env if adapter_prefix(env) else env.rpartition(":")[2]
    own, family = env_id.lower().replace("/", "-").replace(":", "-"), family_of(env)
    named = own if own not in FAMILIES else None  # an env of someone's own with the name of a family is none of it
    names = (f"{algorithm}-{which}" for which in (named, family) if which)
    return next((name for name in names if name in preset_names()), None)
