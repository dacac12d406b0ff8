"""Worlds that can be rendered: those of `envs.testing.worlds`, with pictures of the time and of the last actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offbeat.core.types import Array
from offbeat.envs.testing.worlds import LateArrivals, MixedSpaces, Observations, ParallelStep, SmallWorld

PICTURES: list[Array] = []
"""All pictures that were rendered in this process."""


class Drawn(SmallWorld):
    """Draws another world: each frame has the number of the step in its first pixel."""

    metadata: Mapping[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 10}
    render_mode: str | None
    _picture: Array

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, dict[str, dict[str, Any]]]:
        self._picture = np.zeros((16, 16, 3), np.uint8)
        returned: Any = super().reset(seed, options)  # type: ignore[misc]
        return returned

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:
        self._picture[0, 0] += 1
        returned: ParallelStep = super().step(actions)  # type: ignore[misc]
        return returned

    def render(self) -> Array | None:
        PICTURES.append(self._picture.copy())
        return self._picture.copy() if self.render_mode == "rgb_array" else None


class DrawnSpaces(Drawn, MixedSpaces):
    def __init__(self, length: int = 8, render_mode: str | None = None) -> None:
        super().__init__(length)
        self.render_mode = render_mode


class DrawnArrivals(Drawn, LateArrivals):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode
