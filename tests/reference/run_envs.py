"""Envs that misbehave in the course of a run; `--import tests.reference.run_envs` registers them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Wave(gym.Env[Any, Any]):
    """The observation is where on a wave the episode is; the action that follows its sign is rewarded.

    Episodes last 20 env steps. It has no snapshots.
    """

    observation_space: gym.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.phase = float(self.np_random.uniform(0, 6))
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        reward = float((np.sin(self.phase) > 0) == bool(np.all(action)))
        self.phase += 0.3
        self.steps += 1
        return self.observe(), reward, self.steps == 20, False, {}

    def observe(self) -> Any:
        return np.array([np.sin(self.phase), np.cos(self.phase)], np.float32)


FAULTY = True
"""Whether the envs that fail late do."""


class Ages(Wave):
    """Counts the env steps of its life, over all episodes."""

    def __init__(self) -> None:
        self.age = 0

    def step(self, action: Any) -> Any:
        self.age += 1
        return super().step(action)


class RaisesLate(Ages):
    """Raises in its 200th step."""

    def step(self, action: Any) -> Any:
        if FAULTY and self.age == 200:
            raise ZeroDivisionError("the wave has no length")
        return super().step(action)


class NaNLate(Ages):
    """The reward of its 200th step is NaN."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return (observation, np.nan if FAULTY and self.age == 200 else reward, *rest)


class RaisesInReset(Wave):
    """Cannot begin an episode."""

    def reset(self, **_arguments: Any) -> Any:
        raise FileNotFoundError("wave.dat")


class Sleeper(Ages):
    """Sleeps for 20 seconds in its 300th step, once it has made the file SLEEPING in the current folder."""

    def step(self, action: Any) -> Any:
        if self.age == 300:
            Path("SLEEPING").touch()
            time.sleep(20)
        return super().step(action)


class SleepsInReset(Wave):
    """Sleeps for 20 seconds before its first episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        Path("SLEEPING").touch()
        time.sleep(20)
        return super().reset(seed=seed, options=options)


class Unhurried(Wave):
    """Takes a millisecond a step, so that a run lasts long enough to be stopped."""

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        return super().step(action)


class TupleActions(Wave):
    """Actions that PPO cannot choose."""

    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)))


def register() -> None:
    kinds: list[Any] = [Wave, RaisesLate, NaNLate, RaisesInReset, Sleeper, SleepsInReset, Unhurried, TupleActions]
    for kind in kinds:
        if f"runs/{kind.__name__}-v0" not in gym.registry:
            gym.register(f"runs/{kind.__name__}-v0", kind)


register()
if os.environ.get("OFFBEAT_TEST_SLEEP_IN_IMPORT"):
    Path("SLEEPING").touch()
    time.sleep(20)
