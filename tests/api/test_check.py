"""`offbeat.check` finds what `offbeat check` finds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import offbeat
from offbeat.core.argument_notation import flags_shown
from offbeat.core.errors import ConfigError


class Bare(gym.Env[Any, Any]):
    """An env whose reward is text if it is asked for."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reward: Any = 1.0) -> None:
        self.reward, self.steps = reward, 0

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self.steps += 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), self.reward, self.steps == 9, False, {}


class Flat(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return float(reward)


def test_a_class_is_checked_and_a_fault_is_printed_as_by_the_command() -> None:
    (finding,) = offbeat.check(Bare, steps=30, env_kwargs={"reward": "much"})
    assert isinstance(finding, offbeat.Finding)
    assert str(finding) == "error: the reward is str, not a number\n  return float(reward)"


def test_the_env_of_evaluations_is_checked_too() -> None:
    (finding,) = offbeat.check(Bare, steps=30, eval_kwargs={"reward": "much"})
    assert finding.problem == "in evaluations, with eval_kwargs {'reward': 'much'}: the reward is str, not a number"
    assert offbeat.check(Bare, steps=30, eval_kwargs={"reward": 2.0}) == []
    with flags_shown(False):
        assert len(offbeat.check(Endless, steps=30, eval_kwargs={"reward": 2.0})) == 1, "a warning is not repeated"


@pytest.mark.parametrize(
    ("env", "kwargs", "says"),
    [
        ("Sized", {"size": 3}, r"the observations in evaluations are observation \[3\] float32, not observation \[2\]"),
        (
            "CartPoles",
            {"carts": 2},
            "the env of evaluations are cart_0, cart_1, not cart_0, cart_1, cart_2",
        ),
    ],
)
def test_other_spaces_in_evaluations_are_refused(env: str, kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        offbeat.check(f"tests.sample_envs.evaluated_variants:{env}", steps=30, eval_kwargs=kwargs)


class Endless(Bare):
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:2], False, False, {})


def test_a_remedy_names_the_arguments_of_python() -> None:
    with flags_shown(False):
        (finding,) = offbeat.check(Endless, steps=30)
    assert finding.remedy == "register the env with max_episode_steps, or train with max_episode_steps=N"


def test_wrappers_and_settings_are_used() -> None:
    assert offbeat.check(Bare, steps=30, env_kwargs={"reward": "1"}, wrappers=[Flat], max_episode_steps=5) == []


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps is 0"):
        offbeat.check(Bare, steps=0)
    with pytest.raises(ConfigError, match="unknown key 'gamma'"):
        offbeat.check(Bare, gamma=0.9)
