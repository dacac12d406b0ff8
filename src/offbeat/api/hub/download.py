"""Downloads a policy from the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.core.files import GivenPath, user_path
from offbeat.core.importable import is_importable
from offbeat.run_directory.checkpoint import MANIFEST, POLICY, WEIGHTS
from offbeat.run_directory.paths import is_pushed

HUB = "hf://"
"""Prefix of the name of a policy on the Hugging Face hub."""


def is_on_hub(run: object) -> bool:
    """Whether what a user gives as a run is the name of a policy on the hub."""
    return isinstance(run, str) and run.startswith(HUB)


def is_published(run: object) -> bool:
    """Whether what a user gives as a run is a policy of `offbeat push`: on the hub, or in a folder with its files."""
    return is_on_hub(run) or (isinstance(run, str | os.PathLike) and is_pushed(user_path(run)))


def published_folder(run: GivenPath) -> Path:
    """Return the folder with the files of a published policy, which are downloaded if it is on the hub.

    Raises:
        ConfigError: as `downloaded`.
    """
    return downloaded(os.fspath(run)) if is_on_hub(run) else user_path(run)


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
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name.removeprefix(HUB), allow_patterns=[MANIFEST, WEIGHTS, POLICY]))
    except Exception as error:
        message = " ".join(str(error).split())
        remedy = (
            "the hub did not answer: try again with a network and no HF_HUB_OFFLINE, or pass a folder with its files"
            if isinstance(error, LocalEntryNotFoundError)
            else "pass the USER/NAME of `offbeat push`; for a private repository run hf auth login first"
        )
        raise ConfigError(f"{name} cannot be loaded ({type(error).__name__}: {message}): {remedy}") from error
    if not (folder / MANIFEST).is_file():
        raise ConfigError(f"{name} has no {MANIFEST}: pass a repository that `offbeat push` has created")
    return folder
