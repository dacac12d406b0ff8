"""All envs of a run have its `frame_skip`. What it does with the rows is in tests/envs/test_action_repeat.py."""

from __future__ import annotations

import pytest
from tests.support.runs import lines_of, small_arguments, small_run, weights_of
from tests.support.runs import offbeat as command

import offbeat


def test_a_run_with_it_is_resumed_bit_for_bit_in_another_runtime(tmp_path):
    whole = small_run(tmp_path / "whole", frame_skip=3, steps=384)
    stopped = small_run(tmp_path / "stopped", frame_skip=3, steps=384, stop_at=192)
    resumed = offbeat.resume(stopped.path, runtime="threads", progress="none")
    assert weights_of(resumed.path) == weights_of(whole.path)
    assert resumed.metrics["frames"] == 3 * resumed.metrics["env_steps"]


def test_it_reaches_actors_evaluations_and_videos(tmp_path):
    """Eight steps with the reward 1 are three env steps of three."""
    pytest.importorskip("imageio")
    pytest.importorskip("pygame")
    path, env = tmp_path / "run", "tests.sample_envs.wrapped_envs:ShortCartPole"
    flags = ["--env-kwargs", "steps=8", "--set", "frame_skip=3"]
    said = command(*small_arguments(path, env, steps=256, eval_every=128, eval_episodes=1), *flags)
    assert said.code == 0, said.err
    for metric, value in {"episode_return_mean": 8, "episode_length_mean": 3, "eval_return_mean": 8}.items():
        assert {line[metric] for line in lines_of(path)} - {None} == {value}, metric
    result = offbeat.evaluate(path, episodes=2, trust_code=True)
    assert (result.return_mean, result.length_mean) == (8, 3)
    shown = offbeat.watch(path, video=tmp_path / "episode.gif", trust_code=True)
    assert (shown.returns, shown.length) == ({"default": 8}, 3)
