"""An env that requires memory: the first observation contains the correct action of the last step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Tree
from offbeat.envs.testing.correct_action import (
    NO_CORRECT_ACTION,
    Choices,
    CorrectActionVectorEnv,
    SingleEnv,
    require_argument_at_least,
)


class RecallVectorEnv(CorrectActionVectorEnv):
    """A cue is shown in the first row of an episode. After `delay` env steps, its number is the correct action.

    An observation has cues + 2 numbers: the one-hot cue in the first row, else zeros; 1 in the last row, else 0; and
    noise in [0, 1). Only the last action is rewarded: 1 for the number of the cue. Then the episode ends.

    With memory the best return is 1. Without memory every policy has the mean return 1 / cues, because the last
    observation is independent of the cue.

    Args:
        num_envs: Number of columns, N.
        cues: Number of cues, and of actions.
        delay: Env steps from the cue to the rewarded action. An episode has delay + 1 steps.

    Raises:
        ConfigError: fewer than 2 cues, or no delay.
    """

    def __init__(self, num_envs: int = 1, cues: int = 4, delay: int = 4) -> None:
        require_argument_at_least("cues", cues, 2)
        require_argument_at_least("delay", delay, 1)
        super().__init__(num_envs, gym.spaces.Box(0, 1, (cues + 2,), np.float32), cues, delay + 1)
        self._cues, self._delay = cues, delay
        self._cue: Choices = np.zeros(num_envs, np.int64)
        self._one_hot = np.eye(cues, dtype=np.float32)

    @property
    def optimal_return(self) -> float:
        return 1.0

    @property
    def impaired_return(self) -> float:
        """Mean return of every policy without memory."""
        return 1 / self._cues

    def _sample_state(self) -> None:
        sampled = self.np_random.integers(self._cues, size=self.num_envs)
        np.copyto(self._cue, sampled, where=self._step_index == 0)
        self._correct = np.where(self._step_index == self._delay, self._cue, NO_CORRECT_ACTION)

    def _observe(self) -> NDArray[np.float32]:
        observation = np.zeros((self.num_envs, self._cues + 2), np.float32)
        observation[:, :-2] = self._one_hot[self._cue] * (self._step_index == 0)[:, None]
        observation[:, -2] = self._step_index == self._delay
        observation[:, -1] = self.np_random.random(self.num_envs, np.float32)
        return observation

    def _saved_arrays(self) -> Tree:
        return {"cue": self._cue}


class Recall(SingleEnv):
    """A single env of `RecallVectorEnv`, with its arguments `cues` and `delay`."""

    vector_env = RecallVectorEnv
