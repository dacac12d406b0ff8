"""Checks of the keys of [runtime] for a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError


def require_ray(runtime: RuntimeConfig) -> None:
    """Refuse keys for a Ray cluster that the other keys do not support, or that cannot be read.

    Raises:
        ConfigError: with the remedy.
    """
    if runtime.ray_address is not None and runtime.ray_object_store_mb is not None:
        raise ConfigError(
            f"ray_object_store_mb is {runtime.ray_object_store_mb}, but ray_address is {runtime.ray_address}, and a "
            "cluster that already runs has its object stores: leave it out, and pass --object-store-memory to "
            "`ray start`"
        )
    runtime_env_of(runtime)


def runtime_env_of(runtime: RuntimeConfig) -> Mapping[str, Any]:
    """Return Ray's runtime environment of the actors.

    Raises:
        ConfigError: the text is not a JSON object.
    """
    if runtime.ray_runtime_env is None:
        return {}
    try:
        table = json.loads(runtime.ray_runtime_env)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise ConfigError(
            f"ray_runtime_env is {runtime.ray_runtime_env!r}, but a JSON object is expected: pass, for example, "
            '--set \'ray_runtime_env={"env_vars": {"NAME": "value"}}\''
        )
    return table
