"""A bandit whose best arm must be found by trying: a task for policies that get their previous action and reward."""

from __future__ import annotations

from functools import cache

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import Tree
from offbeat.envs.testing.correct_action import Choices, CorrectActionVectorEnv, SingleEnv, require_argument_at_least


class BanditVectorEnv(CorrectActionVectorEnv):
    """An episode is a new bandit, which is pulled `pulls` times. One of its arms is the best one.

    In each step exactly one arm has the reward 1: the best one with probability `best_probability`, else one of the
    others, all equally likely. An observation is one number, the share of the episode that is over. It contains nothing
    about the arms, so a policy can learn about them only from its own actions and their rewards.

    A policy without these inputs has the mean return pulls / arms, whatever it does, because all arms are equally
    likely to be the best one. Memory alone does not help.

    Args:
        num_envs: Number of columns, N.
        arms: Number of arms, and of actions.
        pulls: Env steps of an episode.
        best_probability: Probability of the best arm's reward; more than 1 / arms.

    Raises:
        ConfigError: an argument is too small, or best_probability is not below 1.
    """

    def __init__(self, num_envs: int = 1, arms: int = 3, pulls: int = 16, best_probability: float = 0.8) -> None:
        require_argument_at_least("arms", arms, 2)
        require_argument_at_least("pulls", pulls, 1)
        if not 1 / arms < best_probability < 1:
            raise ConfigError(
                f"best_probability is {best_probability}, but with {arms} arms a number above {1 / arms:.3g} and "
                "below 1 is expected"
            )
        super().__init__(num_envs, gym.spaces.Box(0, 1, (1,), np.float32), arms, pulls)
        self._arms, self._best_probability = arms, best_probability
        self._best: Choices = np.zeros(num_envs, np.int64)

    @property
    def optimal_return(self) -> float:
        """Mean return of the best policy with the previous action and reward.

        The computation takes 0.1 s for 3 arms and 16 pulls, and longer for more.
        """
        return _best_return(self._arms, self._length, self._best_probability)

    @property
    def impaired_return(self) -> float:
        """Mean return of every policy that does not get its previous action and reward."""
        return self._length / self._arms

    def _sample_state(self) -> None:
        sampled = self.np_random.integers(self._arms, size=self.num_envs)
        np.copyto(self._best, sampled, where=self._step_index == 0)
        other = (self._best + self.np_random.integers(1, self._arms, size=self.num_envs)) % self._arms
        is_best = self.np_random.random(self.num_envs) < self._best_probability
        self._correct = np.where(is_best, self._best, other)

    def _observe(self) -> NDArray[np.float32]:
        return (self._step_index[:, None] / self._length).astype(np.float32)

    def _saved_arrays(self) -> Tree:
        return {"best": self._best}


Counts = tuple[tuple[int, int], ...]
"""How often each arm had the reward 1, and 0; in increasing order, because arms with equal counts are alike."""


def _best_return(arms: int, pulls: int, good: float) -> float:
    """Return the best mean return, by dynamic programming over the counts, which determine the posterior of the arms.

    Args:
        arms: number of arms.
        pulls: number of pulls.
        good: probability of the best arm's reward.
    """
    other = (1 - good) / (arms - 1)

    @cache
    def value(counts: Counts) -> float:
        if sum(map(sum, counts)) == pulls:
            return 0.0
        weights = [(good / other) ** ones * ((1 - good) / (1 - other)) ** zeros for ones, zeros in counts]
        chances = [other + (good - other) * weight / sum(weights) for weight in weights]
        return max(
            chance * (1 + value(_after(counts, arm, 1, 0))) + (1 - chance) * value(_after(counts, arm, 0, 1))
            for arm, chance in enumerate(chances)
            if arm == 0 or counts[arm] != counts[arm - 1]
        )

    return value(((0, 0),) * arms)


def _after(counts: Counts, arm: int, ones: int, zeros: int) -> Counts:
    """Return the counts after a pull of an arm that had the reward 1 (`ones`) or 0 (`zeros`)."""
    pulled = (counts[arm][0] + ones, counts[arm][1] + zeros)
    return tuple(sorted((*counts[:arm], pulled, *counts[arm + 1 :])))


class Bandit(SingleEnv):
    """A single env of `BanditVectorEnv`, with its arguments."""

    vector_env = BanditVectorEnv
