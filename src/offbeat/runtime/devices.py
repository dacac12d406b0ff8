"""The devices of a run, and how torch computes on them."""

from __future__ import annotations

from collections.abc import Sequence

from offbeat.config.config import Config
from offbeat.config.devices import gpus_of, listed
from offbeat.core.errors import ConfigError
from offbeat.core.process.gpu_numerics import set_gpu_numerics


def device_of(config: Config) -> str:
    """Return the torch device of the learner; with several learners, of the first.

    Raises:
        ConfigError: the config requires a GPU that torch does not find.
    """
    import torch

    devices = config.runtime.devices
    if devices is not None:
        _require_gpus("devices", devices, "devices=cpu,cpu")
        return devices[0]
    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: pass --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"


def device_text(config: Config) -> str:
    """Return the devices of the learners as they are shown; if the device is auto, what was chosen and why."""
    import torch

    runtime = config.runtime
    if runtime.devices is not None or runtime.device != "auto":
        return listed(runtime.devices or [device_of(config)])
    reason = "faster for small networks; --device cuda uses the GPU" if torch.cuda.is_available() else "no GPU found"
    return f"{device_of(config)} (auto: {reason})"


def set_up_device(config: Config) -> None:
    """Let torch compute in this process as the devices and the lag of the run need.

    Raises:
        ConfigError: the config requires a GPU, and torch finds none.
    """
    for device in (device_of(config), *(config.runtime.inference_device or ())):
        set_gpu_numerics(device, exact=config.runtime.lag == "exact")


def require_inference_devices(config: Config) -> None:
    """Refuse inference devices that are not there."""
    _require_gpus("inference_device", config.runtime.inference_device or (), "inference_device=cpu")


def _require_gpus(key: str, devices: Sequence[str], instead: str) -> None:
    """Refuse GPUs that torch does not find; `key` names them, and `instead` is what could be set without them."""
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = {f"cuda:{number}" for number in range(found)}
    if missing := [gpu for gpu in gpus_of(devices) if gpu not in known]:
        gpus = {0: "no CUDA GPU", 1: "1 CUDA GPU, cuda:0"}.get(found, f"{found} CUDA GPUs, cuda:0 to cuda:{found - 1}")
        raise ConfigError(
            f"{key} is {listed(devices)}, but {missing[0]} is not there: torch finds {gpus}. Pass only devices that "
            f"are there, --set {instead} for example"
        )
