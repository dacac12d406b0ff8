"""What an actor needs on its node, from the keys ray_... of [runtime]."""

from __future__ import annotations

from typing import Any

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.runtime.ray.cluster import ray_options

CPUS = 1.0
"""CPUs of an actor; the default of `ray_cpus`."""
_STRATEGIES = {"pack": "DEFAULT", "spread": "SPREAD"}
"""Value of `ray_placement` -> Ray's scheduling strategy."""


def resources_of(runtime: RuntimeConfig) -> dict[str, float]:
    """Return resource -> amount that an actor needs."""
    cpus = CPUS if runtime.ray_cpus is None else runtime.ray_cpus
    wanted = {"CPU": cpus, "GPU": runtime.ray_gpus or 0.0, **custom_resources_of(runtime)}
    return {name: amount for name, amount in wanted.items() if amount}


def custom_resources_of(runtime: RuntimeConfig) -> dict[str, float]:
    """Return custom resource -> amount that an actor needs."""
    return {name: float(amount) for name, amount in (item.split("=") for item in runtime.ray_resources or ())}


def options_of(runtime: RuntimeConfig) -> dict[str, Any]:
    """Return the options with which Ray places an actor. Ray does not restart it: the supervisor does."""
    return {
        **ray_options(resources_of(runtime)),
        "scheduling_strategy": _STRATEGIES[runtime.ray_placement or "pack"],
        "max_restarts": 0,
        "max_task_retries": 0,
    }
