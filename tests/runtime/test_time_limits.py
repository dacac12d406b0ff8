"""Whole runs on envs whose episodes may never end: trained, resumed, evaluated and watched in bounded time."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from tests.support.runs import offbeat, weights_of

from offbeat.api.playing.load import load
from offbeat.api.resume import resume
from offbeat.api.train import Run, train
from offbeat.core.tasks import TaskSample, Trials
from offbeat.envs.make import make_envs
from offbeat.envs.testing.known_values import RING
from offbeat.runtime.loop.time_limit_warning import LONG, EndlessEpisodes, TimeLimitWarning

CLIFF = "CliffWalking-v1"
ENDLESS = "time_limits/Ring-v0"
if ENDLESS not in gym.registry:
    gym.register(
        ENDLESS,
        "offbeat.envs.testing.known_values:Walk",
        kwargs={"positions": RING, "ring": True, "random_start": True},
    )
SHORT: dict[str, Any] = {
    "steps": 240,
    "envs_per_actor": 4,
    "env_groups": 2,
    "unroll_length": 12,
    "minibatch_size": 24,
    "epochs": 1,
    "eval_every": 0,
    "checkpoint_every": 0,
    "lag": "exact",
}


def run_of(path: Path, env: str = ENDLESS, **changes: Any) -> Run:
    return train("ppo", env, run_dir=path, **{**SHORT, **changes})


def log(run: Run) -> str:
    return (run.path / "log.txt").read_text()


def test_max_episode_steps_trains_as_the_same_limit_of_the_env(tmp_path):
    limited = run_of(tmp_path / "limited", max_episode_steps=5)
    registered = run_of(tmp_path / "registered", "offbeat/ChainTruncates-v0")
    assert limited.metrics["episode_length_mean"] == 5
    assert weights_of(limited.path) == weights_of(registered.path)


def test_a_run_with_max_episode_steps_is_resumed_in_mid_episode_in_another_runtime(tmp_path):
    """Rollouts of 12 rows and episodes of 7 steps: an episode is under way where the run is stopped."""
    whole = run_of(tmp_path / "whole", max_episode_steps=7)
    stopped = run_of(tmp_path / "stopped", max_episode_steps=7, stop_at=96)
    resumed = resume(stopped.path, runtime="threads")
    assert resumed.metrics["episodes"] == whole.metrics["episodes"] > 0
    assert weights_of(resumed.path) == weights_of(whole.path)


def test_eval_and_watch_apply_max_episode_steps_of_the_run(tmp_path):
    run = run_of(tmp_path / "run", CLIFF, max_episode_steps=9)
    assert load(run.path).trained.env_config.max_episode_steps == 9
    figures = json.loads(offbeat("eval", run.path, "--episodes", 3, "--json").out)
    assert (figures["length_mean"], figures["cut"], figures["not_begun"]) == (9, 0, 0)
    said = offbeat("eval", run.path, "--episodes", 3)
    assert "cut" not in said.out
    if find_spec("imageio") and find_spec("pygame"):
        said = offbeat("watch", run.path, "--video", tmp_path / "episode.gif")
        assert said.code == 0, said.err
        assert " in 9 env steps, written to" in said.out


def test_an_evaluation_cuts_endless_episodes_and_logs_it(tmp_path):
    bounds = {"eval_max_episode_steps": 30, "eval_every": 120, "eval_episodes": 3}
    run = run_of(tmp_path / "run", CLIFF, **bounds)
    assert run.metrics["eval_length_mean"] == 30
    message = "evaluation: of 3 episodes 0 ended, 3 were cut; those cut count with their return so far"
    assert log(run).count(message) == 1
    assert "pass --set max_episode_steps=N" in log(run)
    said = offbeat("eval", run.path, "--episodes", 40, "--max-episode-steps", 20, "--max-steps", 320)
    assert "of 40 episodes, 0 ended, 32 were cut (their return up to there counts) and 8 were not started" in said.out
    assert "length 10.0" in said.out
    figures = json.loads(offbeat("eval", run.path, "--episodes", 5, "--max-episode-steps", 20, "--json").out)
    assert (figures["episodes"], figures["cut"], figures["not_begun"], figures["length_mean"]) == (5, 5, 0, 20)


def test_a_total_bound_ends_an_evaluation_in_training(tmp_path):
    run = run_of(tmp_path / "run", CLIFF, eval_every=240, eval_episodes=40, eval_max_steps=64)
    assert run.metrics["eval_length_mean"] == 2
    assert "of 40 episodes 0 ended, 32 were cut and 8 were not started" in log(run)


@pytest.mark.skipif(not (find_spec("imageio") and find_spec("pygame")), reason="needs the extra video")
def test_watch_cuts_an_endless_episode_and_reports_it(tmp_path):
    run = run_of(tmp_path / "run", CLIFF)
    said = offbeat("watch", run.path, "--video", tmp_path / "episode.gif", "--max-steps", 6)
    assert said.code == 0, said.err
    assert " in 6 env steps, cut by --max-steps 6, written to" in said.out
    assert offbeat("watch", run.path, "--max-steps", 0).code == 2


def test_training_warns_once_about_an_env_without_a_time_limit(tmp_path):
    steps = {"steps": 2 * LONG, "envs_per_actor": 1, "env_groups": 1, "unroll_length": 100, "minibatch_size": 50}
    run = run_of(tmp_path / "run", CLIFF, **steps)
    warning = "warning: CliffWalking-v1 has no time limit that is known, and only 0 episodes have ended in "
    assert log(run).count(warning) == 1
    assert "pass --set max_episode_steps=N" in log(run)


@pytest.mark.parametrize("evaluator", ["process", "inline"])
def test_an_evaluation_in_which_no_episode_ends_warns_about_the_missing_time_limit(tmp_path, evaluator):
    """The run is far too short for the warning about its training."""
    limits: dict[str, Any] = {"eval_episodes": 2, "eval_max_episode_steps": LONG + 1}
    run = run_of(tmp_path / "run", evaluator=evaluator, eval_every=120, **limits)
    found = f"no time limit that is known, and no episode of an evaluation has ended in {LONG} env steps of each env"
    assert log(run).count(f"warning: {ENDLESS} has {found}") == 1
    assert run.metrics["evaluations"] == 2


@pytest.mark.parametrize(
    ("calls", "ended", "trials", "says"),
    [
        (LONG - 1, 0, None, []),
        (LONG + 5, 0, None, [LONG]),
        (LONG + 5, 1, None, []),
        (LONG + 5, 0, Trials(TaskSample(0, 1, 1), 2), []),
        (3 * LONG, 0, Trials(TaskSample(0, 1, 1), 2), [3 * LONG]),
    ],
)
def test_an_evaluation_is_long_if_each_episode_of_a_trial_could_be(calls, ended, trials, says):
    told: list[int] = []
    check = EndlessEpisodes(trials, told.append)
    for _ in range(calls):
        check(ended)
    assert told == says


def test_a_known_time_limit_or_an_earlier_warning_silences_the_one_about_an_evaluation():
    told: list[str] = []
    for env, expected in (("Pendulum-v1", 0), (CLIFF, 1)):
        warning = TimeLimitWarning(make_envs(env, 1, seed=0).spec, 2, told.append)
        for _ in range(2):
            warning.warn_of_evaluation(LONG)
        warning.check(2 * LONG, 0)
        assert len(told) == expected


@pytest.mark.parametrize(
    ("env", "episodes", "warns"),
    [
        (CLIFF, 0, True),
        (CLIFF, 1, True),
        ("Blackjack-v1", 900, False),
        ("Pendulum-v1", 0, False),
        ("CartPole-v1", 0, False),
        ("offbeat/Recall-v0", 0, False),
    ],
)
def test_a_missing_time_limit_is_reported_only_for_long_episodes(env, episodes, warns):
    told: list[str] = []
    warning = TimeLimitWarning(make_envs(env, 1, seed=0).spec, 2, told.append)
    warning.check(2 * LONG - 1, 0)
    assert told == [], "too early to say"
    for _ in range(2):
        warning.check(2 * LONG, episodes)
    assert len(told) == warns
