"""The packages that offbeat is made of: what `offbeat doctor` lists, and what to type where one is missing."""

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
"""Extra -> a module that comes with it."""


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the package of ours that an import has not found; None where it is not one that offbeat requires."""
    return REQUIRED.get((error.name or "").partition(".")[0])
