"""Checks of the keys of [runtime] for a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError

RESERVED = {"CPU", "GPU", "memory", "object_store_memory"}
"""Names of resources of Ray that are not custom ones."""
_PRIVATE = ("ray_address", "ray_runtime_env")
"""Keys of [runtime] that others do not get. Environment variables of the actors may be secrets."""


def require_ray(runtime: RuntimeConfig) -> None:
    """Refuse keys for a Ray cluster that the other keys do not support, or that cannot be read.

    Raises:
        ConfigError: with the remedy.
    """
    if runtime.ray_address == "":
        raise ConfigError(
            "ray_address is empty: pass, for example, --set ray_address=auto, or leave it out to start Ray for this run"
        )
    if runtime.ray_address is not None and runtime.ray_object_store_mb is not None:
        raise ConfigError(
            f"ray_object_store_mb is {runtime.ray_object_store_mb}, but ray_address is {runtime.ray_address}, and a "
            "cluster that already runs has its object stores: leave it out, and pass --object-store-memory to "
            "`ray start`"
        )
    _require_amounts(runtime)
    runtime_env_of(runtime)


def without_cluster(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a config.toml for others: the cluster and what prepares its nodes are none."""
    runtime = tables.get("runtime")
    if not isinstance(runtime, dict):
        return dict(tables)
    return {**tables, "runtime": {key: "none" if key in _PRIVATE else value for key, value in runtime.items()}}


def _require_amounts(runtime: RuntimeConfig) -> None:
    """Refuse amounts of resources that Ray does not support."""
    custom = [item.split("=") for item in runtime.ray_resources or ()]
    if reserved := sorted(RESERVED.intersection(name for name, _ in custom)):
        raise ConfigError(
            f"ray_resources has {', '.join(reserved)}, which is not a custom resource: pass ray_cpus or ray_gpus, or "
            "the name of another resource"
        )
    amounts = {"ray_cpus": runtime.ray_cpus, "ray_gpus": runtime.ray_gpus}
    for name, amount in [*amounts.items(), *((f"the resource {name}", float(amount)) for name, amount in custom)]:
        if amount is not None:
            require_amount(name, amount)


def require_amount(name: str, amount: float) -> None:
    """Refuse an amount of a resource that Ray does not support.

    Raises:
        ConfigError: with the next larger amount.
    """
    if amount > 1 and amount != int(amount):
        raise ConfigError(f"{name} is {amount:g}, but Ray supports fractions only below 1: pass {int(amount) + 1}")


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
