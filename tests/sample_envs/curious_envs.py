"""Envs that do what envs of real simulations do; `--import tests.sample_envs.curious_envs` registers them.

Actor processes import this, so it does without torch.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from tests.support.registering import IN_CHILD, register_envs


class Line(gym.Env[Any, Any]):
    """A place on a line that the action moves, and noise of the env's own; an episode ends with one chance in ten."""

    observation_space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.place = 0.0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.place += 0.1 if action else -0.1
        return self.observe(), self.place, bool(self.np_random.random() < 0.1), False, {}

    def observe(self) -> Any:
        return np.array([self.place, self.np_random.random()], np.float32)

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place}

    def restore(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class Sampling(Line):
    """Samples what it observes and pays from its spaces, which are attributes of the class, and from parts of one."""

    observation_space = spaces.Dict({"place": Line.observation_space, "noise": spaces.Box(0, 1, (2,), np.float32)})

    def step(self, action: Any) -> Any:
        observation, _, *ends = super().step(action)
        return observation, float(self.action_space.sample()), *ends

    def observe(self) -> Any:
        return {"place": super().observe(), "noise": self.observation_space["noise"].sample()}


class SamplingShared(Sampling):
    """Does so from constants of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space, self.action_space = SHARED


SHARED = deepcopy((Sampling.observation_space, Sampling.action_space))


class Reporting(Line):
    """Reports its place in each step, and at an episode's end how it went; now and then a number that is none."""

    def step(self, action: Any) -> Any:
        observation, reward, ended, truncated, _ = super().step(action)
        info: dict[str, Any] = {"place": self.place, "sign": {"positive": self.place > 0}, "name": "line"}
        if ended:
            info["success"] = self.place > 0
        if self.np_random.random() < 0.1:
            info["place"] = np.nan
        return observation, reward, ended, truncated, info


class Learning(Reporting):
    """Is told of progress, and has a wind that a curriculum sets; both are in what it observes, pays and reports."""

    wind = 0.0
    progress = 0.0

    def set_progress(self, fraction: float) -> None:
        self.progress = fraction

    def step(self, action: Any) -> Any:
        observation, reward, ended, truncated, info = super().step(action)
        self.place += self.wind * float(self.np_random.normal())
        info |= {"progress": self.progress, "wind": self.wind}
        return observation, reward + self.progress, ended, truncated, info


class LearningVector(gym.vector.VectorEnv[Any, Any, Any]):
    """Columns that count up to their own lengths, and are told as `Learning` is; even columns alone report."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Line.observation_space, Line.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.wind = self.progress = 0.0
        self.ages, self.ended = np.zeros(num_envs), np.zeros(num_envs, np.bool_)

    def set_progress(self, fraction: float) -> None:
        self.progress = fraction

    def set_parameters(self, *, wind: float) -> None:
        self.wind = wind

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.ages[:], self.ended[:] = 0, False
        return self.observe(), {"age": np.full(self.num_envs, 100.0)}

    def step(self, _actions: Any) -> Any:
        self.ages = np.where(self.ended, 0, self.ages + 1)
        rewards = np.where(self.ended, 0, self.progress + self.wind).astype(np.float32)
        self.ended = self.ages == 3 + np.arange(self.num_envs)
        even = np.arange(self.num_envs) % 2 == 0
        info = {"age": self.ages.copy(), "_age": even, "wind": np.full(self.num_envs, self.wind)}
        return self.observe(), rewards, self.ended.copy(), np.zeros(self.num_envs, np.bool_), info

    def observe(self) -> Any:
        return np.stack([self.ages, np.zeros(self.num_envs)], axis=1).astype(np.float32)

    def snapshot(self) -> dict[str, Any]:
        return {"ages": self.ages.copy(), "ended": self.ended.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.ages, self.ended = state["ages"].copy(), state["ended"].copy()


class Waiting(Line):
    """Pays 1 a step; there is something to decide in its first step, and then in every third.

    In between the action has no effect. An episode has `length` steps; the observation is (steps taken, noise).
    """

    length = 8
    age = 0

    def reset(self, **arguments: Any) -> Any:
        self.age = 0
        super().reset(**arguments)
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        self.place += 0.01 if action and self.age % 3 == 0 else 0.0
        self.age += 1
        return self.observe(), 1.0, self.age == self.length, False, self.info()

    def info(self) -> dict[str, Any]:
        return {"no_decision": self.age % 3 != 0, "age": self.age}

    def observe(self) -> Any:
        return np.array([self.age, self.np_random.random()], np.float32)

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place, "age": self.age}

    def restore(self, state: dict[str, Any]) -> None:
        self.place, self.age = state["place"], state["age"]


class LateWaiting(Waiting):
    """Says only after its first episodes that there is nothing to decide."""

    steps = 0

    def info(self) -> dict[str, Any]:
        self.steps += 1
        return super().info() if self.steps > 20 else {"age": self.age}


class LateMask(Waiting):
    """Has a mask only after its first episodes."""

    steps = 0

    def info(self) -> dict[str, Any]:
        self.steps += 1
        return {"age": self.age, **({"action_mask": np.ones(2)} if self.steps > 20 else {})}


class WaitingCue(Waiting):
    """What is to be done in the last decision, after 6 steps, is shown after 4, when there is nothing to decide.

    So only a memory of such a moment helps. Every other step pays nothing.
    """

    cue = 0

    def reset(self, **arguments: Any) -> Any:
        super().reset(**arguments)
        self.cue = int(self.np_random.integers(2))
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        paid = float(self.age == 6 and int(action) == self.cue)
        return (self.stepped(), paid, self.age == self.length, False, self.info())

    def stepped(self) -> Any:
        self.age += 1
        return self.observe()

    def observe(self) -> Any:
        return np.array([2 * self.cue - 1 if self.age == 4 else 0, self.age == 6], np.float32)

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place, "age": self.age, "cue": self.cue}

    def restore(self, state: dict[str, Any]) -> None:
        self.place, self.age, self.cue = state["place"], state["age"], state["cue"]


class Large:
    """100 MB, which take no room as long as nobody writes to them."""

    def __init__(self) -> None:
        self.zeros = np.zeros(12_500_000)


class Rude(Line):
    """Prints in every step, leaves a thread and, in a child process of a run, a process running; large infos.

    Its infos count how many of the large things in them are still there. The file LEFT names the processes.
    """

    alive: ClassVar[weakref.WeakSet[Large]] = weakref.WeakSet()

    def __init__(self) -> None:
        threading.Thread(target=threading.Event().wait).start()  # no daemon: Python itself would wait for it
        if IN_CHILD and (pid := os.fork()):
            with Path("LEFT").open("a") as file:
                file.write(f"{pid}\n")
        elif IN_CHILD:
            time.sleep(600)
            os._exit(0)

    def step(self, action: Any) -> Any:
        sys.stdout.write('{"printed": "by Python"}\n')
        os.write(1, b'{"printed": "past Python"}\n')
        *row, _ = super().step(action)
        large = Large()
        self.alive.add(large)
        return (*row, {"large": large, "alive": len(self.alive), **dict.fromkeys(map(str, range(1000)), large)})


class Diary(Line):
    """Keeps 1,000 characters of text for each step of its life, and saves them."""

    diary = ""

    def step(self, action: Any) -> Any:
        self.diary += 1000 * "x"
        return super().step(action)

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place, "diary": self.diary}

    def restore(self, state: dict[str, Any]) -> None:
        self.place, self.diary = state["place"], state["diary"]


class TooLarge(Line):
    """From the 50th step of its life on, a reward, or an observation, is too large for float32."""

    observation_space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    reward, place_seen = 1.0, 1e300
    age = 0

    def step(self, action: Any) -> Any:
        _, _, *ends = super().step(action)
        self.age += 1
        late = self.age > 50
        return (np.array([self.place_seen if late else 0.1, 1 / 3]), np.float64(self.reward if late else 1 / 3), *ends)


class TooLargeReward(TooLarge):
    reward, place_seen = 1e300, 1.0


def register() -> None:
    kinds: list[Any] = [Line, Sampling, SamplingShared, Reporting, Learning, Waiting, LateWaiting, WaitingCue, Rude]
    kinds += [LateMask, Diary, TooLarge, TooLargeReward]
    register_envs("curious", *kinds)
    if "curious/LearningVector-v0" not in gym.registry:
        gym.register("curious/LearningVector-v0", vector_entry_point=f"{__name__}:LearningVector")


register()
