"""An env that cannot be solved without memory: what was shown first is asked for at the end."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Tree
from offbeat.envs.testing.questions import UNANSWERABLE, Choices, OneColumn, Questions, require


class RecallColumns(Questions):
    """A cue is shown in an episode's first row, then nothing, and `delay` env steps after the cue it is asked for.

    An observation is [cues + 2]: the cue, one-hot, in the first row; 1 where it is asked for; and noise in [0, 1) that
    means nothing. Actions count only where the cue is asked for: its number earns 1, and the episode ends.

    With memory the best return is 1. Without it, every policy gets exactly 1 / cues: where it has to answer, the
    observation is independent of the cue, and of all cues together an answer, drawn or not, is right for one.

    Args:
        num_envs: N.
        cues: how many there are, and choices of an action.
        delay: env steps from the cue to the answer; an episode has delay + 1.

    Raises:
        ConfigError: fewer than 2 cues, or no delay.
    """

    def __init__(self, num_envs: int = 1, cues: int = 4, delay: int = 4) -> None:
        require("cues", cues, 2)
        require("delay", delay, 1)
        super().__init__(num_envs, gym.spaces.Box(0, 1, (cues + 2,), np.float32), cues, delay + 1)
        self._cues, self._delay = cues, delay
        self._cue: Choices = np.zeros(num_envs, np.int64)
        self._one_hot = np.eye(cues, dtype=np.float32)

    @property
    def optimal_return(self) -> float:
        return 1.0

    @property
    def impaired_return(self) -> float:
        """The return of every policy without memory."""
        return 1 / self._cues

    def _ask(self) -> None:
        drawn = self.np_random.integers(self._cues, size=self.num_envs)
        np.copyto(self._cue, drawn, where=self._asked == 0)
        self._right = np.where(self._asked == self._delay, self._cue, UNANSWERABLE)

    def _observe(self) -> NDArray[np.float32]:
        observation = np.zeros((self.num_envs, self._cues + 2), np.float32)
        observation[:, :-2] = self._one_hot[self._cue] * (self._asked == 0)[:, None]
        observation[:, -2] = self._asked == self._delay
        observation[:, -1] = self.np_random.random(self.num_envs, np.float32)
        return observation

    def _memory(self) -> Tree:
        return {"cue": self._cue}


class Recall(OneColumn):
    """One column of `RecallColumns`, with its arguments `cues` and `delay`."""

    columns = RecallColumns
