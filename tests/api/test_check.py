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
