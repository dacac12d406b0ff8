"""Arguments of an env's constructor reach every env that a run or its policy makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.runs import lines_of, offbeat, small_arguments
from tests.support.thorough import thorough

from offbeat.api.playing.load import load_all
from offbeat.api.train import train
from offbeat.api.watch import watch
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable, thawed
from offbeat.envs.checking.check import check_env


@pytest.mark.parametrize("runtime", ["serial", *thorough("processes")])
def test_arguments_of_the_env_reach_actors_evaluations_videos_and_resumed_runs(tmp_path, runtime):
    """With the argument a whole episode of CartPole has the return -1; without it, its length."""
    path = tmp_path / "run"
    settings = {"steps": 1024, "eval_every": 512, "eval_episodes": 2, "actors": 1, "runtime": runtime}
    said = offbeat(*small_arguments(path, **settings, **{"env.kwargs.sutton_barto_reward": "true"}))
    assert said.code == 0, said
    assert offbeat("resume", path, "--steps", "1536", "--progress", "none").code == 0
    for metric in ("episode_return_mean", "eval_return_mean"):
        assert {line[metric] for line in lines_of(path)} - {None} == {-1.0}, metric
    assert json.loads(offbeat("eval", path, "--episodes", "2", "--json").out)["return_mean"] == -1
    assert watch(load_all(path), seed=0, video=tmp_path / "episode.gif").returns == {"default": -1}


@pytest.mark.parametrize(("env", "value"), [("pole", True), ("poles", 2)])
def test_an_argument_of_the_env_can_be_a_table(tmp_path, env, value):
    path, config = tmp_path / "run", f"{{parts = [{{value = {json.dumps(value)}}}]}}"
    settings = {"steps": 512, "actors": 1, "runtime": "processes", "env.kwargs.config": config}
    said = offbeat(*small_arguments(path, f"tests.sample_envs.configured_envs:{env}", **settings))
    assert said.code == 0, said
    assert offbeat("resume", path, "--steps", "1024", "--progress", "none", "--trust-code").code == 0
    kwargs = load_all(path)["default"].trained.env_config.kwargs
    assert thawed(kwargs) == {"config": {"parts": [{"value": value}]}}


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("env.kwargs.size", "env_kwargs"),
        ("env.eval_kwargs.size", "eval_kwargs"),
        ("league.size", "league"),
        ("policies.a.settings.encoder_kwargs.size", "policies.a.settings.encoder_kwargs"),
    ],
)
def test_a_value_that_is_given_in_a_table_and_by_its_own_key_is_refused(key, table):
    given: dict[str, Any] = {table: {"size": 2}, key: 3}
    with pytest.raises(ConfigError, match=f"^{key} is given twice, by this key and in the table {table}: pass only"):
        train("ppo", "CartPole-v1", **given)


def test_check_makes_the_env_with_the_given_settings():
    command = ["check", "tests.sample_envs.not_envs:Poles", "--set", "env.kwargs.number=2", "env.kwargs.height=1.5"]
    said = offbeat(*command)
    assert (said.code, said.out) == (0, "tests.sample_envs.not_envs:Poles: no problems found\n")
    with pytest.raises(ConfigError, match="CartPole-v1 has no argument 'wings'"):
        check_env("CartPole-v1", steps=20, settings=EnvConfig(kwargs=PlainTable({"wings": 2})))
