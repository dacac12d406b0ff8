"""Envs that ask questions, whose best returns are known in closed form; `recall.py` and `pixels.py` have them.

An episode is a fixed number of questions, one an env step. The right answer earns 1, any other 0, and the questions do
not depend on the answers. So the best return is the number of questions that can be answered at all, and what is left
to a policy that lacks something (memory, a second frame, half of the observation) is known as well.

They are vector envs in NEXT_STEP order, which step all columns by a few array operations; a single env is one column.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import Array, Tree
from offbeat.envs.contract import State

Choices = NDArray[np.int64]
Flags = NDArray[np.bool_]
UNANSWERABLE = -1
"""What is right where nothing can be earned."""


class Questions(VectorEnv[Any, Choices, Any]):
    """N columns of episodes of `length` questions each; the observation after the last one is never answered.

    Args:
        num_envs: N.
        observation: space of one column's observation.
        answers: choices of an action.
        length: questions in an episode, those that cannot be answered included.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int, observation: gym.Space[Any], answers: int, length: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation
        self.single_action_space = gym.spaces.Discrete(answers)
        self.observation_space = batch_space(observation, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._length = length
        self._asked: Choices = np.zeros(num_envs, np.int64)
        """[N]: questions that the column's episode has asked before this one; `length` where it has ended."""
        self._right: Choices = np.zeros(num_envs, np.int64)
        """[N]: the answer to what is observed."""

    @property
    def max_episode_steps(self) -> int:
        """Env steps of every episode."""
        return self._length

    # --- what a kind of question says of itself ---

    @property
    @abstractmethod
    def optimal_return(self) -> float:
        """The best mean return of an episode, undiscounted."""

    @property
    @abstractmethod
    def impaired_return(self) -> float:
        """The best mean return of policies that lack what the env asks for."""

    @abstractmethod
    def _ask(self) -> None:
        """Draw a question in each column, the first of an episode where `_asked` is 0, and set `_right`.

        Every column draws the same number of times at every step, so that no column shifts the stream of another.
        """

    @abstractmethod
    def _observe(self) -> Array | Tree:
        """Return fresh arrays [N, ...] that show the questions."""

    @abstractmethod
    def _memory(self) -> Tree:
        """Return the arrays that a kind keeps between steps, by name; `restore` writes into them."""

    # --- Gymnasium's interface ---

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array | Tree, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._asked[:] = 0
        self._ask()
        return self._observe(), {}

    def step(self, actions: Choices) -> tuple[Array | Tree, NDArray[np.float32], Flags, Flags, dict[str, Any]]:
        begins = self._asked == self._length
        rewards = ((actions == self._right) & ~begins).astype(np.float32)
        self._asked = np.where(begins, 0, self._asked + 1)
        self._ask()
        return self._observe(), rewards, self._asked == self._length, np.zeros_like(begins), {}

    def snapshot(self) -> State:
        return {name: part.copy() for name, part in self._state_arrays().items()}

    def restore(self, state: State) -> None:
        for name, part in self._state_arrays().items():
            part[...] = state[name]

    def _state_arrays(self) -> Tree:
        return {"asked": self._asked, "right": self._right, **self._memory()}


class OneColumn(gym.Env[Any, np.int64]):
    """A vector env's only column, as a single env: the same seed and actions give the same rows."""

    columns: ClassVar[type[Questions]]

    def __init__(self, **arguments: Any) -> None:
        self._column = self.columns(1, **arguments)
        self.observation_space = self._column.single_observation_space
        self.action_space = self._column.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._column.np_random = self.np_random
        observation, info = self._column.reset(options=options)
        return _first(observation), info

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._column.step(np.array([action]))
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def snapshot(self) -> State:
        return self._column.snapshot()

    def restore(self, state: State) -> None:
        self._column.np_random = self.np_random
        self._column.restore(state)


def require(name: str, given: int, at_least: int) -> None:
    """Refuse a number that is too small.

    Raises:
        ConfigError: `given` is below `at_least`.
    """
    if given < at_least:
        raise ConfigError(
            f"{name} is {given}, but at least {at_least} is needed: give the env {name}={at_least} or more"
        )


def _first(observation: Array | Tree) -> Any:
    if isinstance(observation, dict):
        return {name: part[0] for name, part in observation.items()}
    return observation[0]
