"""A point that moves on a plane to a goal that it cannot see. The task is the goal.

Rakelly et al. 2019, "Efficient Off-Policy Meta-Reinforcement Learning via Probabilistic Context Variables" (PEARL).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.envs.contract import State

Position = NDArray[np.float64]

SIZE = 240
"""Height and width of a picture, in pixels."""
EXTENT = 1.3
"""The picture shows [-EXTENT, EXTENT] on both axes; what is outside is drawn at the edge."""
BACKGROUND, AXES, PATH, ROBOT, GOAL = (255, 255, 255), (215, 215, 215), (130, 160, 200), (30, 80, 160), (200, 60, 40)
"""Colours, as red, green and blue."""


class PointRobot(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Starts at 0; the reward of a step is the negative distance to the goal after it.

    Goals are uniform on the square [-1, 1] x [-1, 1]. An observation is the position. With the default arguments and
    the limit of 20 steps, the best policy that knows the goal has a mean return of -5.10; one that does not know it,
    and so stays at 0, has -15.30.

    Args:
        max_step: Largest step on each axis.
        render_mode: 'rgb_array' draws the plane, the goal and the path of the episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, max_step: float = 0.05, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-max_step, max_step, (2,), np.float32)
        self.render_mode = render_mode
        self._max_step = max_step
        self._next_goal: Position = np.zeros(2)
        self._goal: Position = np.zeros(2)
        self._path: list[Position] = [np.zeros(2)]
        """Positions since the start of the episode."""

    # --- the contract of an env with tasks ---

    def sample_tasks(self, n: int, random: np.random.Generator) -> list[Position]:
        """Return n goals."""
        return list(random.uniform(-1, 1, (n, 2)))

    def set_task(self, task: Position) -> None:
        """Set the goal from the next reset on."""
        self._next_goal = task

    # --- Gymnasium's interface ---

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._goal = self._next_goal
        self._path = [np.zeros(2)]
        return self._observation(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self._path.append(self._path[-1] + np.clip(action, -self._max_step, self._max_step))
        distance = float(np.linalg.norm(self._path[-1] - self._goal))
        return self._observation(), self._reward(distance), False, False, {"distance": distance}

    def _reward(self, distance: float) -> float:
        return -distance

    def _observation(self) -> NDArray[np.float32]:
        return self._path[-1].astype(np.float32)

    def render(self) -> NDArray[np.uint8] | None:
        """Return the picture of the plane, [H, W, 3]."""
        return _draw_plane(self._goal, np.array(self._path)) if self.render_mode == "rgb_array" else None

    def snapshot(self) -> State:
        return {"goal": self._goal, "path": np.array(self._path)}

    def restore(self, state: State) -> None:
        self._goal = np.array(state["goal"])
        self._path = list(np.array(state["path"]))


class SparsePointRobot(PointRobot):
    """A point robot whose reward is 0, except near the goal: 1 - distance within `goal_radius`.

    Goals are uniform on the upper half of the circle with radius 1, so a robot has to search for them. Unlike in the
    published experiments, training sees these rewards too, and not the negative distance.

    Args:
        goal_radius: Distance within which a goal is rewarded.
        max_step: Largest step on each axis.
        render_mode: As for `PointRobot`.
    """

    def __init__(self, goal_radius: float = 0.2, max_step: float = 0.1, render_mode: str | None = None) -> None:
        super().__init__(max_step, render_mode)
        self._goal_radius = goal_radius

    def sample_tasks(self, n: int, random: np.random.Generator) -> list[Position]:
        angles = random.uniform(0, np.pi, n)
        return list(np.stack([np.cos(angles), np.sin(angles)], axis=1))

    def _reward(self, distance: float) -> float:
        return 1 - distance if distance <= self._goal_radius else 0.0


def _draw_plane(goal: NDArray[np.float64], path: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return a picture, [SIZE, SIZE, 3], of a goal, [2], and of the positions of an episode, [steps + 1, 2]."""
    picture = np.full((SIZE, SIZE, 3), BACKGROUND, np.uint8)
    picture[SIZE // 2, :] = picture[:, SIZE // 2] = AXES
    _draw(picture, goal, 7, GOAL)
    for position in path[:-1]:
        _draw(picture, position, 2, PATH)
    _draw(picture, path[-1], 5, ROBOT)
    return picture


def _draw(picture: NDArray[np.uint8], position: NDArray[np.float64], radius: int, colour: tuple[int, ...]) -> None:
    """Draw a disc of a radius in pixels."""
    column, row = (np.clip(position * (1, -1) / EXTENT, -1, 1) + 1) * (SIZE - 1) / 2
    rows, columns = np.ogrid[:SIZE, :SIZE]
    picture[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] = colour
