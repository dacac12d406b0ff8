"""The packages that offbeat depends on: `offbeat doctor` lists them, and messages name the missing ones."""

from __future__ import annotations

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
"""Module -> package, of the dependencies in pyproject.toml."""
EXTRAS = {
    "mujoco": "mujoco",
    "box2d": "Box2D",
    "atari": "ale_py",
    "envpool": "envpool",
    "optuna": "optuna",
    "video": "imageio_ffmpeg",
    "wandb": "wandb",
    "trackio": "trackio",
    "hub": "huggingface_hub",
    "export": "onnxscript",
    "dev": "pytest",
    "docs": "mkdocs",
}
"""Extra -> a module that the extra installs."""


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the required package that an import did not find; None if offbeat does not require it."""
    return REQUIRED.get((error.name or "").partition(".")[0])
