"""Envs whose infos have the rewards; `--import tests.sample_envs.paid_envs` registers them.

So the sum of these numbers over an episode is its return. Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from tests.sample_envs.curious_envs import LearningVector, Line, Waiting
from tests.support.registering import IN_CHILD, register_envs

from offbeat.envs.testing.worlds import SingleEnvs


class Paid(Line):
    """The info has the reward in each step, its number among the steps, and whether the place is above 0."""

    age = 0

    def reset(self, **arguments: Any) -> Any:
        self.age = 0
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        observation, reward, *ends, _ = super().step(action)
        self.age += 1
        return observation, reward, *ends, {"paid": reward, "age": self.age, "success": self.place > 0}

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place, "age": self.age}

    def restore(self, state: dict[str, Any]) -> None:
        self.place, self.age = state["place"], state["age"]


class PaidUnsaved(Paid):
    """Has no snapshots."""

    snapshot = None  # type: ignore[assignment]


class PaidDying(Paid):
    """Ends the first actor process that comes to the 50th step of an env."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if IN_CHILD and self.steps == 50:
            with suppress(FileExistsError):
                Path("DIED").touch(exist_ok=False)
                os._exit(1)
        return super().step(action)


class PaidBox(Paid):
    """Takes a number as its action."""

    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(action[0] > 0)


class PaidWaiting(Waiting):
    """Pays in the steps without a decision too."""

    def step(self, action: Any) -> Any:
        *row, info = super().step(action)
        return *row, {**info, "paid": row[1]}


class PaidVector(LearningVector):
    """The info of the vector env has the rewards of the columns that are stepped, with flags that say which are."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def step(self, actions: Any) -> Any:
        stepped = ~self.ended
        observations, _, terminated, truncated, _ = super().step(actions)
        rewards = np.where(stepped, self.ages, 0).astype(np.float32)
        return observations, rewards, terminated, truncated, {"paid": np.where(stepped, rewards, 9), "_paid": stepped}


class PaidWorld(SingleEnvs):
    """Three agents: paid_0, paid_1, paid_2."""

    def __init__(self) -> None:
        super().__init__({f"paid_{index}": Paid() for index in range(3)}, max_steps=12)


register_envs("paid", Paid, PaidUnsaved, PaidDying, PaidBox, PaidWaiting)
if "paid/PaidVector-v0" not in gym.registry:
    gym.register("paid/PaidVector-v0", vector_entry_point=f"{__name__}:PaidVector")
