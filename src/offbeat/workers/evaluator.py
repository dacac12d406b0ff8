"""Evaluation: whole episodes of one fixed policy, many envs at once, without a bias to short episodes.

Each column is told beforehand how many episodes it plays. Taking instead the first E episodes to end, of all
columns together, would prefer the short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat.envs.contract import Envs, Outcome
from offbeat.models.stacks import Stacks
from offbeat.seeding import stream
from offbeat.types import Array, Policy

EVALUATION_ENVS = 32
"""Envs that an evaluation steps at once, at most."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation."""

    returns: NDArray[np.float64]
    """[episodes], undiscounted and unclipped."""
    lengths: NDArray[np.int64]
    """[episodes], in env steps."""

    @property
    def return_mean(self) -> float:
        return float(self.returns.mean())

    @property
    def return_std(self) -> float:
        """Standard deviation over the episodes."""
        return float(self.returns.std())

    @property
    def return_min(self) -> float:
        return float(self.returns.min())

    @property
    def return_max(self) -> float:
        return float(self.returns.max())

    @property
    def length_mean(self) -> float:
        return float(self.lengths.mean())


def evaluate(
    policy: Policy,
    envs: Envs,
    *,
    episodes: int,
    seed: int,
    sampled: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> Evaluation:
    """Play exactly `episodes` whole episodes, of the task as it is at the end of training.

    Args:
        policy: with its weights loaded.
        envs: N columns in one group; a new episode is begun in each.
        episodes: column i plays episodes i, i + N, i + 2 N, ... of them.
        seed: keys the sampling.
        sampled: sample actions, instead of taking the most likely one.
        on_step: called after each vector step with the episodes that have ended so far; may raise to stop.
    """
    columns = envs.spec.columns
    random = stream(seed, "evaluate")
    tally = _Tally(episodes, columns)
    state = np.zeros((columns, policy.state_size), np.float32)
    envs.tell(1.0)
    stacks, observation = Stacks(envs.spec.observation, columns), envs.reset()
    stacks.begin(observation)
    while tally.ended < episodes:
        seen = stacks.seen(observation)
        action = policy.act(seen, random, state).action if sampled else policy.greedy(seen, state)
        outcome = _step(envs, policy.to_env(action), tally)
        observation, state[outcome.resets] = outcome.observation, 0
        stacks.push(observation, outcome.resets)
        if on_step is not None:
            on_step(tally.ended)
    return Evaluation(tally.returns, tally.lengths)


def _step(envs: Envs, action: Array, tally: _Tally) -> Outcome:
    envs.send(action)
    outcome = envs.recv()
    tally.add(outcome.reward, outcome.valid, outcome.ended)
    return outcome


class _Tally:
    """Returns and lengths by episode; columns that have played their share are no longer counted."""

    def __init__(self, episodes: int, columns: int) -> None:
        self.returns, self.lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        self.ended = 0
        self._episode = np.arange(columns)
        """The number of the episode that each column is playing."""

    def add(self, reward: Array, valid: Array, ended: Array) -> None:
        counted = self._episode < len(self.returns)
        episode = self._episode[counted]
        self.returns[episode] += reward[counted]
        self.lengths[episode] += valid[counted]
        self.ended += int((ended & counted).sum())
        self._episode[ended] += len(self._episode)
