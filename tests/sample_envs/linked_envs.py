"""Envs whose observations tell where they belong; `--import tests.sample_envs.linked_envs` registers them.

Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from tests.support.registering import is_first, register_envs

PARTS = 2**20
AGES = 16


class Linked(gym.Env[Any, Any]):
    """The observation is (the episode's number, env steps in it, how it ended), the first two as shares.

    Numbers are drawn at random; the last is 1 where it was terminated, -1 where it was truncated, else 0. Every step
    is rewarded with the first. Episodes last 1 to 6 steps. It has no snapshots.
    """

    observation_space: gym.Space[Any] = spaces.Box(-1, 1, (3,), np.float32)
    action_space: gym.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.number = int(self.np_random.integers(1, PARTS)) / PARTS
        self.length = int(self.np_random.integers(1, 7))
        self.age, self.end = 0, 0
        return self.observe(), {}

    def step(self, _action: Any) -> Any:
        self.age += 1
        if self.age == self.length:
            self.end = int(self.np_random.choice([-1, 1]))
        return self.observe(), self.number, self.end == 1, self.end == -1, {}

    def observe(self) -> Any:
        return np.array([self.number, self.age / AGES, self.end], np.float32)


class SlowlyLinked(Linked):
    """Takes a millisecond a step, so that an actor is often caught within a ticket."""

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        return super().step(action)


class LinkedUntilMended(Linked):
    """Each env raises in the 30th step of its life, until there is a file MENDED in the current folder."""

    def __init__(self) -> None:
        self.life = 0

    def step(self, action: Any) -> Any:
        self.life += 1
        if self.life == 30 and not Path("MENDED").exists():
            raise ZeroDivisionError("the chain has no link")
        return super().step(action)


class LinkedRaisesTwice(Linked):
    """The first env of each of two actor processes to come to its 20th step raises in it."""

    def __init__(self) -> None:
        self.life = 0

    def step(self, action: Any) -> Any:
        self.life += 1
        if self.life == 20 and any(is_first(name) for name in ("ONCE", "TWICE")):
            raise ZeroDivisionError("the chain has no link")
        return super().step(action)


class Boundless(Linked):
    """Actions without bounds, which SAC cannot squash into any."""

    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


register_envs("links", Linked, SlowlyLinked, LinkedUntilMended, LinkedRaisesTwice, Boundless)
