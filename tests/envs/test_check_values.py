"""`offbeat check` warns of values that make learning hard, and of nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from offbeat.cli import main
from offbeat.config.env import EnvConfig
from offbeat.envs.checking.check import check_env

HERE = f"{__name__}:"


class Plain(gym.Env[Any, Any]):
    """An env without faults. Episodes have different lengths, and none is truncated."""

    action_space: gym.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)
    scale, reward, length = 1.0, 1.0, 0

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.age, self.end = 0, self.length or int(self.np_random.integers(5, 15))
        return self.observe(), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self.age += 1
        return self.observe(), self.reward, self.age >= self.end, False, {}

    def observe(self) -> Any:
        return (self.scale * self.np_random.uniform(0.5, 1, 2)).astype(np.float32)


class WideActions(Plain):
    action_space = spaces.Box(-1000, 1000, (1,), np.float32)


class ActionsFarFrom0(Plain):
    action_space = spaces.Box(5, 20, (1,), np.float32)


class LargestActions(Plain):
    """Has the largest number of float32 in place of infinity."""

    action_space = spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (1,), np.float32)


class UnboundedActions(Plain):
    action_space = spaces.Box(-1, np.inf, (1,), np.float32)


class LargeRewards(Plain):
    reward = 1e5


class LargeObservations(Plain):
    scale = 1e4


class Integers(Plain):
    """Counts from 0, in a space without bounds."""

    first = 0

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64)

    def observe(self) -> Any:
        return np.array([self.first, self.age])


class LargeIntegers(Integers):
    first = 2**24 + 1


class LargeBounds(Integers):
    def __init__(self) -> None:
        count = spaces.Box(0, 2**40, (2,), np.int64)
        self.observation_space = spaces.Dict({"image": spaces.Box(0, 255, (2,), np.uint8), "count": count})

    def observe(self) -> Any:
        return {"image": np.zeros(2, np.uint8), "count": super().observe()}


class Parts(Plain):
    """Has an observation of several parts."""

    def __init__(self) -> None:
        place = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = spaces.Dict({"place": place, "pair": spaces.Tuple([spaces.Discrete(2), place])})

    def observe(self) -> Any:
        return {"place": super().observe(), "pair": (0, super().observe())}


class MoreKeys(Parts):
    def observe(self) -> Any:
        return {**super().observe(), "name": "plain"}


class ListOfParts(Parts):
    def observe(self) -> Any:
        observed = super().observe()
        return {**observed, "pair": list(observed["pair"])}


class WrongParts(Parts):
    """Has two parts that no policy could get, one inside of a Tuple."""

    def observe(self) -> Any:
        observed = super().observe()
        return {"place": np.full(3, np.nan), "pair": (7, observed["pair"][1])}


class HiddenLimit(Plain):
    length = 20


class LongHiddenLimit(Plain):
    length = 100


class ThousandSteps(Plain):
    def step(self, action: Any) -> Any:
        observation, reward, *_, info = super().step(action)
        return observation, reward, False, self.age >= 1000, info


class Identity(Plain):
    """Samples its states from its observation space, as the Identity envs of Stable-Baselines3 do."""

    def observe(self) -> Any:
        return self.observation_space.sample()


class Unrepeatable(Plain):
    def observe(self) -> Any:
        return np.random.default_rng().normal(size=2).astype(np.float32)


@pytest.mark.parametrize("env", [Plain, ThousandSteps, Identity, Integers])
def test_check_warns_of_nothing_in_envs_that_train_well(env: type[Any]) -> None:
    assert check_env(HERE + env.__name__, steps=1000 if env is ThousandSteps else 200) == []


@pytest.mark.parametrize(
    ("env", "problem", "remedy"),
    [
        (WideActions, "actions are bounded by -1000 and 1000", "RescaleAction"),
        (ActionsFarFrom0, "actions are bounded by 5 and 20", "RescaleAction"),
        (LargestActions, "actions are not bounded: from -inf to inf", "declare finite bounds"),
        (UnboundedActions, "actions are not bounded: from -1 to inf", "declare finite bounds"),
        (LargeRewards, "rewards are as large as 1e+05", "reward_scale="),
        (LargeObservations, "observations are as large as 1e+04", "normalize_observations=true"),
        (LargeIntegers, "observations are integers as large as 1.7e+07, but policies read float32", "scale them"),
        (LargeBounds, "observations are integers as large as 1.1e+12, but policies read float32", "scale them"),
        (MoreKeys, "the observation has keys that the observation space does not declare: name", "leave them out"),
        (ListOfParts, "the observation 'pair' is a list, but the observation space declares", "return a tuple"),
        (HiddenLimit, "episodes are terminated after 20 steps, none is truncated", "truncated=True"),
        (LongHiddenLimit, "all 2 episodes are terminated after 100 steps, none is truncated", "truncated=True"),
        (Unrepeatable, "the same seed and the same actions give different rows: a run trains", "np_random"),
    ],
)
def test_check_warns_with_a_remedy_and_calls_no_such_env_wrong(env: type[Any], problem: str, remedy: str) -> None:
    (finding,) = check_env(HERE + env.__name__, steps=200)
    assert finding.severity == "warning"
    assert problem in finding.problem
    assert remedy in finding.remedy


def test_check_says_nothing_of_observations_that_policies_do_not_get() -> None:
    settings = EnvConfig(ignore_observations=("place", "pair/0"))
    assert check_env(f"{HERE}WrongParts", steps=50, settings=settings) == []
    assert [finding.severity for finding in check_env(f"{HERE}WrongParts", steps=50)] == ["error", "error"]


@pytest.mark.parametrize("settings", [EnvConfig(reward_scale=1e-4), EnvConfig(clip_rewards=True)])
def test_check_says_nothing_of_large_rewards_that_are_scaled_or_clipped(settings: EnvConfig) -> None:
    assert check_env(f"{HERE}LargeRewards", steps=50, settings=settings) == []


def test_check_takes_the_given_number_of_steps_reports_them_and_exits_with_0_for_warnings(capsys: Any) -> None:
    reported: list[tuple[int, int]] = []
    check_env(HERE + "Plain", steps=50, report=lambda done, total: reported.append((done, total)))
    assert reported == [(step, 150) for step in range(1, 151)]
    assert main.run(["check", HERE + "Unrepeatable", "--steps", "30"]) == 0
    assert "errors 0, warnings 1" in capsys.readouterr().out
