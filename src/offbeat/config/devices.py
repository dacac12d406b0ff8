"""The devices of several learners: which can be used together.

Whether a GPU exists is checked when the run is built, because that loads torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError


def kind_of(device: str) -> str:
    """Return the kind of a device: cpu or cuda."""
    return device.partition(":")[0]


def gpus_of(devices: Sequence[str]) -> list[str]:
    """Return the GPUs among devices, each with its number."""
    return [f"{device}:0" if device == "cuda" else device for device in devices if device != "cpu"]


def listed(devices: Sequence[str]) -> str:
    """Return devices as the command line takes them."""
    return ",".join(devices)


def require_devices(runtime: RuntimeConfig) -> None:
    """Refuse devices of the learners that contradict each other or other settings.

    Raises:
        ConfigError: with the remedy.
    """
    if runtime.devices is None:
        return
    devices, kinds = runtime.devices, sorted(set(map(kind_of, runtime.devices)))
    if not devices:
        raise ConfigError("devices is empty, but each learner needs a device: pass --set devices=cpu, or leave it out")
    if len(kinds) > 1:
        raise ConfigError(
            f"devices is {listed(devices)}, of {len(kinds)} kinds ({', '.join(kinds)}), which do not compute the same "
            "bits, so the learners would not stay equal: pass devices of one kind"
        )
    if len(devices) > runtime.shards:
        raise ConfigError(
            f"devices is {listed(devices)}, so each of {len(devices)} learners needs a shard of its own, but shards is "
            f"{runtime.shards}: pass --set shards={len(devices)}, which changes the result in its last bits, or "
            f"devices={listed(devices[: runtime.shards])}"
        )
    if runtime.device not in ("auto", *kinds):
        raise ConfigError(
            f"device is {runtime.device}, but devices is {listed(devices)}: leave --device out, or pass --device "
            f"{kinds[0]}"
        )
    if runtime.learner_workers is not None and len(devices) > 1:
        raise ConfigError(
            f"learner_workers is {runtime.learner_workers} and devices is {listed(devices)}, but learners on several "
            "devices train one policy after the other, because all must exchange rows in the same order: leave one "
            "of the two out"
        )
    if runtime.split == "measured":
        raise ConfigError(
            f"split is measured, which measures one learner, but devices is {listed(devices)}: pass --actors N and "
            "--envs-per-actor N"
        )
