"""Small runs of SAC and DQN, and what must hold of every such run and of its replay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from tests.sample_envs.linked_envs import AGES
from tests.support.runs import lines_of, of_each_policy, train_arguments

from offbeat.api.train import Run, train
from offbeat.core.types import Array, Tree
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.sequences import SequenceReplay
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.run_directory.checkpoint import load
from offbeat.workers.learner import Learned
from offbeat.workers.replay_learner import ReplayLearner

ON_A_REPLAY = ("sac", "td3", "crossq", "dqn", "pearl")
"""Algorithms."""
SMALL_SAC: dict[str, Any] = {
    "steps": 300,
    "envs_per_actor": 2,
    "chunk_length": 3,
    "warmup": 64,
    "batch_size": 32,
    "capacity": 240,
    "hidden_sizes": (16, 16),
    "learning_rate": 1e-3,
    "utd_ratio": "1/2",
    "eval_every": 0,
    "checkpoint_every": 0,
}
"""Settings of small runs. After 300 env steps rows leave the replay."""
SMALL_RATIO = Fraction(SMALL_SAC["utd_ratio"])


def small_sac(path: Path, env: str = "Pendulum-v1", **settings: Any) -> Run:
    """Train as `SMALL_SAC` says, with changes; `algorithm` among them, another one on a replay."""
    callbacks, algorithm = settings.pop("callbacks", ()), settings.pop("algorithm", "sac")
    return train(algorithm, env, run_dir=path, callbacks=callbacks, **{**SMALL_SAC, **settings})


def sac_arguments(path: Path, env: str = "Pendulum-v1", **settings: Any) -> list[str]:
    """Return the arguments of `offbeat` that do the same."""
    return train_arguments("sac", env, path, {**SMALL_SAC, **settings})


# --- the ratio ----------------------------------------------------------------------------------------------


class Origin(NamedTuple):
    """From where the ratio counts."""

    env_steps: int = 0
    updates: int = 0


def updates_due(ratio: Fraction, warmup: int, transitions: int) -> int:
    return math.floor(ratio * max(0, transitions - warmup))


def assert_ratio(run: Path, ratio: Fraction, warmup: int, origin: Origin | None = None) -> None:
    """In every line from `origin` on, exactly as many updates have been made as the transitions make due.

    The transitions are the decisions of agents. With several policies each has an origin of 0 and a warmup of its own.
    """
    start = origin or Origin()
    lines = [line for line in lines_of(run) if line["env_steps"] > start.env_steps]
    assert lines
    for line in lines:
        made, reported = 0, of_each_policy(line, "utd_ratio")
        for policy, steps in of_each_policy(line, "agent_steps").items():
            transitions = steps - start.env_steps
            due = updates_due(ratio, warmup, transitions)
            made += due
            if transitions > warmup:
                assert reported[policy] == pytest.approx(due / (transitions - warmup))
        assert line["updates"] - start.updates == made, line["env_steps"]


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


# --- rows that tell where they belong -----------------------------------------------------------------------

LINKS = {"imports": ("tests.sample_envs.linked_envs",)}
"""A setting: actor processes must know these envs too."""


@contextmanager
def samples_checked(n_step: int, gamma: float = 0.99) -> Iterator[list[int]]:
    """Check every transition of `Linked` that is sampled in this process meanwhile; yield how many there were."""
    counted = [0]
    sample = TransitionReplay.sample

    def sample_and_check(self: TransitionReplay, random: np.random.Generator) -> Samples:
        samples = sample(self, random)
        assert_linked_samples(samples.arrays, n_step, gamma)
        counted[0] += len(samples.cells)
        return samples

    with patch.object(TransitionReplay, "sample", sample_and_check):
        yield counted


@contextmanager
def sequences_checked(n_step: int, gamma: float = 0.99) -> Iterator[list[int]]:
    """Check every sequence of `Linked` that is sampled in this process meanwhile; yield how many there were."""
    counted = [0]
    sample = SequenceReplay.sample

    def sample_and_check(self: SequenceReplay, random: np.random.Generator) -> Samples:
        samples = sample(self, random)
        arrays = samples.arrays
        assert_linked_samples(_transitions(arrays), n_step, gamma)
        resets, rows = arrays["resets"][:-1], arrays["observation"]
        goes_on = ~resets & (rows[:-1, :, 0] == rows[1:, :, 0])
        assert (goes_on | resets).all(), "another episode is remembered"
        counted[0] += len(samples.cells)
        return samples

    with patch.object(SequenceReplay, "sample", sample_and_check):
        yield counted


def _transitions(arrays: Tree) -> Tree:
    """Return those of sequences one by one, as a replay of rows samples them."""
    time, column = np.nonzero(arrays["valid"])
    observation = arrays["observation"][-len(arrays["valid"]) - 1 :]
    found = {name: arrays[name][time, column] for name in ("reward", "discount")}
    after = observation[arrays["next"][time, column], column]
    return {**found, "observation": observation[time, column], "next/observation": after}


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
