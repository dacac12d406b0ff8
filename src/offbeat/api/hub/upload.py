"""Uploads a trained policy to the Hugging Face hub. `hub/` in the run directory is a copy of the last uploaded folder:

weights.safetensors, policy.json, manifest.json   a checkpoint of the policy only; `offbeat.load` verifies it
config.toml         the settings of the run, without its Ray cluster
evaluation.json     the scores on the model card
return.png          the learning curve, as `offbeat plot` draws it
README.md           the model card
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w

from offbeat import __version__
from offbeat.api.hub.download import require_hub
from offbeat.api.hub.model_card import CURVE, EVALUATION, card
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.config.config_file import read_tables
from offbeat.config.ray import without_cluster
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.files import remedy_for
from offbeat.models.published import published_layout
from offbeat.plots.curves import draw_runs
from offbeat.run_directory import checkpoint
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
from offbeat.run_directory.directory import RunDirectory

CARD = "README.md"
FOLDER = "hub"
"""Name of the folder with the last pushed files in the run directory."""


def require_name(repo: str) -> None:
    """Refuse an invalid name of a repository.

    Raises:
        ConfigError: the name is invalid, or huggingface_hub is not installed.
    """
    require_hub()
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
        reason = "" if repo.count("/") == 1 else "the user or organisation is missing"
    except HFValidationError as error:
        reason = str(error)
    if reason:
        raise ConfigError(
            f"repo is {repo!r}, which is not the name of a repository ({reason}): pass a name such as me/my-agent"
        )


def require_token() -> None:
    """Refuse to start without a token for the hub.

    Raises:
        ConfigError: there is no token.
    """
    from huggingface_hub import get_token

    if get_token() is None:
        raise ConfigError(
            "there is no token for the hub: run hf auth login, or set HF_TOKEN to a token with write access; --dry-run "
            "needs no token"
        )


@contextmanager
def folder_to_upload(
    directory: RunDirectory, saved: SavedPolicy, loaded: LoadedPolicy, scores: Mapping[str, Any], repo: str
) -> Iterator[Path]:
    """Write the files to upload into a temporary folder, for a `with` block that uploads them.

    Each call has a folder of its own, because several policies of a run can be pushed at the same time. After the
    block, also after an error in it, copies of the files replace those in `hub/` in the run directory.

    Args:
        directory: the run directory.
        saved: the policy to upload, as in its checkpoint.
        loaded: the same policy.
        scores: its scores, as `score` has returned them, with returns.
        repo: the repository, USER/NAME.

    Raises:
        ConfigError: the run has no returns to draw; nothing was changed.
        RunFailed: the folder could not be written, for example because the disk is full.
    """
    copy = directory.path / FOLDER
    with ExitStack() as closing:
        with _failing_write_reported("the temporary folder of the push"):
            folder = Path(closing.enter_context(TemporaryDirectory(prefix="offbeat-push-")), FOLDER)
            _write(folder, directory, saved, loaded, scores, repo)
        try:
            yield folder
        finally:
            with _failing_write_reported(copy):
                _copy_files(folder, copy)


def _copy_files(folder: Path, copy: Path) -> None:
    """Copy the files of a folder, not through links. Several pushes may write the same files at the same time."""
    if copy.is_symlink() or copy.is_file():
        copy.unlink(missing_ok=True)
    copy.mkdir(exist_ok=True)
    for file in folder.iterdir():
        (copy / file.name).unlink(missing_ok=True)
        shutil.copyfile(file, copy / file.name)


@contextmanager
def _failing_write_reported(folder: Path | str) -> Iterator[None]:
    """Raise RunFailed if the folder cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise RunFailed(f"{folder} could not be written ({error.strerror or error}): {remedy_for(error)}") from error


def _write(
    folder: Path,
    directory: RunDirectory,
    saved: SavedPolicy,
    loaded: LoadedPolicy,
    scores: Mapping[str, Any],
    repo: str,
) -> None:
    """Write the files of the folder, which does not exist. The other arguments are those of `folder_to_upload`."""
    names = [entry.name for entry in published_layout(loaded.acting_policy.spec).entries]
    weights = {name: saved.weights[name] for name in names}
    checkpoint.write(folder, Checkpoint.of_one(weights, saved.about, None))
    tables = without_cluster(read_tables(directory.config_file))
    (folder / directory.config_file.name).write_text(tomli_w.dumps(tables), encoding="utf-8")
    (folder / EVALUATION).write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    draw_runs([directory.path]).savefig(folder / CURVE)
    (folder / CARD).write_text(card(loaded, scores, repo, directory.read_run().imports), encoding="utf-8")


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Upload the folder in one commit and return the URL of the repository, which is created if it does not exist.

    Raises:
        ConfigError: the token has no write access.
        RunFailed: the hub cannot be reached, or refuses the upload.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    hub = HfApi(library_name="offbeat", library_version=__version__)
    try:
        address = hub.create_repo(repo, private=private or None, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=repo, commit_message=f"Push with offbeat {__version__}")
    except Exception as error:
        message = " ".join(str(error).split())
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
            raise ConfigError(
                f"this token has no write access to {repo} ({message}): run hf auth login with a token that has "
                "write access, or push to another repository"
            ) from error
        raise RunFailed(
            f"the policy could not be uploaded to {repo} ({type(error).__name__}: {message}): run the command again"
        ) from error
    return str(address)
