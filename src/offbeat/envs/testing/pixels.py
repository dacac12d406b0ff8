"""Fast envs with images, whose best returns are known.

An image has one bright square on a background whose grey level is random in every row.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import Array, Tree
from offbeat.envs.testing.correct_action import (
    NO_CORRECT_ACTION,
    Choices,
    CorrectActionVectorEnv,
    SingleEnv,
    require_argument_at_least,
)

Image = NDArray[np.uint8]
Layout = Literal["HW", "HWC", "CHW"]

LEFT, RIGHT = 0, 1
"""The two sides, and the actions for them."""
BACKGROUND = 128
"""Number of grey levels of the background, 0 .. 127. The square is 255."""
CELLS = 8
"""Number of positions of the square per axis. The first half is the left side."""
CHANNELS = 3
"""Number of channels of images with channels. All are equal."""
_SHAPES: dict[Layout, Any] = {
    "HW": lambda size: (size, size),
    "HWC": lambda size: (size, size, CHANNELS),
    "CHW": lambda size: (CHANNELS, size, size),
}


class SquareVectorEnv(CorrectActionVectorEnv):
    """Base class: the correct action depends on the position or the motion of a square.

    Args:
        num_envs: Number of columns, N.
        length: Steps of an episode with a correct action. Each has the maximum reward 1.
        size: Height and width in pixels.
        layout: Axes of an image: no channel axis, or three channels at the end or at the start.
        unrewarded: Steps at the start of an episode without a correct action.
        goal: Whether the observation is a Dict with a goal.
    """

    def __init__(
        self, num_envs: int, length: int, size: int, layout: Layout, unrewarded: int = 0, goal: bool = False
    ) -> None:
        require_argument_at_least("length", length, 1)
        require_argument_at_least("size", size, CELLS)
        if layout not in _SHAPES:
            raise ConfigError(f"layout is {layout!r}, but {', '.join(_SHAPES)} are supported: pass one of these")
        space: gym.Space[Any] = gym.spaces.Box(0, 255, _SHAPES[layout](size), np.uint8)
        if goal:
            space = gym.spaces.Dict({"goal": gym.spaces.Box(-1, 1, (1,), np.float32), "image": space})
        super().__init__(num_envs, space, 2, unrewarded + length)
        self._images = _square_images(size, layout)
        self._rewarded = length
        self._position: Choices = np.zeros((2, num_envs), np.int64)
        """[2, N]: row and column of the square, in cells."""

    @property
    def optimal_return(self) -> float:
        return float(self._rewarded)

    @property
    def impaired_return(self) -> float:
        return self._rewarded / 2

    def _observe(self) -> Array | Tree:
        return self._image()

    def _image(self) -> Image:
        images: Image = self._images[self._position[0], self._position[1]]  # [N, ...], a copy
        greys = self.np_random.integers(BACKGROUND, size=self.num_envs, dtype=np.uint8)
        np.maximum(images, greys.reshape(-1, *(1 for _ in images.shape[1:])), out=images)
        return images

    def _sample_positions(self) -> None:
        self._position[...] = self.np_random.integers(CELLS, size=self._position.shape)

    def _side(self) -> Choices:
        return np.where(self._position[1] < CELLS // 2, LEFT, RIGHT)

    def _saved_arrays(self) -> Tree:
        return {"position": self._position}


class PixelsVectorEnv(SquareVectorEnv):
    """The correct action is the side of the square: 0 left, 1 right. Each step has a new random position.

    The maximum reward of a step is 1. Without the image the mean reward of any policy is 1/2, because the sides are
    uniform and independent. Arguments as of `SquareVectorEnv`.
    """

    def __init__(self, num_envs: int = 1, length: int = 8, size: int = 36, layout: Layout = "HW") -> None:
        super().__init__(num_envs, length, size, layout)

    def _sample_state(self) -> None:
        self._sample_positions()
        self._correct = self._side()


class PixelsMotionVectorEnv(SquareVectorEnv):
    """The correct action is the motion of the square since the last row: 0 left, 1 right, by one cell, on a ring.

    The first step of an episode has no reward. The maximum reward of each of the `length` steps after it is 1. From a
    single frame the mean reward of any policy is 1/2, because the position is uniform and independent of the motion.
    Arguments as of `SquareVectorEnv`.
    """

    def __init__(self, num_envs: int = 1, length: int = 8, size: int = 36, layout: Layout = "HW") -> None:
        super().__init__(num_envs, length, size, layout, unrewarded=1)

    def _sample_state(self) -> None:
        start = self.np_random.integers(CELLS, size=self._position.shape)
        direction = self.np_random.integers(2, size=self.num_envs)
        first = self._step_index == 0
        self._position[1] = (self._position[1] + np.where(direction == LEFT, -1, 1)) % CELLS
        np.copyto(self._position, start, where=first)
        self._correct = np.where(first, NO_CORRECT_ACTION, direction)


class PixelsGoalVectorEnv(SquareVectorEnv):
    """The correct action is 1 if the square is on the goal's side, else 0.

    An observation is a Dict of `goal` (-1 left, 1 right) and `image`, both random in each step. The maximum reward of a
    step is 1. From the goal or the image alone the mean reward of any policy is 1/2, because each is independent of
    whether they agree. Arguments as of `SquareVectorEnv`.
    """

    def __init__(self, num_envs: int = 1, length: int = 8, size: int = 36, layout: Layout = "HW") -> None:
        super().__init__(num_envs, length, size, layout, goal=True)
        self._goal: Choices = np.zeros(num_envs, np.int64)

    def _sample_state(self) -> None:
        self._sample_positions()
        self._goal[:] = self.np_random.integers(2, size=self.num_envs)
        self._correct = (self._side() == self._goal).astype(np.int64)

    def _observe(self) -> Tree:
        goal = np.where(self._goal == LEFT, -1, 1).astype(np.float32)[:, None]  # [N, 1]
        return {"goal": goal, "image": self._image()}

    def _saved_arrays(self) -> Tree:
        return {"position": self._position, "goal": self._goal}


class Pixels(SingleEnv):
    """A single env of `PixelsVectorEnv`, with its arguments."""

    vector_env = PixelsVectorEnv


class PixelsMotion(SingleEnv):
    """A single env of `PixelsMotionVectorEnv`, with its arguments."""

    vector_env = PixelsMotionVectorEnv


class PixelsGoal(SingleEnv):
    """A single env of `PixelsGoalVectorEnv`, with its arguments."""

    vector_env = PixelsGoalVectorEnv


def _square_images(size: int, layout: Layout) -> Image:
    """Return an image without a background for each position of the square, [CELLS, CELLS, ...]."""
    side = size // CELLS
    images = np.zeros((CELLS, CELLS, size, size), np.uint8)
    for row in range(CELLS):
        for column in range(CELLS):
            images[row, column, row * side : (row + 1) * side, column * side : (column + 1) * side] = 255
    if layout == "HW":
        return images
    axis = -1 if layout == "HWC" else 2
    return np.repeat(np.expand_dims(images, axis), CHANNELS, axis)
