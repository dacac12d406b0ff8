"""Base classes of envs with one correct action per step, whose best returns are known: `recall.py`, `pixels.py` and
`bandit.py`.

The correct action has reward 1, all others have 0, and the observations do not depend on the actions. So if the
observations show the correct actions, the best return is the number of steps that have one. The best return of a policy
without memory, without a second frame, or with half of the observation is known too.

The envs are vector envs in NEXT_STEP order; a single env is one column.
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
from offbeat.core.types import Array, Flags, Tree
from offbeat.envs.contract import State

Choices = NDArray[np.int64]
NO_CORRECT_ACTION = -1
"""Value of a step without a correct action."""


class CorrectActionVectorEnv(VectorEnv[Any, Choices, Any]):
    """N columns with episodes of `length` steps.

    Args:
        num_envs: Number of columns, N.
        observation: Observation space of one column.
        actions: Number of actions.
        length: Env steps of an episode, including those without a correct action.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, num_envs: int, observation: gym.Space[Any], actions: int, length: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation
        self.single_action_space = gym.spaces.Discrete(actions)
        self.observation_space = batch_space(observation, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._length = length
        self._step_index: Choices = np.zeros(num_envs, np.int64)
        """[N]: step within the episode; `length` at its final observation."""
        self._correct: Choices = np.zeros(num_envs, np.int64)
        """[N]: correct action for the current observation."""

    @property
    def max_episode_steps(self) -> int:
        """Env steps of every episode."""
        return self._length

    # --- to be defined by subclasses ---

    @property
    @abstractmethod
    def optimal_return(self) -> float:
        """Mean undiscounted return of an optimal policy."""

    @property
    @abstractmethod
    def impaired_return(self) -> float:
        """Best mean return of policies without the ability that the env tests."""

    @abstractmethod
    def _sample_state(self) -> None:
        """Sample the next state of each column, the first of an episode where `_step_index` is 0, and set `_correct`.

        Each call samples equally many numbers for every column, so columns do not influence each other.
        """

    @abstractmethod
    def _observe(self) -> Array | Tree:
        """Return the observations as new arrays, [N, ...]."""

    @abstractmethod
    def _saved_arrays(self) -> Tree:
        """Return the arrays of the state between steps, by name; `restore` writes into them."""

    # --- Gymnasium's interface ---

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array | Tree, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._step_index[:] = 0
        self._sample_state()
        return self._observe(), {}

    def step(self, actions: Choices) -> tuple[Array | Tree, NDArray[np.float32], Flags, Flags, dict[str, Any]]:
        starts = self._step_index == self._length
        rewards = ((actions == self._correct) & ~starts).astype(np.float32)
        self._step_index = np.where(starts, 0, self._step_index + 1)
        self._sample_state()
        return self._observe(), rewards, self._step_index == self._length, np.zeros_like(starts), {}

    def snapshot(self) -> State:
        return {name: part.copy() for name, part in self._state_arrays().items()}

    def restore(self, state: State) -> None:
        for name, part in self._state_arrays().items():
            part[...] = state[name]

    def _state_arrays(self) -> Tree:
        return {"step": self._step_index, "correct": self._correct, **self._saved_arrays()}


class SingleEnv(gym.Env[Any, np.int64]):
    """A single env with the rows of one column of a vector env."""

    vector_env: ClassVar[type[CorrectActionVectorEnv]]

    def __init__(self, **arguments: Any) -> None:
        self._column = self.vector_env(1, **arguments)
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


def require_argument_at_least(name: str, value: int, minimum: int) -> None:
    """Raise ConfigError if an argument is below its minimum."""
    if value < minimum:
        raise ConfigError(f"{name} is {value}, but at least {minimum} is needed: pass {name}={minimum} or more")


def _first(observation: Array | Tree) -> Any:
    if isinstance(observation, dict):
        return {name: part[0] for name, part in observation.items()}
    return observation[0]
