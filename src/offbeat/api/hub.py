"""Uploads a trained policy to the Hugging Face hub. The uploaded folder is `hub/` in the run directory:

weights.safetensors, policy.json, manifest.json   a checkpoint of the policy only; `offbeat.load` verifies it
config.toml         the settings of the run
evaluation.json     the scores on the model card
return.png          the learning curve, as `offbeat plot` draws it
README.md           the model card
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from offbeat import __version__
from offbeat.api.download import require_hub
from offbeat.api.loaded_policy import LoadedPolicy
from offbeat.config.env import family_of
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.files import is_full
from offbeat.core.types import PREVIOUS_REWARD
from offbeat.metrics.text import algorithm_title
from offbeat.models.published import published_layout
from offbeat.plots.curves import draw_runs
from offbeat.plots.runs import read_run
from offbeat.run_directory import checkpoint
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
from offbeat.run_directory.directory import RunDirectory

EVALUATION, CURVE, CARD = "evaluation.json", "return.png", "README.md"


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
        raise ConfigError(f"repo is {repo!r}, which is not the name of a repository ({reason}): pass --repo USER/NAME")


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


def write_folder(
    directory: RunDirectory, saved: SavedPolicy, loaded: LoadedPolicy, scores: Mapping[str, Any], repo: str
) -> Path:
    """Write the folder to upload into the run directory and return its path. When complete, it replaces an older one.

    Args:
        directory: the run directory.
        saved: the policy to upload, as in its checkpoint.
        loaded: the same policy.
        scores: its scores, as `score` has returned them.
        repo: the repository, USER/NAME.

    Raises:
        ConfigError: the run has no metrics to plot yet, or no agent of the policy took part in the evaluation; nothing
            was changed.
        RunFailed: the folder could not be written, for example because the disk is full. The older one is unchanged.
    """
    if scores["return_mean"] is None:
        raise ConfigError(
            f"the agents {', '.join(loaded.trained.agents)} took part in no episode of the evaluation, so there is no "
            "score for the model card: push with more --episodes"
        )
    read_run(directory.path, "steps")  # a run without returns is refused first
    folder = directory.path / "hub"
    new, old = folder.with_name(".hub.new"), folder.with_name(".hub.old")
    shutil.rmtree(new, ignore_errors=True)
    try:
        _write(new, directory, saved, loaded, scores, repo)
        _replace_folder(folder, new, old)
    except OSError as error:
        remedy = "free some disk space" if is_full(error) else "make the run directory writable"
        raise RunFailed(f"{folder} could not be written ({error.strerror or error}): {remedy}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def _replace_folder(folder: Path, new: Path, old: Path) -> None:
    """Rename `new` to `folder`; what was there, also a link, is renamed to `old` first, and back if that fails."""
    shutil.rmtree(old, ignore_errors=True)
    old.unlink(missing_ok=True)
    if os.path.lexists(folder):
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if os.path.lexists(old):
            old.rename(folder)
        raise
    if old.is_symlink():
        old.unlink()
    shutil.rmtree(old, ignore_errors=True)


def _write(
    folder: Path,
    directory: RunDirectory,
    saved: SavedPolicy,
    loaded: LoadedPolicy,
    scores: Mapping[str, Any],
    repo: str,
) -> None:
    """Write the files of the folder, which does not exist. The other arguments are those of `write_folder`."""
    names = [entry.name for entry in published_layout(loaded.policy.spec).entries]
    weights = {name: saved.weights[name] for name in names}
    checkpoint.write(folder, Checkpoint.of_one(weights, saved.about, None))
    shutil.copyfile(directory.config, folder / directory.config.name)
    (folder / EVALUATION).write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    draw_runs([directory.path]).savefig(folder / CURVE)
    (folder / CARD).write_text(card(loaded, scores, repo), encoding="utf-8")


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
                "write access, or pass another --repo"
            ) from error
        raise RunFailed(
            f"{folder} could not be uploaded to {repo} ({type(error).__name__}: {message}): run the command again"
        ) from error
    return str(address)


# --- the model card -----------------------------------------------------------------------------------------


def card(loaded: LoadedPolicy, scores: Mapping[str, Any], repo: str) -> str:
    """Return the model card: the hub's metadata in YAML, then a page in Markdown."""
    from huggingface_hub import EvalResult, ModelCardData

    trained = loaded.trained
    score = f"{scores['return_mean']:.2f} +/- {scores['return_std']:.2f}"
    result = EvalResult(
        task_type="reinforcement-learning",
        task_name="reinforcement-learning",
        dataset_type=trained.env,
        dataset_name=trained.env,
        metric_type="mean_reward",
        metric_name="mean_reward",
        metric_value=score,
        verified=False,
    )
    metadata = ModelCardData(
        library_name="offbeat",
        pipeline_tag="reinforcement-learning",
        tags=["reinforcement-learning", "deep-reinforcement-learning", "offbeat", trained.algorithm, trained.env],
        model_name=repo.partition("/")[2],
        eval_results=[result],
    )
    return f"---\n{metadata.to_yaml()}\n---\n{_page(asdict(trained), scores, score, repo, _notes(loaded, scores))}"


def _notes(loaded: LoadedPolicy, scores: Mapping[str, Any]) -> str:
    """Return notes on how to call the policy."""
    notes = []
    if loaded.trained.agents:
        notes.append("In the evaluation, other agents of the env acted with the other policies of the same run.")
    if (trials := loaded.trained.trials) is not None:
        notes.append(
            f"The policy infers its task. The scores are those of the last of {trials.episodes} episodes in new tasks; "
            f"the mean return of the first one is {scores['first_return_mean']:.2f}. Call "
            "`policy.reset_task()` in a new task, and after each step `policy.observe(observation, action, reward, "
            "next_observation)`."
        )
    if loaded.remembers:
        notes.append("The policy has a memory: call `policy.reset()` at the start of each episode.")
    if any(leaf.name == PREVIOUS_REWARD for leaf in loaded.policy.spec.observation):
        notes.append("It needs the last reward: call `policy(observation, reward=reward)` after the first step.")
    if family_of(loaded.trained.env):
        frame = " x ".join(map(str, loaded.policy.spec.observation[0].shape[-2:]))
        notes.append(
            f"The policy expects single grayscale frames of {frame} bytes, not those of `gym.make`, and stacks them "
            "itself. `policy.trained.env_config` has the settings of the game."
        )
    elif (repeats := loaded.trained.env_config.action_repeats) > 1:
        notes.append(
            f"It was trained with `frame_skip={repeats}`: repeat each action in {repeats} steps of the env, "
            "unless the episode ends before."
        )
    return "".join(f"\n{note}\n" for note in notes)


def _example(trained: Mapping[str, Any], repo: str) -> str:
    """Return Python code that loads and calls the policy."""
    load = f"""policy = offbeat.load("hf://{repo}")  # pip install "offbeat[hub]\""""
    if trained["agents"]:
        agents = ", ".join(trained["agents"])
        return f"""import offbeat

{load}
action = policy(observations["{trained["agents"][0]}"])  # acts for {agents}"""
    return f"""import gymnasium as gym
import offbeat

{load}
env = gym.make("{trained["env"]}")
observation, _ = env.reset(seed=7)
action = policy(observation)"""


def _page(trained: Mapping[str, Any], scores: Mapping[str, Any], score: str, repo: str, notes: str) -> str:
    algorithm, env = algorithm_title(trained["algorithm"]), trained["env"]
    agents = f", for {', '.join(trained['agents'])}" if trained["agents"] else ""
    lowest, highest = f"{scores['return_min']:.2f}", f"{scores['return_max']:.2f}"
    return f"""
# {algorithm} on {env}{agents}

Trained with offbeat {__version__} over {trained["env_steps"]:,} env steps ({trained["updates"]:,} updates).

| mean return | lowest | highest | mean length | episodes |
| ---: | ---: | ---: | ---: | ---: |
| {score} | {lowest} | {highest} | {scores["length_mean"]:.1f} | {scores["episodes"]} |

Returns are undiscounted sums over whole episodes. Actions are the most likely ones. +/- is the standard deviation over
episodes. The evaluation was run for this card, with envs and seeds that were not used in training.

![Return against env steps]({CURVE})

## Use it

```python
{_example(trained, repo)}
```
{notes}
## Files

| file | what it is |
| --- | --- |
| `weights.safetensors`, `policy.json` | the policy, normalisation included; `manifest.json` has their SHA-256 |
| `config.toml` | all settings of the training run |
| `{EVALUATION}`, `{CURVE}` | the scores above, and the learning curve |
"""
