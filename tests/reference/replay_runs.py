"""Small runs of SAC, envs whose rows tell where they belong, and what must hold of every such run."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from tests.reference.runs import lines_of

from offbeat.checkpoint import load
from offbeat.memory.replay import Replay, Samples
from offbeat.training import Run, train
from offbeat.types import Array, Tree
from offbeat.workers.learner import Learned
from offbeat.workers.replay_learner import ReplayLearner

SMALL_SAC: dict[str, Any] = {
    "steps": 300,
    "envs_per_actor": 2,
    "chunk_length": 3,
    "warmup": 64,
    "batch_size": 32,
    "capacity": 240,
    "hidden_sizes": (16, 16),
    "learning_rate": 1e-3,
    "eval_every": 0,
    "checkpoint_every": 0,
}
"""The replay is full before the end, so that rows leave it."""


def small_sac(path: Path, env: str = "Pendulum-v1", **settings: Any) -> Run:
    """Train as `SMALL_SAC` says, with changes."""
    callbacks = settings.pop("callbacks", ())
    return train("sac", env, run_dir=path, callbacks=callbacks, **{**SMALL_SAC, **settings})


def sac_arguments(path: Path, env: str = "Pendulum-v1", **settings: Any) -> list[str]:
    """Return the arguments of `offbeat` that do the same."""
    merged = {**SMALL_SAC, **settings}
    imports = [word for module in merged.pop("imports", ()) for word in ("--import", module)]
    texts = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in merged.items()}
    pairs = [f"{key}={text}" for key, text in texts.items()]
    return ["train", "sac", env, *imports, "--run-dir", str(path), "--progress", "lines", "--set", *pairs]


# --- the ratio ----------------------------------------------------------------------------------------------


class Origin(NamedTuple):
    """From where the ratio counts."""

    env_steps: int = 0
    updates: int = 0


def updates_due(ratio: Fraction, warmup: int, transitions: int) -> int:
    return math.floor(ratio * max(0, transitions - warmup))


def assert_ratio(run: Path, ratio: Fraction, warmup: int, origin: Origin | None = None) -> None:
    """In every line from `origin` on, exactly as many updates have been made as the transitions make due."""
    start = origin or Origin()
    lines = [line for line in lines_of(run) if line["env_steps"] > start.env_steps]
    assert lines
    for line in lines:
        transitions = line["env_steps"] - start.env_steps
        made = updates_due(ratio, warmup, transitions)
        assert line["updates"] - start.updates == made, line["env_steps"]
        if transitions > warmup:
            assert line["utd_ratio"] <= ratio < line["utd_ratio"] + 1 / (transitions - warmup)


@contextmanager
def learning_steps() -> Iterator[list[Learned]]:
    """Yield what each learning step did that is taken in this process meanwhile."""
    taken: list[Learned] = []
    learn = ReplayLearner.learn

    def learn_and_keep(self: ReplayLearner, step: int, progress: float) -> Learned:
        taken.append(learn(self, step, progress))
        return taken[-1]

    with patch.object(ReplayLearner, "learn", learn_and_keep):
        yield taken


def assert_no_burst(taken: list[Learned], ratio: Fraction) -> None:
    """No learning step makes more updates than its own transitions make due, but for what was begun before them."""
    assert taken
    for learned in taken:
        assert 0 <= learned.updates <= math.ceil(ratio * learned.env_steps)


# --- envs whose rows tell where they belong -----------------------------------------------------------------

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
        if self.life == 20 and any(_is_first(name) for name in ("ONCE", "TWICE")):
            raise ZeroDivisionError("the chain has no link")
        return super().step(action)


def _is_first(name: str) -> bool:
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Boundless(Linked):
    """Actions without bounds, which SAC cannot squash into any."""

    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def register() -> None:
    kinds: list[Any] = [Linked, SlowlyLinked, LinkedUntilMended, LinkedRaisesTwice, Boundless]
    for kind in kinds:
        if f"links/{kind.__name__}-v0" not in gym.registry:
            gym.register(f"links/{kind.__name__}-v0", kind)


register()
LINKS = {"imports": (__name__,)}
"""A setting: actor processes must know these envs too."""


@contextmanager
def samples_checked(n_step: int, gamma: float = 0.99) -> Iterator[list[int]]:
    """Check every transition of `Linked` that is sampled in this process meanwhile; yield how many there were."""
    counted = [0]
    sample = Replay.sample

    def sample_and_check(self: Replay, random: np.random.Generator) -> Samples:
        samples = sample(self, random)
        assert_linked_samples(samples.arrays, n_step, gamma)
        counted[0] += len(samples.cells)
        return samples

    with patch.object(Replay, "sample", sample_and_check):
        yield counted


def assert_linked_samples(samples: Tree, n_step: int, gamma: float) -> None:
    """Each begins where a decision was made, and ends so many steps later in the same episode as it says."""
    here, there = samples["observation"], samples["next/observation"]
    steps = np.rint(AGES * (there[:, 1] - here[:, 1])).astype(int)
    np.testing.assert_array_equal(here[:, 0], there[:, 0], err_msg="the next observation is of another episode")
    assert (here[:, 2] == 0).all(), "a reset row was sampled"
    assert ((steps >= 1) & (steps <= n_step)).all()
    powers = np.array([gamma**i for i in range(n_step + 1)])
    rewards = np.array([sum(gamma**i for i in range(k)) for k in range(n_step + 1)])
    np.testing.assert_allclose(samples["reward"], here[:, 0] * rewards[steps], rtol=1e-5)
    np.testing.assert_allclose(samples["discount"], np.where(there[:, 2] == 1, 0, powers[steps]), rtol=1e-5)


def linked_rows(run: Path) -> int:
    """Check the replay that a run on `Linked` left, row by row; return how many transitions it holds."""
    arrays = load(run / "checkpoints" / "latest", with_replay=True).replay
    assert arrays is not None
    stretches = [name.removesuffix("/observation") for name in arrays if name.endswith("/observation")]
    return sum(
        _linked_rows(arrays[f"{name}/observation"], *(arrays[f"{name}/{flag}"] for flag in _FLAGS))
        for name in stretches
    )


_FLAGS = ("valid", "terminated", "truncated")


def _linked_rows(observation: Array, valid: Array, terminated: Array, truncated: Array) -> int:
    """Check a stretch of rows [R + 1, N, ...], of which the last holds only the observation that follows."""
    transitions = 0
    for row, column in zip(*np.nonzero(valid[:-1]), strict=True):
        here, there = observation[row, column], observation[row + 1, column]
        assert here[0] == there[0], "a transition leads into another episode"
        assert there[1] == here[1] + 1 / AGES
        assert here[2] == 0
        assert there[2] == int(terminated[row, column]) - int(truncated[row, column])
        transitions += 1
    return transitions
