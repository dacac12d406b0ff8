"""Pushing a policy and loading it again, over HTTP, through huggingface_hub, to a stand-in for the hub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import pytest
from huggingface_hub import ModelCard
from safetensors.numpy import load
from tests.sample_envs import env_zoo
from tests.support.hub_server import TOKEN, Hub, hub_server
from tests.support.mutations import rehashed
from tests.support.runs import OFFBEAT, CommandResult, contents, files_up_to, offbeat, run_python, small_run
from tests.support.warm import REPOSITORY

from offbeat.algorithms.ppo import PPOConfig
from offbeat.api.evaluate import evaluate
from offbeat.api.hub import upload as hub_module
from offbeat.api.hub.model_card import card
from offbeat.api.hub.upload import _copy_files, folder_to_upload
from offbeat.api.playing.load import load as load_policy
from offbeat.api.playing.load import load_for_env
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.config.config_file import read_tables
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.previous_inputs import previous_leaves
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.models.acting import make_policy
from offbeat.run_directory.directory import RunDirectory
from offbeat.runtime.ray import connecting

REPO = "someone/walks-well"
FILES = {
    *("weights.safetensors", "policy.json", "manifest.json", "config.toml"),
    *("evaluation.json", "return.png", "README.md"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pushed") / "run"
    return small_run(path, env="Pendulum-v1", steps=1024, eval_every=512, eval_episodes=2).path


@pytest.fixture
def hub():
    with hub_server() as server:
        yield server


class Pushed(NamedTuple):
    """What a push to a new hub has said and left behind."""

    said: CommandResult
    hub: Hub
    folder: dict[str, bytes]
    """Name -> content of the files that it wrote into the run directory."""


@pytest.fixture(scope="module")
def pushed(run, tmp_path_factory) -> Pushed:
    with hub_server() as server:
        said = typed(server, tmp_path_factory.mktemp("home"), "push", run, REPO, "--episodes", "3", "--private")
    assert said.code == 0, said.err
    return Pushed(said, server, {file.name: file.read_bytes() for file in (run / "hub").iterdir()})


@pytest.fixture
def hub_with_policy(pushed, hub) -> Hub:
    """A hub of its own for a test, with what was pushed."""
    hub.repos[REPO], hub.files[REPO] = pushed.hub.repos[REPO], dict(pushed.hub.files[REPO])
    return hub


def typed(hub: Hub, home: Path, *arguments: object, token: str | None = TOKEN, code: str = OFFBEAT) -> CommandResult:
    """Run a command, or code, in a process of its own, which knows no other hub."""
    return run_python(code, *arguments, folder=home, environment=os.environ | hub.environment(home, token))


def typed_in_fresh_python(hub: Hub, home: Path, code: str) -> CommandResult:
    command, environment = [sys.executable, "-c", code], os.environ | hub.environment(home)
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
    return CommandResult(done.returncode, done.stdout, done.stderr)


ACT = """
import sys, numpy as np, offbeat
policy = offbeat.load("hf://someone/walks-well")
observations = np.load("observations.npy")
np.save("greedy.npy", policy(observations))
np.save("sampled.npy", policy(observations, random=np.random.default_rng(3)))
print(policy.trained.env_steps, "torch" in sys.modules)
"""


def test_a_push_uploads_the_files_that_it_writes_in_one_commit(pushed):
    assert f"{pushed.hub.address}/{REPO}" in pushed.said.out
    assert set(pushed.hub.files[REPO]) == FILES
    assert pushed.hub.files[REPO] == pushed.folder
    assert len(pushed.hub.commits) == 1
    assert pushed.hub.repos[REPO]["visibility"] == "private"


def test_a_pushed_policy_is_loaded_from_the_hub_and_acts_like_the_one_that_was_pushed(run, hub_with_policy, tmp_path):
    here = load_policy(run)
    observations = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    np.save(tmp_path / "observations.npy", observations)
    loaded = typed_in_fresh_python(hub_with_policy, tmp_path, ACT)
    assert loaded.code == 0, loaded.err
    assert loaded.out.split() == [str(here.trained.env_steps), "False"]
    assert np.array_equal(np.load(tmp_path / "greedy.npy"), here(observations))
    sampled = here(observations, random=np.random.default_rng(3))
    assert np.array_equal(np.load(tmp_path / "sampled.npy"), sampled)


def test_a_policy_on_the_hub_is_evaluated(run, hub_with_policy, tmp_path):
    said = typed(hub_with_policy, tmp_path, "eval", f"hf://{REPO}", "--episodes", "2", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out) == evaluate(run, episodes=2).scores


@pytest.mark.usefixtures("pushed")
def test_a_pushed_policy_is_refused_on_a_cluster_before_ray_starts(run, monkeypatch):
    monkeypatch.setattr(connecting, "connect", None)
    said = offbeat("eval", run / "hub", "--on", "ray")
    assert said.code == 2
    assert "--on ray is given, which needs a run" in said.err


def test_a_folder_with_the_files_of_a_policy_on_the_hub_is_used_like_it(run, pushed, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for name, content in pushed.folder.items():
        (folder / name).write_bytes(content)
    observations = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    assert np.array_equal(load_policy(folder)(observations), load_policy(run)(observations))
    assert evaluate(folder, episodes=2).scores == evaluate(run, episodes=2).scores
    with pytest.raises(ConfigError, match=r"checkpoint is .best., but .*copy has only one"):
        load_policy(folder, "best")


def test_an_episode_of_a_policy_on_the_hub_is_watched(run, hub_with_policy, tmp_path):
    pytest.importorskip("imageio")
    pytest.importorskip("pygame")
    shown = [
        typed(hub_with_policy, tmp_path, "watch", policy, "--video", "episode.gif", "--seed", "3", "--max-steps", "20")
        for policy in (f"hf://{REPO}", run)
    ]
    assert [said.code for said in shown] == [0, 0], shown
    assert shown[0].out == shown[1].out
    assert "in 20 env steps, cut by --max-steps 20, written to episode.gif" in shown[0].out
    assert (tmp_path / "episode.gif").stat().st_size > 1000


def test_a_checkpoint_of_a_policy_on_the_hub_is_refused():
    with pytest.raises(ConfigError, match=r"checkpoint is 'best', but hf://someone/walks-well has only one"):
        load_policy(f"hf://{REPO}", "best")


def test_a_policy_on_the_hub_can_be_exported(hub_with_policy, tmp_path):
    said = typed(hub_with_policy, tmp_path, "export", f"hf://{REPO}", "--format", "torchscript")
    assert said.code == 0, said.err
    assert said.out.startswith("policy.pt: ppo on Pendulum-v1 after")
    assert (tmp_path / "policy.pt").is_file()


def test_a_second_push_updates_the_existing_repository(run, hub_with_policy, tmp_path):
    assert typed(hub_with_policy, tmp_path, "push", run, REPO, "--episodes", "2").code == 0
    assert json.loads(hub_with_policy.files[REPO]["evaluation.json"])["episodes"] == 2
    assert len(hub_with_policy.commits) == 1


def test_a_policy_whose_agents_have_not_played_is_refused_before_a_folder_is_written(run, tmp_path):
    copy = not_pushed(run, tmp_path)
    scores = {"episodes": 20, **dict.fromkeys(("return_mean", "return_std", "length_mean"))}
    with patch("offbeat.api.playing.scoring.score", return_value=scores):
        said = offbeat("push", copy, REPO, "--dry-run")
    assert said.code == 2
    assert "took part in the 20 episodes of the evaluation" in said.err
    assert not (copy / "hub").exists()


def not_pushed(run: Path, folder: Path) -> Path:
    """Copy a run into a folder, as it was before it was pushed."""
    copy = folder / "run"
    shutil.copytree(run, copy, symlinks=True, ignore=shutil.ignore_patterns("hub"))
    return copy


def upload_of(run: Path, **scores: float) -> AbstractContextManager[Path]:
    """The folder that a push of the only policy of a run uploads, with some scores of its own."""
    saved, policies = load_for_env(run, "latest")
    (name,) = policies
    return folder_to_upload(RunDirectory(run), saved.policies[name], policies[name], FIGURES | scores, REPO)


def test_the_cluster_of_a_run_and_the_environment_variables_of_its_actors_are_not_pushed(run, tmp_path):
    copy = not_pushed(run, tmp_path)
    config = (copy / "config.toml").read_text()
    for key, value in {"ray_address": "10.0.0.1:6379", "ray_runtime_env": '{"env_vars": {"KEY": "SECRET"}}'}.items():
        assert f'{key} = "none"' in config
        (copy / "config.toml").write_text(
            (copy / "config.toml").read_text().replace(f'{key} = "none"', f"{key} = '{value}'")
        )
    with upload_of(copy) as folder:
        assert not [
            file.name for file in folder.iterdir() for text in (b"10.0.0.1", b"SECRET") if text in file.read_bytes()
        ]
        assert read_tables(folder / "config.toml") == read_tables(run / "config.toml")


def test_pushes_of_one_run_at_the_same_time_upload_their_own_files(run, tmp_path):
    copy = not_pushed(run, tmp_path)
    before = set(copy.iterdir())

    def returned_in(folder: Path) -> float:
        assert {file.name for file in folder.iterdir()} == FILES
        return json.loads((folder / "evaluation.json").read_text())["return_mean"]

    with upload_of(copy, return_mean=1.0) as first, upload_of(copy, return_mean=2.0) as second:
        assert [returned_in(each) for each in (first, second)] == [1.0, 2.0]
    assert returned_in(copy / "hub") == 1.0
    assert set(copy.iterdir()) == {*before, copy / "hub"}


def test_pushes_that_end_at_the_same_time_leave_the_files(run, tmp_path):
    with upload_of(not_pushed(run, tmp_path)) as folder:
        shutil.copytree(folder, tmp_path / "written")

    def copy_often(_: int) -> None:
        for _ in range(30):
            _copy_files(tmp_path / "written", tmp_path / "hub")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(copy_often, range(4)))
    assert contents(tmp_path / "hub") == contents(tmp_path / "written")


@pytest.mark.parametrize("target", ["checkpoints/latest", "config.toml", "missing"])
def test_a_push_replaces_a_link_and_writes_nothing_through_it(run, tmp_path, target):
    copy = not_pushed(run, tmp_path)
    before = contents(copy)
    (copy / "hub").symlink_to(target)
    with upload_of(copy):
        pass
    assert {file.name for file in (copy / "hub").iterdir()} == FILES
    shutil.rmtree(copy / "hub")
    assert contents(copy) == before


def test_a_failed_upload_leaves_only_the_folder_hub(run, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise RunFailed("the hub is down")

    monkeypatch.setattr(hub_module, "push", refuse)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    copy = not_pushed(run, tmp_path)
    before = set(copy.iterdir())
    assert offbeat("push", copy, REPO, "--episodes", "1").err == "offbeat: the hub is down\n"
    assert set(copy.iterdir()) == {*before, copy / "hub"}


def test_a_dry_run_writes_the_folder_with_only_the_weights_needed_for_acting_and_needs_no_token(run, hub, tmp_path):
    said = typed(hub, tmp_path, "push", run, REPO, "--episodes", "1", "--dry-run", token=None)
    assert said.code == 0, said.err
    assert "nothing was uploaded" in said.out
    assert all(f"  {name}, " in said.out for name in FILES)
    assert not hub.repos
    weights = load((run / "hub/weights.safetensors").read_bytes())
    all_of_them = load((run / "checkpoints/latest/weights.safetensors").read_bytes())
    assert not [name for name in weights if "value" in name or "critic" in name]
    assert len(weights) < len(all_of_them)
    assert all(np.array_equal(array, all_of_them[name]) for name, array in weights.items())


def test_the_model_card_reports_an_evaluation_of_the_pushed_weights(run):
    said = offbeat("push", run, REPO, "--checkpoint", "best", "--episodes", "5", "--seed", "9", "--dry-run")
    assert said.code == 0
    told = offbeat("eval", run, "--checkpoint", "best", "--episodes", "5", "--seed", "9", "--json")
    figures: dict[str, Any] = json.loads(told.out)
    assert json.loads((run / "hub/evaluation.json").read_text()) == figures
    text = (run / "hub/README.md").read_text()
    data: Any = ModelCard(text).data
    assert (data.library_name, data.pipeline_tag) == ("offbeat", "reinforcement-learning")
    assert {"reinforcement-learning", "offbeat", "ppo", "Pendulum-v1"} <= set(data.tags)
    (result,) = data.eval_results
    score = f"{figures['return_mean']:.2f} +/- {figures['return_std']:.2f}"
    assert (result.metric_type, result.metric_value) == ("mean_reward", score)
    assert (result.task_type, result.dataset_name) == ("reinforcement-learning", "Pendulum-v1")
    assert f"| {score} | {figures['return_min']:.2f} |" in text
    assert f'offbeat.load("hf://{REPO}")' in text


@pytest.mark.parametrize("repo", ["walks-well", "a/b/c", "someone/walks well", "someone/-walks", "someone/"])
def test_an_invalid_repository_name_is_refused(run, repo):
    before = contents(run)
    said = offbeat("push", run, repo)
    assert said.code == 2
    assert "pass a name such as me/my-agent" in said.err
    assert contents(run) == before


def test_a_push_without_a_token_is_refused_and_changes_nothing(run, hub, tmp_path):
    before = contents(run)
    said = typed(hub, tmp_path, "push", run, REPO, token=None)
    assert said.code == 2
    assert "hf auth login" in said.err
    assert contents(run) == before


def test_a_push_with_a_read_only_token_reports_missing_write_access(run, hub, tmp_path):
    said = typed(hub, tmp_path, "push", run, REPO, "--episodes", "1", token="hf_other")
    assert said.code == 2
    assert "has no write access" in said.err
    assert "Traceback" not in said.err


def test_an_unreachable_hub_gives_an_error_message_without_traceback(run, tmp_path):
    with hub_server() as hub:
        pass
    said = typed(hub, tmp_path, "push", run, REPO, "--episodes", "1")
    assert said.code == 1
    assert "could not be uploaded" in said.err
    assert "Traceback" not in said.err
    loaded = typed(hub, tmp_path, code=ACT)
    assert "ConfigError: hf://someone/walks-well cannot be loaded" in loaded.err
    assert "the hub did not answer: try again with a network" in loaded.err


def test_a_push_of_a_missing_checkpoint_is_refused(run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    said = offbeat("push", run, REPO, "--checkpoint", "step-000000000001")
    assert said.code == 2
    assert "has no checkpoint" in said.err
    assert offbeat("push", run / "nowhere", REPO).code == 2


def test_a_push_evaluates_with_the_arguments_of_evaluations_and_says_so(tmp_path):
    run = small_run(tmp_path / "run", steps=256, eval_kwargs={"sutton_barto_reward": True}).path
    assert offbeat("push", run, REPO, "--episodes", "1", "--dry-run").code == 0
    assert json.loads((run / "hub/evaluation.json").read_text())["returns"] == [-1]
    assert (
        "the env had other arguments than in the training: `{'sutton_barto_reward': True}`"
        in (run / "hub/README.md").read_text()
    )


def test_a_run_without_returns_is_not_pushed_and_not_changed(tmp_path):
    run = small_run(tmp_path / "run", env="Pendulum-v1", steps=64, eval_every=0).path
    before = contents(run)
    said = offbeat("push", run, REPO, "--episodes", "1", "--dry-run")
    assert said.code == 2
    assert "has no returns yet" in said.err
    assert contents(run) == before


@pytest.mark.parametrize("size", [0, 32_000], ids=["all files", "the picture"])
def test_a_push_on_a_full_disk_is_one_message_and_keeps_the_earlier_folder(run, tmp_path, size):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    shutil.rmtree(copy / "hub", ignore_errors=True)
    (copy / "hub").mkdir()
    (copy / "hub" / "README.md").write_text("the earlier one")
    before = contents(copy)
    with files_up_to(size):
        said = offbeat("push", copy, REPO, "--episodes", "1", "--dry-run")
    assert said.code == 1
    assert "temporary folder of the push could not be written (File too large): raise the limit of file" in said.err
    assert contents(copy) == before


def test_a_file_modified_on_the_hub_is_not_loaded(hub_with_policy, tmp_path):
    files = hub_with_policy.files[REPO]
    weights = files["weights.safetensors"]
    files["weights.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    loaded = typed(hub_with_policy, tmp_path, code=ACT)
    assert loaded.code == 1
    assert "SHA-256 differs" in loaded.err


def test_loading_a_repository_without_an_offbeat_policy_is_refused(hub, tmp_path):
    hub.files[REPO] = {"README.md": b"nothing of ours"}
    loaded = typed(hub, tmp_path, code=ACT)
    assert "has no manifest.json" in loaded.err


def test_the_code_snippet_on_the_model_card_runs(hub_with_policy, tmp_path):
    snippet = hub_with_policy.files[REPO]["README.md"].decode().split("```python\n")[1].split("```")[0]
    said = typed(hub_with_policy, tmp_path, code=snippet + "\nprint(action.shape)")
    assert said.out == f"{gym.make('Pendulum-v1').action_space.shape}\n"


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("zoo/TreeObservations-v0", {"wrappers": ["gymnasium.wrappers:FlattenObservation"]}),
        ("tests.sample_envs.env_zoo:DictObservations", {}),
        ("zoo/MaskInInfo-v0", {}),
        ("offbeat/Recall-v0", {"env_kwargs": {"cues": 6}}),
    ],
)
def test_the_code_snippet_on_the_model_card_makes_the_env_of_the_training(env, settings, tmp_path):
    """In a process of its own, in which nobody has imported or registered an env."""
    path = small_run(tmp_path / "run", env, steps=64, imports=(env_zoo.__name__,), **settings).path
    snippet = card(load_policy(path), FIGURES, REPO, (env_zoo.__name__,)).split("```python\n")[1].split("```")[0]
    load = f"policy = offbeat.load({str(path)!r}, trust_code=True)"
    lines = [load if line.startswith("policy = ") else line for line in snippet.splitlines()]
    assert load in lines
    code = "\n".join([f"import sys; sys.path.append({str(REPOSITORY)!r})", *lines, "print(action in env.action_space)"])
    assert run_python(code, folder=tmp_path).out == "True\n"


def test_the_code_snippet_on_the_model_card_makes_no_env_that_gymnasium_does_not_know():
    spec = PPOConfig().policy_spec(EnvSpec("envpool:Walks", (Leaf("observation", (3,), "float32"),), STEER, columns=1))
    text = card(LoadedPolicy(make_policy(spec), Trained("envpool:Walks", "ppo", 1, 2, 3)), FIGURES, REPO)
    assert "action = policy(observation)" in text
    assert "gym.make(" not in text


@pytest.mark.parametrize("env", ["Walks-v0", "envpool:Walks"])
def test_the_code_snippet_on_the_model_card_passes_the_encoder_of_the_user(env):
    config = PPOConfig(encoder="tests.support.own_code:Rows")
    spec = config.policy_spec(EnvSpec(env, (Leaf("observation", (3,), "float32"),), STEER, columns=1))
    text = card(LoadedPolicy(make_policy(spec), Trained(env, "ppo", 1, 2, 3)), FIGURES, REPO)
    assert "from tests.support.own_code import Rows\n" in text
    assert f'offbeat.load("hf://{REPO}", encoder=Rows)' in text


STEER = ActionSpec("discrete", (), (6,))
FIGURES = {
    "return_mean": 1.0,
    "return_std": 0.5,
    "return_min": 0.0,
    "return_max": 2.0,
    "length_mean": 3.0,
    "episodes": 4,
}


@pytest.mark.parametrize(("stack", "said"), [(1, False), (3, True)])
def test_the_model_card_explains_policy_reset_for_stateful_policies(stack, said):
    leaf = Leaf("observation", (84, 84), "uint8", stack=stack)
    spec = PPOConfig().policy_spec(EnvSpec("PongNoFrameskip-v4", (leaf,), ActionSpec("discrete", (), (6,)), columns=1))
    loaded = LoadedPolicy(make_policy(spec), Trained("PongNoFrameskip-v4", "ppo", 1, 2, 3))
    text = card(loaded, FIGURES, "someone/pong")
    assert ("call `policy.reset()` at the start of each episode" in text) is said
    assert "single grayscale frames of 84 x 84 bytes" in text


@pytest.mark.parametrize("reward", [False, True])
def test_the_model_card_says_whether_a_policy_needs_the_last_reward(reward):
    action = ActionSpec("discrete", (), (6,))
    leaves = (Leaf("observation", (3,), "float32"), *previous_leaves(action, action=True, reward=reward))
    spec = PPOConfig().policy_spec(EnvSpec("Walks-v0", leaves, action, columns=1))
    text = card(LoadedPolicy(make_policy(spec), Trained("Walks-v0", "ppo", 1, 2, 3)), FIGURES, "someone/walks")
    assert "call `policy.reset()` at the start of each episode" in text
    assert ("It needs the last reward: call `policy(observation, reward=reward)`" in text) is reward


@pytest.mark.parametrize(("frame_skip", "said"), [(None, False), (1, False), (4, True)])
def test_the_model_card_says_how_often_to_repeat_an_action(frame_skip, said):
    leaf, action = Leaf("observation", (3,), "float32"), ActionSpec("discrete", (), (6,))
    spec = PPOConfig().policy_spec(EnvSpec("Walks-v0", (leaf,), action, columns=1))
    trained = Trained("Walks-v0", "ppo", 1, 2, 3, env_config=EnvConfig(frame_skip=frame_skip))
    text = card(LoadedPolicy(make_policy(spec), trained), FIGURES, "someone/walks")
    assert ("repeat each action in 4 steps of the env" in text) is said


def test_loading_from_the_hub_runs_no_code_named_in_the_policy(hub_with_policy, tmp_path):
    files = hub_with_policy.files[REPO]
    saved = json.loads(files["policy.json"])
    saved["policy"]["encoder"] = "stranger:call"
    files["policy.json"] = json.dumps(saved).encode()
    files["manifest.json"] = rehashed(
        {name: files[name] for name in ("policy.json", "weights.safetensors", "manifest.json")}
    )
    (tmp_path / "stranger.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    said = typed(hub_with_policy, tmp_path, "export", f"hf://{REPO}")
    assert said.code == 2, said
    assert "would import stranger, and call stranger:call as its encoder" in said.err
    assert "--trust-code" in said.err
    assert not (tmp_path / "imported").exists()
