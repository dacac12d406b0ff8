"""`train`, `resume` and `load`, as Python calls them."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.support.runs import SMALL, contents, lines_of, small_run, status_of, untimed, weights_of

import offbeat
from offbeat.config.config_file import load as load_config
from offbeat.core.errors import ConfigError
from offbeat.envs.make import make_envs
from offbeat.metrics.names import GROUPS, METRICS
from offbeat.run_directory.checkpoint import load as load_checkpoint
from offbeat.run_directory.directory import RunDirectory

# --- the run directory --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> offbeat.Run:
    """A finished run with evaluations and checkpoints on the way."""
    settings: dict[str, Any] = {"eval_every": 500, "eval_episodes": 3, "checkpoint_every": 300, "seed": 5}
    return small_run(tmp_path_factory.mktemp("finished") / "run", **settings)


def test_a_run_directory_has_the_documented_files_and_no_others(run):
    assert {path.name for path in run.path.iterdir()} - {"git.diff"} == {
        *("config.toml", "command.txt", "metrics.jsonl", "status.json", "log.txt", "checkpoints", "tensorboard"),
        *(".lock", "versions.json"),
    }
    latest = run.path / "checkpoints" / "latest"
    assert {path.name for path in latest.iterdir()} == {
        *("weights.safetensors", "policy.json", "state.json", "state.safetensors", "manifest.json"),
    }
    assert latest.resolve().name == f"step-{run.metrics['env_steps']:012d}"
    assert list((run.path / "tensorboard").glob("events.out.tfevents.*"))


def test_the_status_has_the_final_state_and_the_process(run):
    status = status_of(run.path)
    assert status["state"] == run.state == "finished"
    assert status["reason"] == run.reason == f"learned from {run.metrics['env_steps']} env steps"
    assert [sorted(process) for process in status["processes"]] == [["index", "pid", "role"]]


def test_a_run_that_learned_from_far_more_env_steps_than_asked_for_says_why(tmp_path):
    run = small_run(tmp_path / "run", steps=100)
    assert run.metrics["env_steps"] > 110
    rounded = "steps is 100, rounded up to whole batches"
    assert run.reason == f"learned from {run.metrics['env_steps']} env steps: {rounded}"


def test_training_with_the_saved_config_gives_the_same_bits(run, tmp_path):
    config = load_config(run.path / "config.toml")
    flags = {**vars(config.run), **vars(config.runtime), **vars(config.algorithm_settings)}
    again = offbeat.train(flags.pop("algorithm"), flags.pop("env"), run_dir=tmp_path / "again", **flags)
    assert weights_of(again.path) == weights_of(run.path)


def test_every_metrics_line_has_every_documented_key_and_the_last_is_the_state_at_the_end(run):
    lines = lines_of(run.path)
    assert all(list(line)[: len(METRICS)] == list(METRICS) for line in lines)
    assert lines[-1] == run.metrics
    assert lines[-1]["env_steps"] >= SMALL["steps"]
    for name in ("env_steps", "frames", "learning_step", "updates", "wall_time_s", "episodes", "evaluations"):
        values = [line[name] for line in lines]
        assert values == sorted(values), name
    unknown = {name for name in METRICS if lines[-1][name] is None}
    waits = {"actor_wait_fraction", "learner_wait_fraction"}
    passes, inference = {"batch_uses", "resident_share"}, {"inference_batch_requests"}
    others = {*GROUPS["hogwild"], *GROUPS["replay"], *GROUPS["sac"], *GROUPS["dqn"]}
    games, cluster = {*GROUPS["league"], "eval_team_return_mean"}, set(GROUPS["messages"])
    tasks = {*GROUPS["tasks"], "eval_first_return_mean"}
    weights = {"effective_sample_size"}
    assert unknown == waits | passes | inference | others | games | cluster | tasks | weights, (
        "one agent learns alone with PPO in serial"
    )


def test_the_frames_metric_counts_the_frame_skip_of_the_env(tmp_path):
    metrics = small_run(tmp_path / "run", "HalfCheetah-v5", steps=256).metrics
    assert metrics["frames"] == 5 * metrics["env_steps"]


def test_an_existing_run_directory_is_never_changed(run):
    before = contents(run.path)
    with pytest.raises(ConfigError, match="exists"):
        small_run(run.path)
    assert contents(run.path) == before


def test_without_a_run_directory_each_run_gets_a_new_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = {"steps": 64, "eval_every": 0, "seed": 3}
    paths = [offbeat.train("ppo", "CartPole-v1", **settings).path for _ in range(2)]
    assert paths[0] != paths[1]
    assert all(str(path).startswith("runs/ppo-CartPole-v1-s3-") for path in paths)


def test_training_works_outside_of_the_main_thread(tmp_path):
    expected = small_run(tmp_path / "main")
    thread = threading.Thread(target=small_run, args=(tmp_path / "thread",))
    thread.start()
    thread.join()
    assert weights_of(tmp_path / "thread") == weights_of(expected.path)


# --- the lines of metrics -----------------------------------------------------------------------------------


def test_log_every_sets_the_env_steps_between_metrics_lines(tmp_path):
    run = small_run(tmp_path / "run", log_every=256, log_every_s=1000)
    lines = [line["env_steps"] for line in lines_of(run.path)]
    assert [steps // 256 for steps in lines] == [1, 2, 3, 4]


def test_log_every_s_writes_a_line_at_the_first_learning_step_after_the_interval(tmp_path):
    run = small_run(tmp_path / "run", log_every=10**9, log_every_s=1e-9)
    steps = [line["learning_step"] for line in lines_of(run.path)]
    assert steps == list(range(1, steps[-1] + 1))


def test_episodes_window_sets_how_many_episodes_returns_are_averaged_over(tmp_path):
    run = small_run(tmp_path / "run", episodes_window=1)
    line = lines_of(run.path)[-1]
    assert line["episodes"] > 10
    assert line["episode_return_min"] == line["episode_return_mean"] == line["episode_return_max"]


def test_a_run_in_processes_reports_memory_of_actors_and_times_of_learning_steps(tmp_path):
    run = small_run(tmp_path / "run", runtime="processes", actors=2, eval_every=1000, eval_episodes=2)
    line = lines_of(run.path)[-1]
    actors = [line["memory/actor-0_mb"], line["memory/actor-1_mb"]]
    assert line["memory_children_mb"] >= sum(actors) > 0
    assert line["memory_main_mb"] > 0
    assert line["memory_child_max_mb"] >= max(actors)
    assert all(line[f"learner_{name}_time_ms"] > 0 for name in ("dequeue", "load", "prepare", "grad"))
    assert 1 <= line["learner_queue_size_min"] <= line["learner_queue_size_mean"] <= line["learner_queue_size_max"] <= 2
    assert 0 <= line["slots_filled_min"] <= line["slots_filled"] <= line["slots_filled_max"] <= 1
    assert line["eval_return_min"] <= line["eval_return_mean"] <= line["eval_return_max"]
    assert line["episode_return_min"] < line["episode_return_mean"] < line["episode_return_max"]


# --- beginning from another run -----------------------------------------------------------------------------

FROZEN: dict[str, Any] = {"learning_rate": 1e-30, "steps": 64}


def test_init_from_starts_with_the_weights_of_the_other_run(run, tmp_path):
    theirs = load_checkpoint(run.path / "checkpoints" / "latest").weights
    ours = load_checkpoint(
        small_run(tmp_path / "new", init_from=str(run.path), **FROZEN).path / "checkpoints" / "latest"
    ).weights
    parameters = [name for name in theirs if name.endswith(("weight", "bias"))]
    assert len(parameters) >= 8
    for name in parameters:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-20)


def test_init_from_copies_normalizers_but_not_counters_and_leaves_the_other_run_unchanged(run, tmp_path):
    before = contents(run.path)
    new = small_run(tmp_path / "new", init_from=str(run.path), **FROZEN)
    theirs, ours = (load_checkpoint(path / "checkpoints" / "latest").state for path in (run.path, new.path))
    assert theirs is not None
    assert ours is not None
    counts = [state["learner"]["algorithm"]["observations"]["count"] for state in (theirs, ours)]
    assert counts[1] == counts[0] + new.metrics["env_steps"]
    assert new.metrics["env_steps"] < run.metrics["env_steps"]
    assert contents(run.path) == before


def test_a_missing_run_with_the_initial_weights_is_refused_before_anything_is_loaded(tmp_path):
    scout = {"agents": "scout", "init_from": str(tmp_path / "nowhere")}
    choices: list[dict[str, Any]] = [{"init_from": tmp_path / "nowhere"}, {"policies": {"scout": scout}}]
    for settings in choices:
        with (
            patch("offbeat.api.train.load_code") as load,
            pytest.raises(ConfigError, match=rf"{tmp_path}/nowhere is not a run directory"),
        ):
            small_run(tmp_path / "new", **settings)
        load.assert_not_called()


def test_a_resume_does_not_apply_init_from_again(run, tmp_path):
    settings: dict[str, Any] = {"init_from": str(run.path), "steps": 1000}
    whole = small_run(tmp_path / "whole", **settings)
    stopped = small_run(tmp_path / "stopped", **settings, stop_at=500)
    assert weights_of(offbeat.resume(stopped.path).path) == weights_of(whole.path)


@pytest.mark.parametrize(
    ("env", "settings", "says"),
    [
        ("Pendulum-v1", {}, "trained on CartPole-v1, does not fit Pendulum-v1"),
        ("CartPole-v1", {"hidden_sizes": (8, 4)}, r": hidden_sizes is 16 in the checkpoint and 8,4 now\. .*=16$"),
        ("CartPole-v1", {"shared_trunk": True}, r": shared_trunk is none in the checkpoint and true now\. .*=none$"),
        ("CartPole-v1", {"normalize_returns": False}, r": normalize_returns is true in .* and false now\. .*=true$"),
        ("CartPole-v1", {"core": "gru", "layer_norm": True}, r"pass --set layer_norm=false core=none$"),
        ("CartPole-v1", {"hidden_sizes": "none"}, r": hidden_sizes is 16 in the checkpoint and none \(64,64\) now\."),
        ("Acrobot-v1", {"hidden_sizes": (8,)}, r"; hidden_sizes is 16 in .* trained with, as in \S+config\.toml$"),
        ("CartPole-v1", {"algorithm": "a2c", "hidden_sizes": (8,)}, r"algorithm is ppo .*, as in \S+config\.toml$"),
    ],
)
def test_init_from_refuses_weights_of_other_shapes(run, tmp_path, env, settings, says):
    with pytest.raises(ConfigError, match=says):
        small_run(tmp_path / "new", env, init_from=str(run.path), **settings)
    assert not any(tmp_path.iterdir())


def test_init_from_refuses_a_critic_with_another_return_scale(tmp_path):
    first = small_run(tmp_path / "first", steps=128, return_scale=1).path
    settings = {**SMALL, "init_from": str(first)}
    with pytest.raises(ConfigError, match=r"return_scale is 3, but the critic of .*first learned with 1\.0.*=1\.0$"):
        offbeat.train("ppo", "CartPole-v1", run_dir=tmp_path / "second", progress="none", **settings)
    assert not (tmp_path / "second").exists()
    small_run(tmp_path / "third", steps=64, init_from=str(first), return_scale=1)


# --- what was trained ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("pendulum") / "run", "Pendulum-v1", steps=1000).path


def observations_of(env: str, rows: int) -> Any:
    envs = make_envs(env, rows, seed=1)
    observations = envs.reset()["observation"].copy()
    envs.close()
    return observations


def test_a_loaded_policy_accepts_one_observation_or_a_batch(run, pendulum):
    for path, env in ((run.path, "CartPole-v1"), (pendulum, "Pendulum-v1")):
        policy, many = offbeat.load(path), observations_of(env, 6)
        actions = policy(many)
        assert len(actions) == 6
        for observation, action in zip(many, actions, strict=True):
            np.testing.assert_allclose(policy(observation), action, atol=1e-5)
    assert isinstance(offbeat.load(run.path)(observations_of("CartPole-v1", 1)[0]), int)


def test_a_loaded_policy_is_greedy_unless_a_generator_is_passed(pendulum):
    policy, many = offbeat.load(pendulum), observations_of("Pendulum-v1", 4)
    np.testing.assert_array_equal(policy(many), policy(many))
    sampled = [policy(many, random=np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(sampled[0], sampled[1])
    assert (sampled[0] != sampled[2]).any()
    assert (abs(sampled[0]) <= 2).all()  # within the env's bounds


def test_a_loaded_policy_refuses_observations_of_another_shape(run):
    with pytest.raises(ValueError, match=r"\(4,\) or \(N, 4\) is expected"):
        offbeat.load(run.path)(np.zeros(3))


@pytest.mark.parametrize("name", ["latest", "best"])
def test_a_loaded_policy_reports_its_training_progress(run, name):
    trained = offbeat.load(run.path, name).trained
    assert (trained.env, trained.algorithm) == ("CartPole-v1", "ppo")
    assert f"step-{trained.env_steps:012d}" == (run.path / "checkpoints" / name).resolve().name


def test_train_and_resume_return_the_last_metrics_line(tmp_path):
    stopped = small_run(tmp_path / "run", stop_at=500)
    resumed = offbeat.resume(str(stopped.path))
    assert untimed(resumed.metrics) == untimed(lines_of(resumed.path)[-1])
    assert json.loads((resumed.path / "metrics.jsonl").read_text().splitlines()[-1]) == resumed.metrics


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("CartPole-v1", {"progress": "fancy"}, "dashboard, lines or none"),
        (object(), {}, "a name is expected, or a class or function that creates the"),
    ],
)
def test_invalid_arguments_of_train_are_refused_before_any_file_is_created(tmp_path, env, settings, message):
    with pytest.raises(ConfigError, match=message):
        offbeat.train("ppo", env, run_dir=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_the_lock_of_a_run_is_released_when_it_ends(run):
    assert RunDirectory.open(run.path).path == run.path
    for _ in range(2):
        with pytest.raises(ConfigError, match="nothing is left to do"):
            offbeat.resume(run.path)


def test_the_memory_of_a_replay_is_shown_and_in_the_log(tmp_path, capsys):
    small: dict[str, Any] = {"steps": 100, "warmup": 64, "batch_size": 32, "hidden_sizes": (8,), "eval_every": 0}
    offbeat.train("dqn", "CartPole-v1", run_dir=tmp_path / "run", progress="lines", **small)
    size, details = r"replay: [\d,]+ transitions, [\d.]+ MB\n", r"[\d,]+ tickets of \d+ x \d+ rows; .* bytes per row\n"
    shown = capsys.readouterr().err
    assert len(re.findall(size, shown)) == 1
    assert "tickets" not in shown
    assert len(re.findall(size + details, (tmp_path / "run" / "log.txt").read_text())) == 1
