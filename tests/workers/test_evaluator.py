from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tests.reference.models import random_vector

from offbeat.envs.make import make_envs
from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.models.spec import PolicySpec
from offbeat.seeding import derive_seed
from offbeat.types import EnvSpec
from offbeat.workers.evaluator import Evaluation, evaluate

ENV = "tests/RandomLength-v0"
MEAN_LENGTH = 5
LOOKS = 2
"""Seed of weights whose most likely action depends on the observation."""


class RandomLength(gym.Env[Any, Any]):
    """Episodes of a geometric length; a step earns 1 and its action. Every second episode is truncated."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.left = int(self.np_random.geometric(1 / MEAN_LENGTH))
        self.truncates = bool(self.np_random.integers(2))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        ended = self.left == 0
        return self.observe(), 1.0 + float(action), ended and not self.truncates, ended and self.truncates, {}

    def observe(self) -> Any:
        return np.array([1, (-1) ** self.left], np.float32)


_KIND: Any = RandomLength
if ENV not in gym.registry:
    gym.register(ENV, _KIND)


def policy_for(spec: EnvSpec, weights_seed: int | None = None) -> NumpyPolicy:
    """A policy of zeros, whose most likely action is 0, or one with random weights."""
    policy = NumpyPolicy(PolicySpec(spec.observation, spec.action, (4,), "tanh", "categorical", normalize=False))
    if weights_seed is not None:
        policy.load(random_vector(policy.spec, np.random.default_rng(weights_seed)))
    return policy


def evaluated(columns: int, episodes: int, seed: int = 0, **arguments: Any) -> Evaluation:
    envs = make_envs(ENV, columns, seed=seed, role="evaluation")
    return evaluate(policy_for(envs.spec), envs, episodes=episodes, seed=seed, **arguments)


def lengths_of_column(seed: int, column: int, episodes: int) -> list[int]:
    """The lengths of a column's first episodes, from the env alone."""
    env = RandomLength()
    env.reset(seed=derive_seed(seed, "evaluation", 0, 0, column))
    lengths = []
    for _ in range(episodes):
        lengths.append(env.left)
        env.reset()
    return lengths


@pytest.mark.parametrize(("columns", "episodes"), [(4, 10), (4, 4), (5, 3), (1, 6), (3, 20)])
def test_column_i_plays_episodes_i_and_i_plus_n_and_so_on(columns, episodes):
    played = [lengths_of_column(0, column, 1 + episodes // columns) for column in range(columns)]
    expected = [played[episode % columns][episode // columns] for episode in range(episodes)]
    result = evaluated(columns, episodes)
    assert result.lengths.tolist() == expected
    assert result.returns.tolist() == expected, "whole episodes, reset rows and other episodes left out"
    assert result.return_mean == result.length_mean == pytest.approx(np.mean(expected))
    assert result.return_std == pytest.approx(np.std(expected))


def test_short_episodes_are_not_preferred():
    """Of 200 columns, the first 200 episodes to end would be about half as long as they should be."""
    lengths = evaluated(200, 200).lengths
    assert lengths.mean() == pytest.approx(MEAN_LENGTH, abs=4 * lengths.std() / len(lengths) ** 0.5)


def test_the_seed_decides_the_result():
    first, again, other = evaluated(3, 9, 1), evaluated(3, 9, 1), evaluated(3, 9, 2)
    np.testing.assert_array_equal(first.returns, again.returns)
    assert first.returns.tolist() != other.returns.tolist()


def test_actions_are_the_most_likely_ones_unless_they_are_to_be_sampled():
    greedy, sampled, again = evaluated(4, 40), evaluated(4, 40, sampled=True), evaluated(4, 40, sampled=True)
    np.testing.assert_array_equal(greedy.lengths, sampled.lengths)
    ones = (sampled.returns - greedy.returns).sum() / sampled.lengths.sum()
    assert 0.35 < ones < 0.65
    np.testing.assert_array_equal(sampled.returns, again.returns)


def test_the_policy_sees_each_observation_that_it_acts_on():
    envs = make_envs(ENV, 3, seed=0, role="evaluation")
    policy = policy_for(envs.spec, weights_seed=LOOKS)
    even, odd = (int(policy.greedy({"observation": np.array([[1, sign]], np.float32)})[0]) for sign in (1.0, -1.0))
    assert {even, odd} == {0, 1}, "this policy does not look"
    result = evaluate(policy, envs, episodes=12, seed=0)
    expected = [sum(1 + (odd if left % 2 else even) for left in range(length, 0, -1)) for length in result.lengths]
    assert result.returns.tolist() == expected


def test_the_caller_is_told_of_every_step_and_may_stop():
    told: list[int] = []
    evaluated(3, 7, on_step=told.append)
    assert told == sorted(told)
    assert told[-1] == 7
    assert told[-2] < 7

    def stop(ended: int) -> None:
        if ended >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluated(3, 7, on_step=stop)
