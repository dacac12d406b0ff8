"""Draws the plane of a point robot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIZE = 240
"""Height and width of a picture, in pixels."""
EXTENT = 1.3
"""The picture shows [-EXTENT, EXTENT] on both axes; what is outside is drawn at the edge."""
BACKGROUND, AXES, PATH, ROBOT, GOAL = (255, 255, 255), (215, 215, 215), (130, 160, 200), (30, 80, 160), (200, 60, 40)
"""Colours, as red, green and blue."""


def draw_plane(goal: NDArray[np.float64], path: NDArray[np.float64]) -> NDArray[np.uint8]:
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
