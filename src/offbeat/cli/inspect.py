"""`offbeat check` and `offbeat doctor`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from offbeat.cli.flags import EnvKwargs, Imports, Wrappers, assigned, env_settings_of
from offbeat.cli.output import progress_bar
from offbeat.core.errors import require_at_least
from offbeat.core.fields import Count
from offbeat.core.importable import is_importable
from offbeat.core.threads import usable_cores
from offbeat.run_directory.versions import installed

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
class Check:
    """Step an env and report its problems with a remedy for each: offbeat check ENV."""

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Gymnasium id, envpool:ID, pettingzoo:ID, openspiel:NAME, or my_module:MyEnv."""
    imports: Imports = ()
    """Python module to import first; it may register envs."""
    env_kwargs: EnvKwargs = ()
    wrappers: Wrappers = ()
    set: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="KEY=VALUE ...")] = ()
    """Settings of the env, as for `offbeat train`."""
    steps: Annotated[Count, arg(metavar="N", help_behavior_hint="")] = 1000
    """Random steps of each env."""

    def run(self) -> int:
        from offbeat.config.importing import import_modules
        from offbeat.config.resolve import env_config
        from offbeat.envs.checking.check import check_env

        settings = env_config(self.given())
        import_modules(self.imports)
        require_at_least("steps", self.steps, 1)
        with progress_bar(f"stepping {self.env}", shown=True) as report:
            findings = check_env(self.env, settings=settings, steps=self.steps, report=report)
        for finding in findings:
            print(finding)
        errors = sum(finding.severity == "error" for finding in findings)
        warnings = len(findings) - errors
        print(f"{self.env}: errors {errors}, warnings {warnings}" if findings else f"{self.env}: no problems found")
        return 1 if errors else 0

    def given(self) -> dict[str, object]:
        """Return the settings of the env that were given, by key."""
        return assigned(self.set) | env_settings_of(self.env_kwargs, self.wrappers)


@dataclass(frozen=True)
class Doctor:
    """Print the versions of the installed packages, the usable cores and the GPUs."""

    def run(self) -> int:
        print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
        print(f"cores {usable_cores()} usable of {os.cpu_count()}")
        for name in ("offbeat", *REQUIRED.values()):
            print(f"{name} {installed(name) or 'missing'}")
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
