"""Envs that cost nothing and misbehave: they raise, hang, end their process, return NaN, print, and start programs.

The harness lays as many tokens into the folder `tokens` as there may be failures. An env that fails takes one first:
so a run has a known number of failures, whoever of its processes comes to them, and a resume comes to an end. When an
env fails follows from the random stream that its run has given it.

Worker processes import this, so it does without torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

CHANCE = 1 / 50
"""Of failing, in each env step after the first `CALM` of an env's life."""
CALM = 20
"""Longer than the look at an env before a run begins: an env that fails there is refused."""
RUNTIME = "OFFBEAT_SOAK_RUNTIME"
"""Environment variable: the run's runtime."""
TOKENS, TAKEN = Path("tokens"), Path("taken")
"""Folders in the current one. A token that is taken is renamed: who took it is its name's first part."""


def in_child() -> bool:
    """Whether this is a child process of the run, and not `offbeat` itself."""
    return Path(sys.argv[0]).name != "offbeat"


def take_token() -> bool:
    """Take one of the tokens; return whether there was one left."""
    for token in sorted(TOKENS.iterdir()):
        with suppress(FileNotFoundError):  # another process was quicker
            token.rename(TAKEN / f"{'child' if in_child() else 'main'}-{token.name}-{os.getpid()}")
            return True
    return False


# --- what they observe and do -------------------------------------------------------------------------------


class Vector(gym.Env[Any, Any]):
    """A place that the action moves, and noise. An episode ends with one chance in 20, and is cut after 60 steps."""

    observation_space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(3)
    place, age, life = 0.0, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.place, self.age = float(self.np_random.normal()), 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.place += 0.1 * (float(np.mean(action)) - 1)
        self.age, self.life = self.age + 1, self.life + 1
        ends, cut = bool(self.np_random.random() < 0.05), self.age == 60
        return self.observe(), -abs(self.place), ends, cut, {"won": float(self.place > 0)} if ends or cut else {}

    def observe(self) -> Any:
        return np.array([self.place, self.age / 60, self.np_random.random()], np.float32)

    def snapshot(self) -> dict[str, Any]:
        return {"place": self.place, "age": self.age, "life": self.life}

    def restore(self, state: dict[str, Any]) -> None:
        self.place, self.age, self.life = state["place"], state["age"], state["life"]


class Box(Vector):
    """The same, moved by numbers."""

    action_space: gym.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)


class Image(Vector):
    """The same, shown as an image with a bright column where the place is."""

    observation_space: gym.Space[Any] = spaces.Box(0, 255, (36, 36), np.uint8)

    def observe(self) -> Any:
        image = self.np_random.integers(0, 128, (36, 36), np.uint8)
        image[:, int(np.clip(18 + 4 * self.place, 0, 35))] = 255
        return image


# --- what else they do --------------------------------------------------------------------------------------


class Fails(Vector):
    """Fails now and then, as long as there are tokens."""

    def step(self, action: Any) -> Any:
        row = super().step(action)
        if self.life > CALM and self.np_random.random() < CHANCE and self.possible() and take_token():
            return self.fail(row)
        return row

    def possible(self) -> bool:
        """Whether it can fail here at all."""
        return True

    def fail(self, row: Any) -> Any:
        raise NotImplementedError


class Raises(Fails):
    """Raises an error."""

    def fail(self, row: Any) -> Any:
        raise ZeroDivisionError(f"an error of the env's own, after {row[1]}")


class NaN(Fails):
    """Returns a reward, or an observation, that is NaN."""

    def fail(self, row: Any) -> Any:
        observation, reward, *rest = row
        if observation.dtype == np.float32 and self.np_random.random() < 0.5:
            return (np.full_like(observation, np.nan), reward, *rest)
        return (observation, np.nan, *rest)


class Hangs(Fails):
    """Does not return for ten minutes. Not in the main process of a serial run, where nobody could notice."""

    def possible(self) -> bool:
        return in_child() or os.environ.get(RUNTIME) != "serial"

    def fail(self, row: Any) -> Any:
        time.sleep(600)
        return row


class Exits(Fails):
    """Ends its process without a word, or with a signal. Not in a main process: no run could go on after that."""

    ends: ClassVar[list[Callable[[], None]]] = [
        lambda: os._exit(3),
        lambda: os._exit(0),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: sys.exit(5),
    ]

    def possible(self) -> bool:
        return in_child()

    def fail(self, row: Any) -> Any:
        self.ends[int(self.np_random.integers(len(self.ends)))]()
        return row


class Prints(Vector):
    """Prints lines, half lines and bytes that are no text, by Python and past it."""

    def step(self, action: Any) -> Any:
        if self.np_random.random() < 0.05:
            sys.stdout.write('{"printed": "by Python"}\n')
            os.write(1, b'{"printed": "past Python", \xff\xfe half a line')
            sys.stderr.write("printed to stderr\n")
        return super().step(action)


class Spawns(Vector):
    """Starts a program that runs for ten minutes, as simulators do, and never ends it. Only in child processes."""

    def __init__(self) -> None:
        if in_child():
            self.program = subprocess.Popen(["sleep", "600"])


def register() -> None:
    """Register each kind of env with each behaviour."""
    behaviours: dict[str, type[Any]] = {
        "plain": Vector,
        "raises": Raises,
        "hangs": Hangs,
        "exits": Exits,
        "nan": NaN,
        "prints": Prints,
        "spawns": Spawns,
    }
    for shape in (Vector, Box, Image):
        for name, behaviour in behaviours.items():
            env_id = f"soak/{shape.__name__}-{name}-v0"
            if env_id not in gym.registry:
                gym.register(env_id, _joined(behaviour, shape))


def env_of(shape: str, behaviour: str) -> Any:
    """Return a new env of this shape and behaviour."""
    make = gym.registry[f"soak/{shape}-{behaviour}-v0"].entry_point
    assert callable(make)
    return make()


def _joined(behaviour: type[Any], shape: type[Any]) -> Any:
    """Return a class that behaves like one and looks like the other; it can be found by its name, as in pickles."""
    if shape is Vector:
        return behaviour
    if behaviour is Vector:
        return shape
    name = f"{behaviour.__name__}{shape.__name__}"
    joined = type(name, (behaviour, shape), {"__module__": __name__})
    globals()[name] = joined
    return joined


register()
