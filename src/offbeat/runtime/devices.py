"""The devices of a run, and how torch computes on them."""

from __future__ import annotations

from collections.abc import Sequence

from offbeat.config.config import Config
from offbeat.config.devices import gpus_of, listed
from offbeat.core.errors import ConfigError
from offbeat.core.gpu_numerics import set_gpu_numerics


def device_of(config: Config) -> str:
    """Return the torch device of the learner; with several learners, of the first.

    Raises:
        ConfigError: the config requires a GPU that torch does not find.
    """
    import torch

    devices = config.runtime.devices
    if devices is not None:
        _require_gpus(devices, torch.cuda.device_count())
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
    devices = [device for device in config.runtime.inference_device or () if device != "cpu"]
    if not devices:
        return
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if missing := _missing(devices, found):
        raise ConfigError(
            f"inference_device names {missing[0]}, but torch finds {found} CUDA GPUs here: pass --set "
            "inference_device=cpu, or a device with a smaller number"
        )


def _require_gpus(devices: Sequence[str], found: int) -> None:
    """Refuse GPUs that torch does not find; `found`: their number here."""
    if missing := gpus_of(_missing(devices, found)):
        gpus = {0: "no CUDA GPU", 1: "1 CUDA GPU, cuda:0"}.get(found, f"{found} CUDA GPUs, cuda:0 to cuda:{found - 1}")
        raise ConfigError(
            f"devices is {listed(devices)}, but {missing[0]} is not there: torch finds {gpus}. Pass only devices that "
            "are there, --set devices=cpu,cpu for example"
        )


def _missing(devices: Sequence[str], found: int) -> list[str]:
    """Return the devices that are not there, in the order given; `found`: the number of GPUs here."""
    known = {f"cuda:{number}" for number in range(found)}
    return [device for device in devices if not known.issuperset(gpus_of([device]))]
