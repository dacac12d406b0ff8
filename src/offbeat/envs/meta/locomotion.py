"""Gymnasium's MuJoCo robots with the tasks of meta-learning: run at a velocity or in a direction, walk to a goal.

Tasks and rewards are those of PEARL (Rakelly et al. 2019); the robots, and their observations, are those of Gymnasium's
v5 envs, where PEARL used older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from numpy.typing import NDArray

Action = NDArray[np.float32]


class HalfCheetahVelocity(HalfCheetahEnv):
    """The task is a forward velocity in m/s, uniform in [0, 3]. The reward is minus the difference to it, minus costs.

    Args:
        arguments: Those of Gymnasium's `HalfCheetah-v5`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"ctrl_cost_weight": 0.05, **arguments})
        self._next_velocity = self._velocity = 0.0

    def sample_tasks(self, n: int, random: np.random.Generator) -> list[float]:
        """Return n velocities."""
        return [float(velocity) for velocity in random.uniform(0, 3, n)]

    def set_task(self, task: float) -> None:
        """Set the velocity from the next reset on."""
        self._next_velocity = task

    def reset_model(self) -> NDArray[np.float64]:
        self._velocity = self._next_velocity
        return super().reset_model()  # type: ignore[no-any-return, no-untyped-call]

    def _get_rew(self, x_velocity: float, action: Action) -> tuple[float, Mapping[str, float]]:
        return _minus_costs(-abs(x_velocity - self._velocity), float(self.control_cost(action)))  # type: ignore[no-untyped-call]


class HalfCheetahDirection(HalfCheetahEnv):
    """The task is a direction: 1 is forward, -1 is backward. The reward is the velocity in it, minus costs.

    Args:
        arguments: Those of Gymnasium's `HalfCheetah-v5`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"ctrl_cost_weight": 0.05, **arguments})
        self._next_direction = self._direction = 1

    def sample_tasks(self, n: int, random: np.random.Generator) -> list[int]:  # noqa: ARG002
        """Return n directions, in turn: there are only two."""
        return [1 - 2 * (index % 2) for index in range(n)]

    def set_task(self, task: int) -> None:
        """Set the direction from the next reset on."""
        self._next_direction = task

    def reset_model(self) -> NDArray[np.float64]:
        self._direction = self._next_direction
        return super().reset_model()  # type: ignore[no-any-return, no-untyped-call]

    def _get_rew(self, x_velocity: float, action: Action) -> tuple[float, Mapping[str, float]]:
        return _minus_costs(self._direction * x_velocity, float(self.control_cost(action)))  # type: ignore[no-untyped-call]


class AntGoal(AntEnv):
    """The task is a goal on the ground, uniform in the disc with a radius of 3 m.

    The reward is minus the distance to the goal, as the sum over both axes, minus costs. An observation has the
    position of the ant, and no episode terminates.

    Args:
        arguments: Those of Gymnasium's `Ant-v5`.
    """

    def __init__(self, **arguments: Any) -> None:
        defaults = {
            "ctrl_cost_weight": 0.1,
            "terminate_when_unhealthy": False,
            "exclude_current_positions_from_observation": False,
        }
        super().__init__(**{**defaults, **arguments})
        self._next_goal = self._goal = np.zeros(2)

    def sample_tasks(self, n: int, random: np.random.Generator) -> list[NDArray[np.float64]]:
        """Return n goals."""
        angles, radii = random.uniform(0, 2 * np.pi, n), 3 * np.sqrt(random.uniform(0, 1, n))
        return list(np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1))

    def set_task(self, task: NDArray[np.float64]) -> None:
        """Set the goal from the next reset on."""
        self._next_goal = task

    def reset_model(self) -> NDArray[np.float64]:
        self._goal = self._next_goal
        return super().reset_model()  # type: ignore[no-any-return, no-untyped-call]

    def _get_rew(self, x_velocity: float, action: Action) -> tuple[float, Mapping[str, float]]:  # noqa: ARG002
        distance = float(np.abs(self.data.body(self._main_body).xpos[:2] - self._goal).sum())
        return _minus_costs(-distance, float(self.control_cost(action) + self.contact_cost))  # type: ignore[no-untyped-call]


def _minus_costs(reward: float, costs: float) -> tuple[float, Mapping[str, float]]:
    """Return the reward of a step, and its parts for the info."""
    return float(reward - costs), {"reward_task": float(reward), "reward_costs": float(-costs)}
