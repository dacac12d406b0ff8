"""Envs that misbehave in the course of a run; `--import tests.sample_envs.run_envs` registers them."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from tests.support.registering import IN_CHILD, is_first, register_envs


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


class Wanders(Ages):
    """Makes the folder `elsewhere` the working directory in its 30th step, if there is one."""

    def step(self, action: Any) -> Any:
        if self.age == 29 and Path("elsewhere").is_dir():
            os.chdir("elsewhere")
        return super().step(action)


class WandersInReset(Wave):
    """Makes the folder `elsewhere` the working directory in each reset, if there is one."""

    def reset(self, **arguments: Any) -> Any:
        if Path("elsewhere").is_dir():
            os.chdir("elsewhere")
        return super().reset(**arguments)


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


class Held(Ages):
    """From its 200th step on, each takes 30 milliseconds until there is a file GO in the current folder.

    So a test can stop or kill a run before it ends. It has snapshots.
    """

    def step(self, action: Any) -> Any:
        if self.age >= 200 and not Path("GO").exists():
            time.sleep(0.03)
        return super().step(action)

    def snapshot(self) -> dict[str, Any]:
        return {"phase": self.phase, "steps": self.steps, "age": self.age}

    def restore(self, state: dict[str, Any]) -> None:
        self.phase, self.steps, self.age = state["phase"], state["steps"], state["age"]


class Pays(Wave):
    """Pays the same in each step. If that is 0, a step takes 30 milliseconds, so that a run can be stopped before it
    ends.
    """

    def __init__(self, pay: float) -> None:
        self.pay = pay

    def step(self, action: Any) -> Any:
        if self.pay == 0:
            time.sleep(0.03)
        observation, _, *rest = super().step(action)
        return (observation, self.pay, *rest)


class Locks(gym.Env[Any, Any]):
    """Which key is the best of those on the table, and how far to turn it? One step is an episode.

    Keys earn 0, 1/2 and 1; one of the three, the same chance each, is not there. Turning it to where the lamp says, 1/2
    or -1/2, earns 1, less the further it is from there. So the best that can be earned is 5/6 + 1 on average.
    """

    BEST = 5 / 6 + 1
    observation_space: gym.Space[Any] = spaces.Dict(
        {
            "action_mask": spaces.MultiBinary(5),
            "door": spaces.Tuple((spaces.MultiBinary(1), spaces.Box(0, 1, (1,), np.float32))),
            "missing": spaces.Discrete(3, start=1),
        }
    )
    action_space: gym.Space[Any] = spaces.Dict(
        {"key": spaces.Discrete(3), "side": spaces.Discrete(2), "turn": spaces.Box(-1, 1, (1,), np.float32)}
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.missing, self.lamp = int(self.np_random.integers(3)), int(self.np_random.integers(2))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        if action["key"] == self.missing or action["side"] == 1:
            raise ValueError(f"{action} is not allowed")
        off = abs(float(action["turn"][0]) - (self.lamp - 0.5))
        return self.observe(), action["key"] / 2 + 1 - off, True, False, {}

    def observe(self) -> Any:
        mask = np.array([*(key != self.missing for key in range(3)), 1, 0], np.int8)
        door = (np.array([self.lamp], np.int8), np.array([self.np_random.random()], np.float32))
        return {"action_mask": mask, "door": door, "missing": self.missing + 1}

    def snapshot(self) -> dict[str, Any]:
        return {"missing": self.missing, "lamp": self.lamp}

    def restore(self, state: dict[str, Any]) -> None:
        self.missing, self.lamp = state["missing"], state["lamp"]


class Doors(Locks):
    """Keys alone, and the mask is in the infos: 5/6 is the best."""

    BEST = 5 / 6
    observation_space = spaces.Tuple((spaces.MultiBinary(1), spaces.Box(0, 1, (1,), np.float32)))
    action_space = spaces.Discrete(3)

    def reset(self, **arguments: Any) -> Any:
        observation, _ = super().reset(**arguments)
        return observation["door"], {"action_mask": observation["action_mask"][:3]}

    def step(self, action: Any) -> Any:
        turned = {"key": action, "side": 0, "turn": [self.lamp - 0.5]}
        observation, reward, *ends, _ = super().step(turned)
        return observation["door"], reward - 1, *ends, {"action_mask": observation["action_mask"][:3]}


# --- envs that fail while actors act ------------------------------------------------------------------------


def _mended() -> bool:
    """Whether the file MENDED is there: what always fails then no longer does."""
    return Path("MENDED").exists()


class BecomesUnsavable(Ages):
    """Its state can be saved, but not in its second hundred env steps."""

    def __init__(self, what: str = "set") -> None:
        super().__init__()
        self.what = what

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = {"phase": self.phase, "steps": self.steps, "age": self.age}
        if not 100 <= self.age < 200:
            return state
        if self.what == "error":
            raise KeyError("the door")
        return {**state, "seen": {1, 2} if self.what == "set" else threading.Lock()}

    def restore(self, state: dict[str, Any]) -> None:
        self.phase, self.steps, self.age = state["phase"], state["steps"], state["age"]


class Numbered(gym.Env[Any, Any]):
    """The observation is (number of the episode, env steps in it); episodes have random numbers and last 10 steps.

    Every step is rewarded with 1, so each episode's return is its length, and rows that do not belong together show.
    """

    observation_space: gym.Space[Any] = spaces.Box(0, 2**24, (2,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.number, self.age = int.from_bytes(os.urandom(3), "big"), 0
        return self.observe(), {}

    def step(self, _action: Any) -> Any:
        self.age += 1
        return self.observe(), 1.0, self.age == 10, False, {}

    def observe(self) -> Any:
        return np.array([self.number, self.age], np.float32)


class RaisesOnce(Ages):
    """The first of all envs whose 200th step it is raises in it."""

    def step(self, action: Any) -> Any:
        if self.age == 200 and is_first("RAISED"):
            raise ZeroDivisionError("the wave has no length")
        return super().step(action)


class RaisesUntilMended(Ages):
    """Every env raises in its 200th step."""

    def step(self, action: Any) -> Any:
        if self.age == 200 and not _mended():
            raise ZeroDivisionError("the wave has no length")
        return super().step(action)


class Exits(Ages):
    """Every env calls sys.exit in its 200th step."""

    def step(self, action: Any) -> Any:
        if self.age == 200:
            sys.exit(0)
        return super().step(action)


class ExitsAtOnce(Ages):
    """The first env to come to its 200th step ends the whole process in it."""

    def step(self, action: Any) -> Any:
        if self.age == 200 and is_first("EXITED"):
            os._exit(0)
        return super().step(action)


class HangsOnce(Ages):
    """The first env to come to its 200th step sleeps in it for ten minutes."""

    def step(self, action: Any) -> Any:
        if self.age == 200 and is_first("SLEEPING"):
            time.sleep(600)
        return super().step(action)


class HangsHoldingTheInterpreter(Ages):
    """Likewise, and no other Python thread of the process runs meanwhile."""

    def step(self, action: Any) -> Any:
        if self.age == 200 and is_first("SLEEPING"):
            ctypes.PyDLL(None).sleep(600)
        return super().step(action)


class HangsInReset(Wave):
    """The first env to begin its third episode in an actor sleeps for ten minutes before it."""

    episodes = 0

    def reset(self, **arguments: Any) -> Any:
        self.episodes += 1
        if self.episodes == 3 and is_first("SLEEPING"):
            time.sleep(600)
        return super().reset(**arguments)


class HangsInFirstReset(Wave):
    """The first env of an actor process sleeps for ten minutes before its first episode."""

    def reset(self, **arguments: Any) -> Any:
        if IN_CHILD and is_first("SLEEPING"):
            time.sleep(600)
        return super().reset(**arguments)


class HangsInConstructor(Wave):
    """The second env that is made sleeps for ten minutes in its constructor: the first is made to see how it looks."""

    def __init__(self) -> None:
        if not is_first("MADE"):
            Path("SLEEPING").touch()
            time.sleep(600)


class CannotBeMadeInChildren(Wave):
    """Raises in its constructor, but only in child processes of a run."""

    def __init__(self) -> None:
        if IN_CHILD:
            raise PermissionError("the wave tank is in use")


class Irregular(Wave):
    """One step in twenty takes a hundred times as long as the others."""

    def step(self, action: Any) -> Any:
        time.sleep(0.01 if self.np_random.random() < 0.05 else 0.0001)
        return super().step(action)


class SlowToReset(Wave):
    """Every reset takes half a second, thousands of times as long as a step. Episodes last 20 env steps."""

    def reset(self, **arguments: Any) -> Any:
        time.sleep(0.5)
        return super().reset(**arguments)


class Overflowing(Ages):
    """From the 100th env step of its life on, rewards are so large that their sums are infinite, until mended."""

    last = 10**9

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return (observation, 3e38 if 100 < self.age <= self.last and not _mended() else reward, *rest)


class OverflowingForAWhile(Overflowing):
    """Likewise, for 20 env steps."""

    last = 120


def register() -> None:
    kinds: list[Any] = [Wave, RaisesLate, NaNLate, RaisesInReset, Sleeper, SleepsInReset, Unhurried, Locks, Doors]
    kinds += [Numbered, RaisesOnce, RaisesUntilMended, Exits, ExitsAtOnce, HangsOnce, HangsHoldingTheInterpreter]
    kinds += [HangsInReset, HangsInFirstReset, CannotBeMadeInChildren, Irregular, SlowToReset, Overflowing]
    kinds += [OverflowingForAWhile, HangsInConstructor, Held, Pays, Wanders, WandersInReset, BecomesUnsavable]
    register_envs("runs", *kinds)


register()
if os.environ.get("OFFBEAT_TEST_SLEEP_IN_IMPORT"):
    Path("SLEEPING").touch()
    time.sleep(20)
if os.environ.get("OFFBEAT_TEST_FAIL_IN_ACTORS") and IN_CHILD:
    raise ImportError("the wave library is of another version")
