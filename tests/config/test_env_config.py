"""What Atari's ids imply, what may be changed of it, and where settings are not supported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offbeat.config.assignments import assignments_of, parse_assignments
from offbeat.config.config_file import load
from offbeat.config.env import ATARI_ONLY, CLASSIC, STICKY, EnvConfig, family_of
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable, thawed

PLAIN = "numbers, booleans, text, and lists and tables of these"


@pytest.mark.parametrize(
    ("env_id", "protocol"),
    [("PongNoFrameskip-v4", CLASSIC), ("ALE/Breakout-v5", STICKY), ("ale_py:ALE/SpaceInvaders-v5", STICKY)],
)
def test_an_atari_id_implies_its_protocol_and_given_settings_override_it(env_id, protocol):
    assert EnvConfig().completed(env_id) == protocol
    given = EnvConfig(frame_skip=5, clip_rewards=False).completed(env_id)
    assert (given.frame_skip, given.clip_rewards) == (5, False)
    assert given.noop_max == protocol.noop_max


@pytest.mark.parametrize("env_id", ["Pong-v4", "PongNoFrameskip-v0", "envpool:Pong-v5", "CartPole-v1", "my:Game-v5"])
def test_other_ids_imply_no_protocol_and_unchanged_rewards(env_id):
    assert family_of(env_id) is None
    completed = EnvConfig().completed(env_id)
    assert completed == EnvConfig(frame_stack=1, clip_rewards=False)
    assert completed.learning_rewards(np.array([5.0])) == 5.0


@pytest.mark.parametrize("key", ATARI_ONLY)
def test_atari_settings_are_refused_for_other_envs(key):
    given: dict[str, Any] = {key: 1}
    with pytest.raises(ConfigError, match=f"{key} is .*, which is not supported by CartPole-v1.*Leave it out"):
        EnvConfig(**given).completed("CartPole-v1")
    EnvConfig(**given).completed("envpool:CartPole-v1")  # only EnvPool knows


@pytest.mark.parametrize(
    ("settings", "learned"),
    [
        (EnvConfig(), [-7, 0.5, 30]),
        (EnvConfig(clip_rewards=True), [-1, 0.5, 1]),
        (EnvConfig(reward_scale=0.1), [-0.7, 0.05, 3]),
        (EnvConfig(clip_rewards=True, reward_scale=2), [-2, 1, 2]),
    ],
)
def test_rewards_are_clipped_and_then_scaled(settings, learned):
    rewards = np.array([-7, 0.5, 30], np.float32)
    kept = settings.learning_rewards(rewards)
    assert kept.dtype == np.float32
    np.testing.assert_allclose(kept, learned, rtol=1e-6)
    np.testing.assert_array_equal(rewards, np.array([-7, 0.5, 30], np.float32))


def test_evaluations_during_training_cut_games_after_five_minutes_and_other_episodes_after_27_000_env_steps():
    assert CLASSIC.evaluation_limit == 18_000 // 4
    assert EnvConfig(max_frames=108_000).evaluation_limit == 18_000 // 4, "EnvPool's frame skip"
    assert EnvConfig().evaluation_limit == 27_000


def test_max_episode_steps_is_saved_in_the_config_and_must_be_a_positive_integer(tmp_path):
    config = resolve("ppo", "CartPole-v1", assignments={"max_episode_steps": "70"})
    config.save(tmp_path / "config.toml")
    assert load(tmp_path / "config.toml").env.max_episode_steps == 70
    assert resolve("ppo", "CartPole-v1").env.max_episode_steps is None
    with pytest.raises(ConfigError, match="max_episode_steps is '0', but a whole number at least 1"):
        resolve("ppo", "CartPole-v1", assignments={"max_episode_steps": "0"})


def test_env_settings_are_saved_with_the_implied_ones_and_loaded_again(tmp_path):
    config = resolve("ppo", "PongNoFrameskip-v4", assignments={"noop_max": "7", "reward_scale": "0.5"})
    assert (config.env.noop_max, config.env.episodic_life, config.env.reward_scale) == (7, True, 0.5)
    config.save(tmp_path / "config.toml")
    assert "[env]\nframe_skip = 4\nrepeat_action_probability = 0.0\n" in (tmp_path / "config.toml").read_text()
    assert load(tmp_path / "config.toml") == config


def test_every_hogwild_worker_uses_the_same_env_settings():
    config = resolve("ppo", "CartPole-v1", flags={"runtime": "hogwild", "workers": 2, "reward_scale": 0.5})
    assert config.of_worker(1).env == config.env == EnvConfig(frame_stack=1, clip_rewards=False, reward_scale=0.5)


@pytest.mark.parametrize(
    ("env_id", "preset"),
    [("QbertNoFrameskip-v4", "ppo-atari"), ("ALE/Qbert-v5", "ppo-atari-sticky"), ("Qbert-v4", None)],
)
def test_a_preset_applies_to_all_envs_of_a_family(env_id, preset):
    assert resolve("ppo", env_id).run.preset == preset


# --- arguments of the env's constructor ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("3", 3), ("-0.5", -0.5), ("1e3", 1000.0), ("true", True), ("'3'", "3"), ("three", "three"), ("", "")),
        *(("[1, 2]", (1, 2)), ('["a", [0.5]]', ("a", (0.5,))), ("1,2", "1,2"), ("none", "none"), ("a=b", "a=b")),
        *(
            ("2026-01-01", "2026-01-01"),
            ("{a = 1}", PlainTable({"a": 1})),
            ("nan", "nan"),
            ("3\nsteps = 4", "3\nsteps = 4"),
        ),
    ],
)
def test_arguments_of_an_env_on_the_command_line_are_toml_values_or_else_text(text, value):
    config = resolve("ppo", "CartPole-v1", assignments=parse_assignments([f"env.kwargs.size={text}"]))
    assert dict(config.env.kwargs) == {"size": value}
    assert type(config.env.kwargs["size"]) is type(value)


def test_arguments_in_evaluations_replace_those_of_the_training_one_by_one(tmp_path):
    given = parse_assignments(["env.eval_kwargs.size=8", "env.kwargs.size=3", "env.eval_kwargs.part={a = [1]}"])
    config = resolve("ppo", "CartPole-v1", flags={"kwargs": {"layout": "HWC"}}, assignments=given)
    assert thawed(config.env.kwargs) == {"size": 3, "layout": "HWC"}
    in_evaluations = config.env.in_evaluations
    assert thawed(in_evaluations.kwargs) == {"size": 8, "layout": "HWC", "part": {"a": [1]}}
    assert in_evaluations.in_evaluations == in_evaluations
    config.save(tmp_path / "config.toml")
    assert load(tmp_path / "config.toml") == config
    assert assignments_of({"env.eval_kwargs.part": {"a": [1]}}) == ["env.eval_kwargs.part={a = [1]}"]


def test_an_argument_in_evaluations_that_the_curriculum_sets_is_refused():
    with pytest.raises(ConfigError, match="eval_kwargs has size, which has no effect"):
        resolve("ppo", "CartPole-v1", flags={"eval_kwargs": {"size": 8}, "curriculum": ("size 0:2 1:8",)})


def test_arguments_of_an_env_round_trip_through_config_toml(tmp_path):
    kwargs: dict[str, Any] = {
        "size": 3,
        "layout": "HWC",
        "pair": [0.5, True, ["a"]],
        "config": {"x y": {"z": [{"a,b": "1"}]}},
    }
    config = resolve("ppo", "CartPole-v1", flags={"env.kwargs.extra": "3", "kwargs": kwargs})
    config.save(tmp_path / "config.toml")
    assert load(tmp_path / "config.toml") == config
    assert thawed(config.env.kwargs) == {**kwargs, "extra": "3"}
    assert hash(config.env) == hash(load(tmp_path / "config.toml").env)
    assert "size" not in resolve("ppo", "CartPole-v1").env.kwargs


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"kwargs": "size=3"}, "--env-kwargs NAME=VALUE"),
        ({"kwargs": {"size": None}}, PLAIN),
        ({"kwargs": {"size": {3: 1}}}, PLAIN),
        ({"kwargs": {"size": {"a": None}}}, PLAIN),
        ({"kwargs": {"size": [{"a": [{"a": [{"a": [{"a": [{}]}]}]}]}]}}, PLAIN),
        ({"kwargs": {"size": object()}}, PLAIN),
        ({"kwargs": {"size": float("nan")}}, PLAIN),
        ({"kwargs": {"size": [[[[[[[[[1]]]]]]]]]}}, PLAIN),
        ({"kwargs": {3: 1}}, PLAIN),
        ({"env.kwargs.": 1}, "cannot be the name of an argument"),
        ({"env.kwargs.a.b": 1}, "cannot be the name of an argument"),
        ({"env.kwarg.a": 1}, "unknown key 'env.kwarg.a'"),
        ({"eval_kwargs": {"size": None}}, "--set env.eval_kwargs.NAME=VALUE"),
        ({"env.eval_kwargs.a b": 1}, "eval_kwargs has 'a b', which cannot be the name of an argument"),
    ],
)
def test_arguments_that_are_no_plain_data_are_refused(flags, says):
    with pytest.raises(ConfigError) as refused:
        resolve("ppo", "CartPole-v1", flags=flags)
    assert says in str(refused.value)


def test_a_table_as_an_argument_of_an_env_is_typed_as_it_is_read():
    kwargs = {"config": PlainTable({"x y": 1, "on": True, "rows": [{"name": "1"}, {}], "inner": {"text": "a b"}})}
    (text,) = assignments_of({f"env.kwargs.{name}": value for name, value in kwargs.items()})
    assert assignments_of({f"env.kwargs.{name}": value for name, value in thawed(kwargs).items()}) == [text]
    assert text == 'env.kwargs.config={"x y" = 1, on = true, rows = [{name = "1"}, {}], inner = {text = "a b"}}'
    assert resolve("ppo", "CartPole-v1", assignments=parse_assignments([text])).env.kwargs == kwargs


def test_an_env_config_prints_the_settings_that_differ_from_their_defaults():
    assert repr(EnvConfig()) == "EnvConfig()"
    given: dict[str, Any] = {"max_episode_steps": 3, "kwargs": {"size": 8}}
    assert repr(EnvConfig(**given)) == "EnvConfig(max_episode_steps=3, kwargs={'size': 8})"
