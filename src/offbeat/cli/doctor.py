"""`offbeat doctor`, and the packages that offbeat requires."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from offbeat.core.importable import is_importable
from offbeat.core.process.threads import usable_cores
from offbeat.run_directory.versions import package_version

REQUIRED = {
    "torch": "torch",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "tyro": "tyro",
    "rich": "rich",
    "safetensors": "safetensors",
    "tensorboard": "tensorboard",
    "matplotlib": "matplotlib",
    "threadpoolctl": "threadpoolctl",
    "tomli_w": "tomli-w",
}
"""Module -> package, for each dependency in pyproject.toml."""
EXTRAS = {
    "mujoco": "mujoco",
    "box2d": "Box2D",
    "atari": "ale_py",
    "envpool": "envpool",
    "agents": "mpe2",
    "openspiel": "pyspiel",
    "compiled": "numba",
    "optuna": "optuna",
    "ray": "ray",
    "video": "imageio_ffmpeg",
    "wandb": "wandb",
    "trackio": "trackio",
    "hub": "huggingface_hub",
    "export": "onnxscript",
    "dev": "pytest",
    "docs": "mkdocs",
}
"""Extra -> a module that the extra installs."""


@dataclass(frozen=True)
class Doctor:
    """Print the versions of the installed packages, the usable cores and the GPUs."""

    def run(self) -> int:
        print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
        print(f"cores {usable_cores()} usable of {os.cpu_count()}")
        for name in ("offbeat", *REQUIRED.values()):
            print(f"{name} {package_version(name) or 'missing'}")
        for extra, module in EXTRAS.items():
            print(
                f"extra {extra}: "
                + ("installed" if is_importable(module) else f'missing, pip install "offbeat[{extra}]"')
            )
        print(f"gpu {_gpus()}")
        return 0


def _gpus() -> str:
    """Return the names of the GPUs that torch can use, or the reason why they are unknown."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a system library is missing
        return f"unknown, as torch cannot be imported ({error}): pip install torch"
    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the required package that an import did not find; None if offbeat does not require it."""
    return REQUIRED.get((error.name or "").partition(".")[0])
