"""Envs of images that cost almost nothing, and whose best returns are known.

An image shows one bright square on a background whose grey is drawn anew for every row, and means nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import Array, Tree
from offbeat.envs.testing.questions import UNANSWERABLE, Choices, OneColumn, Questions, require

Image = NDArray[np.uint8]
Layout = Literal["HW", "HWC", "CHW"]

LEFT, RIGHT = 0, 1
"""Sides, and the answers that name them."""
BACKGROUND = 128
"""Greys of the background: 0 .. 127. The square is 255."""
CELLS = 8
"""Squares that fit side by side; half of them are the left."""
CHANNELS = 3
"""Of an image that has any; all are equal."""
_SHAPES: dict[Layout, Any] = {
    "HW": lambda size: (size, size),
    "HWC": lambda size: (size, size, CHANNELS),
    "CHW": lambda size: (CHANNELS, size, size),
}


class Squares(Questions):
    """Questions about where a square is, or how it moves; `length` of them earn 1 each.

    Args:
        num_envs: N.
        length: questions in an episode that can be answered.
        unanswerable: questions before them.
        size: height and width, in pixels.
        layout: axes of an image: one channel without an axis, or three at the end or at the beginning.
        goal: whether an observation also says what is asked for: it is a Dict then.
    """

    def __init__(
        self, num_envs: int, length: int, size: int, layout: Layout, unanswerable: int = 0, goal: bool = False
    ) -> None:
        require("length", length, 1)
        require("size", size, CELLS)
        if layout not in _SHAPES:
            raise ConfigError(f"layout is {layout!r}, but {', '.join(_SHAPES)} are known: give the env one of them")
        space: gym.Space[Any] = gym.spaces.Box(0, 255, _SHAPES[layout](size), np.uint8)
        if goal:
            space = gym.spaces.Dict({"goal": gym.spaces.Box(-1, 1, (1,), np.float32), "image": space})
        super().__init__(num_envs, space, 2, unanswerable + length)
        self._places = _pictures(size, layout)
        self._answerable = length
        self._place: Choices = np.zeros((2, num_envs), np.int64)
        """[2, N]: row and column of the square, in cells."""

    @property
    def optimal_return(self) -> float:
        return float(self._answerable)

    @property
    def impaired_return(self) -> float:
        return self._answerable / 2

    @abstractmethod
    def _ask(self) -> None: ...

    def _observe(self) -> Array | Tree:
        return self._image()

    def _image(self) -> Image:
        pictures: Image = self._places[self._place[0], self._place[1]]  # [N, ...], a copy
        greys = self.np_random.integers(BACKGROUND, size=self.num_envs, dtype=np.uint8)
        np.maximum(pictures, greys.reshape(-1, *(1 for _ in pictures.shape[1:])), out=pictures)
        return pictures

    def _draw_places(self) -> None:
        self._place[...] = self.np_random.integers(CELLS, size=self._place.shape)

    def _side(self) -> Choices:
        return np.where(self._place[1] < CELLS // 2, LEFT, RIGHT)

    def _memory(self) -> Tree:
        return {"place": self._place}


class PixelsColumns(Squares):
    """On which side is the square? Each env step shows it anywhere; answer 0 for the left half, 1 for the right one.

    Each step earns 1 at best. Without the image half of the answers are right, whatever they are: the sides are drawn
    with equal chances, and independently. Arguments as of `Squares`.
    """

    def __init__(self, num_envs: int = 1, length: int = 8, size: int = 36, layout: Layout = "HW") -> None:
        super().__init__(num_envs, length, size, layout)

    def _ask(self) -> None:
        self._draw_places()
        self._right = self._side()


class MotionColumns(Squares):
    """Which way has the square moved since the last row? 0: to the left, 1: to the right, by one cell, on a ring.

    The first row of an episode has no last one, so nothing is earned there; each of the `length` env steps after it
    earns 1 at best. From one frame alone, half of the answers are right, whatever they are: a square that starts
    anywhere on the ring is anywhere on it after each move, whichever way that was. Arguments as of `Squares`.
    """

    def __init__(self, num_envs: int = 1, length: int = 8, size: int = 36, layout: Layout = "HW") -> None:
        super().__init__(num_envs, length, size, layout, unanswerable=1)

    def _ask(self) -> None:
        started = self.np_random.integers(CELLS, size=self._place.shape)
        way = self.np_random.integers(2, size=self.num_envs)
        first = self._asked == 0
        self._place[1] = (self._place[1] + np.where(way == LEFT, -1, 1)) % CELLS
        np.copyto(self._place, started, where=first)
        self._right = np.where(first, UNANSWERABLE, way)


class GoalColumns(Squares):
    """Is the square where it should be? An observation is a Dict of `goal` (-1: left, 1: right) and `image`.

    Both are drawn anew for each env step. Answer 1 where the square is on the goal's side, else 0; each step earns 1 at
    best. From the goal or the image alone, half of the answers are right, whatever they are: each is independent of
    whether the two agree. Arguments as of `Squares`.
    """

    def __init__(self, num_envs: int = 1, length: int = 8, size: int = 36, layout: Layout = "HW") -> None:
        super().__init__(num_envs, length, size, layout, goal=True)
        self._goal: Choices = np.zeros(num_envs, np.int64)

    def _ask(self) -> None:
        self._draw_places()
        self._goal[:] = self.np_random.integers(2, size=self.num_envs)
        self._right = (self._side() == self._goal).astype(np.int64)

    def _observe(self) -> Tree:
        goal = np.where(self._goal == LEFT, -1, 1).astype(np.float32)[:, None]  # [N, 1]
        return {"goal": goal, "image": self._image()}

    def _memory(self) -> Tree:
        return {"place": self._place, "goal": self._goal}


class Pixels(OneColumn):
    """One column of `PixelsColumns`, with its arguments."""

    columns = PixelsColumns


class PixelsMotion(OneColumn):
    """One column of `MotionColumns`, with its arguments."""

    columns = MotionColumns


class PixelsGoal(OneColumn):
    """One column of `GoalColumns`, with its arguments."""

    columns = GoalColumns


def _pictures(size: int, layout: Layout) -> Image:
    """Return an image without a background for each place of the square, [CELLS, CELLS, ...]."""
    side = size // CELLS
    pictures = np.zeros((CELLS, CELLS, size, size), np.uint8)
    for row in range(CELLS):
        for column in range(CELLS):
            pictures[row, column, row * side : (row + 1) * side, column * side : (column + 1) * side] = 255
    if layout == "HW":
        return pictures
    axis = -1 if layout == "HWC" else 2
    return np.repeat(np.expand_dims(pictures, axis), CHANNELS, axis)
