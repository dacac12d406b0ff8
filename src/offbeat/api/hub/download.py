"""Downloads a policy from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.core.importable import is_importable
from offbeat.run_directory.checkpoint import MANIFEST, POLICY, WEIGHTS

HUB = "hf://"
"""Prefix of the name of a policy on the Hugging Face hub."""


def is_on_hub(run: object) -> bool:
    """Whether what a user gives as a run is the name of a policy on the hub."""
    return isinstance(run, str) and run.startswith(HUB)


def require_hub() -> None:
    """Raise ConfigError if huggingface_hub is not installed."""
    if not is_importable("huggingface_hub"):
        raise ConfigError('the hub needs huggingface_hub, which is not installed: run pip install "offbeat[hub]"')


def downloaded(name: str) -> Path:
    """Download a policy from the hub and return its folder, in huggingface_hub's cache.

    Args:
        name: "hf://USER/NAME".

    Raises:
        ConfigError: the policy does not exist, or the hub cannot be reached.
    """
    require_hub()
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name.removeprefix(HUB), allow_patterns=[MANIFEST, WEIGHTS, POLICY]))
    except Exception as error:
        message = " ".join(str(error).split())
        raise ConfigError(
            f"{name} cannot be loaded ({type(error).__name__}: {message}): pass the USER/NAME of `offbeat push`; "
            "for a private repository run hf auth login first"
        ) from error
    if not (folder / MANIFEST).is_file():
        raise ConfigError(f"{name} has no {MANIFEST}: pass a repository that `offbeat push` has created")
    return folder
