"""Checks of the keys of [runtime] for inference workers."""

from __future__ import annotations

from offbeat.config.devices import kind_of
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import supporting
from offbeat.core.errors import ConfigError

ARRIVAL_KEYS = ("inference_timeout_ms", "inference_max_requests")
"""Keys that need inference_batching = arrival."""
KEYS = ("inference_workers", "inference_device", "inference_batching", *ARRIVAL_KEYS)
"""Keys that need inference = worker."""


def require_inference(runtime: RuntimeConfig) -> None:
    """Refuse keys of inference that the other keys do not support.

    Raises:
        ConfigError: with the remedy.
    """
    if not runtime.uses_inference:
        _refuse(runtime, KEYS, "inference is actor: pass --set inference=worker too")
        return
    if "inference_workers" not in runtime.entry.supports:
        raise ConfigError(
            f"inference is worker, which is not supported by the {runtime.runtime} runtime: leave it out, or pass "
            f"{supporting('inference_workers')}"
        )
    _require_workers(runtime)
    if runtime.inference_batching != "arrival":
        _refuse(runtime, ARRIVAL_KEYS, "inference_batching is fixed: pass --set inference_batching=arrival too")
    elif runtime.lag == "exact":
        raise ConfigError(
            "inference_batching is arrival, so which requests share a batch depends on timing, but lag is exact: pass "
            "--set inference_batching=fixed, or --lag bounded"
        )


def _refuse(runtime: RuntimeConfig, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if getattr(runtime, key) is not None:
            raise ConfigError(f"{key} is given, but {why}, or {key}=none")


def _require_workers(runtime: RuntimeConfig) -> None:
    """Refuse workers without actors, devices without workers, and with exact lag devices of different kinds."""
    workers, devices = runtime.inference_workers or 1, runtime.inference_device or ("cpu",)
    if workers > runtime.actors and runtime.split == "given":
        raise ConfigError(
            f"inference_workers is {workers}, but each serves at least one of {runtime.actors} actors: pass "
            f"--set inference_workers={runtime.actors}, or --actors {workers}"
        )
    if len(devices) > workers:
        raise ConfigError(
            f"inference_device names {len(devices)} devices for {workers} inference workers: pass "
            f"--set inference_workers={len(devices)}, or fewer devices"
        )
    kinds = sorted(set(map(kind_of, devices)))
    if len(kinds) > 1 and runtime.lag == "exact":
        raise ConfigError(
            f"inference_device names devices of {len(kinds)} kinds, {' and '.join(kinds)}, which round differently, "
            "but lag is exact: pass devices of one kind, or --lag bounded"
        )
