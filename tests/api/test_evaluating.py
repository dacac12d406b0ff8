"""`offbeat.evaluate`, `offbeat.plot` and `offbeat.watch`: the commands are callers of these functions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from PIL import Image
from tests.support.runs import offbeat as command
from tests.support.runs import small_run

import offbeat
from offbeat.api.evaluate import Returns
from offbeat.cli.main import COMMANDS
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> offbeat.Run:
    return small_run(tmp_path_factory.mktemp("runs") / "run", steps=256, eval_every=128, eval_episodes=2)


OPTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"episodes": 3, "seed": 5, "sampled": True}, ["--episodes", "3", "--seed", "5", "--sampled"]),
    ({"checkpoint": "best", "max_episode_steps": 7}, ["--checkpoint", "best", "--max-episode-steps", "7"]),
]


@pytest.mark.parametrize(("arguments", "flags"), OPTIONS)
def test_evaluate_has_the_results_of_the_command(run, arguments, flags):
    said = command("eval", run.path, "--json", *flags)
    result = offbeat.evaluate(run, **arguments)
    assert json.loads(said.out) == result.scores
    assert result.return_mean == result.scores["return_mean"]
    assert result.episodes == arguments.get("episodes", 20)


def test_a_result_is_shown_in_one_line(run):
    result = offbeat.evaluate(run, episodes=2, max_episode_steps=5)
    numbers = "episodes=2, return_mean=5, return_std=0, length_mean=5"
    assert repr(result) == f"EvaluationResult('CartPole-v1', {numbers})"
    assert result.cut == 2


def test_evaluate_accepts_a_run_a_directory_a_policy_and_all_policies(run):
    expected = offbeat.evaluate(run, episodes=2).scores
    for same in (run.path, str(run.path), offbeat.load(run), offbeat.load_all(run)):
        assert offbeat.evaluate(same, episodes=2).scores == expected


def test_evaluate_plays_a_policy_of_any_name_and_refuses_policies_that_are_no_run_together(run, tmp_path):
    policy = offbeat.load(run)
    assert offbeat.evaluate({"mine": policy}, episodes=2) == offbeat.evaluate(run, episodes=2)
    other = offbeat.load(small_run(tmp_path / "other", "Acrobot-v1", steps=64))
    for policies in ({"a": policy, "b": policy}, {"a": policy, "b": other}):
        with pytest.raises(ConfigError, match=r"run is the policies a, b, .* but all policies of one run"):
            offbeat.evaluate(policies)


def test_runs_and_results_can_be_in_a_set(run):
    result = offbeat.evaluate(run, episodes=1)
    assert len({run, run, result, result}) == 2


def test_evaluate_plays_in_another_env(run):
    result = offbeat.evaluate(run, "tests.sample_envs.wrapped_envs:ShortCartPole", 2, env_kwargs={"steps": 3})
    assert (result.env, result.length_mean) == ("tests.sample_envs.wrapped_envs:ShortCartPole", 3)
    with pytest.raises(ConfigError, match="observations of Pendulum-v1 differ"):
        offbeat.evaluate(run, "Pendulum-v1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 0}, "episodes is 0, but a whole number at least 1 and"),
        ({"seed": -1}, "seed is -1, but at least 0 is expected"),
        ({"average": True, "checkpoint": "best"}, "choose one"),
        (
            {"env": "Acrobot-v1"},
            r"differ .* \(observation \[6\] float32, not observation \[4\] float32\): pass an env with the same obs",
        ),
    ],
)
def test_evaluate_refuses_what_the_command_refuses(run, arguments, message):
    with pytest.raises(ConfigError, match=message):
        offbeat.evaluate(run, **arguments)


def test_the_average_of_another_checkpoint_is_refused_in_words_that_python_accepts(run):
    with flags_shown(False):
        with pytest.raises(ConfigError) as refused:
            offbeat.evaluate(run, average=True, checkpoint="step-000000000512")
        assert str(refused.value) == "both average=True and checkpoint=... are given: choose one"


def test_evaluate_refuses_the_checkpoint_or_the_average_of_a_loaded_policy(run):
    policy = offbeat.load(run)
    with pytest.raises(ConfigError, match="load them from this checkpoint"):
        offbeat.evaluate(policy, checkpoint="best")
    with pytest.raises(ConfigError, match="average is given, which needs a run"):
        offbeat.evaluate(policy, average=True)


def test_the_returns_of_several_policies_are_by_name(tmp_path):
    settings: dict[str, Any] = {"steps": 128, "policies": "separate"}
    run = small_run(tmp_path / "run", "offbeat.envs.testing.games:Nim", **settings)
    result = offbeat.evaluate(run, episodes=4)
    assert set(result.policies) == set(result.scores["policies"])
    for name, returns in result.policies.items():
        assert returns.return_mean == result.scores["policies"][name]["return_mean"]
    assert result.team_return_mean == result.scores["team_return_mean"]


def require_scores_of_episodes(scores: Returns) -> None:
    """Check that the scores are computed from exactly the episodes that are listed."""
    returns, lengths = np.array(scores.returns), np.array(scores.lengths)
    assert (scores.return_mean, scores.return_std) == (returns.mean(), returns.std())
    assert (scores.return_min, scores.return_max) == (returns.min(), returns.max())
    assert scores.length_mean == lengths.mean()


def test_a_result_has_the_return_and_the_length_of_each_episode(run):
    result = offbeat.evaluate(run, episodes=40, max_episode_steps=30, sampled=True)
    assert len(result.returns) == len(result.lengths) == 40
    assert 0 < result.cut < 40  # cut episodes count with their return so far
    assert set(map(type, result.returns)) == {float}
    assert set(map(type, result.lengths)) == {int}
    require_scores_of_episodes(result)
    assert result.scores["returns"] == list(result.returns)
    assert result.scores["lengths"] == list(result.lengths)


def test_a_result_lists_no_episode_that_was_not_begun(run):
    result = offbeat.evaluate(run, episodes=40, max_steps=64)
    assert (result.episodes, result.not_begun, len(result.returns)) == (32, 8, 32)
    require_scores_of_episodes(result)


def test_a_result_has_the_episodes_of_each_of_several_policies(tmp_path):
    settings: dict[str, Any] = {"steps": 128, "policies": "separate"}
    run = small_run(tmp_path / "run", "offbeat.envs.testing.games:Nim", **settings)
    result = offbeat.evaluate(run, episodes=4, sampled=True)
    for returns in (result, *result.policies.values()):
        require_scores_of_episodes(returns)
    first, second = (own.returns for own in result.policies.values())
    assert result.returns == tuple(each for episode in zip(first, second, strict=True) for each in episode)
    assert "returns" not in repr(result.policies)


def test_plot_writes_what_the_command_writes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = command("plot", run.path)
    assert said.out.split() == [str(path) for path in offbeat.plot(run)]
    drawn = (run.path / "return.png").read_bytes()
    assert offbeat.plot([run], "time", out="time.svg") == [tmp_path.__class__("time.svg")]
    assert drawn
    with pytest.raises(ConfigError, match="no run is given"):
        offbeat.plot([])


def test_plot_has_the_options_of_the_command(run, tmp_path):
    out = tmp_path / "curve.svg"
    offbeat.plot(run, out=out, metrics=["return", "entropy"], labels="mine", smooth=2, title="Two panels")
    text = out.read_text()
    shown = ("episode return", "entropy", "Two panels", "evaluation, mine", "each line: moving average over 2 points")
    assert all(f"<!-- {name} -->" in text for name in shown)
    with pytest.raises(ConfigError, match="title is for curves over training"):
        offbeat.plot(run, "episodes", title="Two panels")
    for argument in ("metrics", "labels"):
        with flags_shown(False), pytest.raises(ConfigError, match=f"^{argument} is for curves over training"):
            offbeat.plot(run, "episodes", **{argument: "entropy"})  # type: ignore[arg-type]


def test_watch_writes_a_video_of_a_run_and_of_a_policy(run, tmp_path, monkeypatch, capfd):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    shown = offbeat.watch(run, video=tmp_path / "run.gif", seed=3, max_steps=20)
    again = offbeat.watch(offbeat.load(run), video=tmp_path / "policy.gif", seed=3, max_steps=20)
    assert shown == again
    assert (tmp_path / "run.gif").read_bytes() == (tmp_path / "policy.gif").read_bytes()
    assert capfd.readouterr().err == "", "no screen is looked for"
    assert "SDL_VIDEODRIVER" not in os.environ


def test_an_env_to_watch_that_calls_exit_when_it_is_made_is_a_config_error(run, tmp_path, monkeypatch):
    monkeypatch.setattr(CartPoleEnv, "__init__", lambda *_, **__: sys.exit("no screen"))
    with pytest.raises(ConfigError, match=r"CartPole-v1 cannot be rendered here \(SystemExit: no screen\)"):
        offbeat.watch(run, video=tmp_path / "run.gif")


def test_a_video_of_an_env_with_less_than_a_frame_per_second_has_one(run, tmp_path, monkeypatch):
    monkeypatch.setitem(CartPoleEnv.metadata, "render_fps", 0.2)
    offbeat.watch(run, video=tmp_path / "run.gif", max_steps=3)
    with Image.open(tmp_path / "run.gif") as picture:
        assert picture.info["duration"] % 1000 == 0  # equal frames are joined


FUNCTIONS: dict[str, Callable[..., object]] = {
    "eval": offbeat.evaluate,
    "watch": offbeat.watch,
    "plot": offbeat.plot,
    "export": offbeat.export,
}
NOT_IN_PYTHON = {"json", "imports", "on", "ray_address", "cpus", "gpus", "resources"}
"""Options of output, of modules that Python imports itself, and of Ray, which `pool` has in Python."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_option_of_a_command_is_an_argument_of_its_function(name):
    options = {field.name for field in fields(COMMANDS[name])} - NOT_IN_PYTHON
    arguments = {"run_directory" if each == "run" else each for each in signature(FUNCTIONS[name]).parameters}
    assert [option for option in options if not {option, f"{option}s"} & arguments] == []  # lists have plurals
