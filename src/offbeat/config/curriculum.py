"""A curriculum: parameters of an env that change with the training progress, which goes from 0 to 1 over `steps`.

Each parameter is one string: its name, then points `progress:value`. "gravity 0:9.8 0.5:20" increases gravity from 9.8
to 20 during the first half of the training and leaves it at 20. Two points with the same progress make a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.core.errors import ConfigError


@dataclass(frozen=True)
class Parameter:
    """The schedule of one parameter."""

    name: str
    points: tuple[tuple[float, float], ...]
    """(progress, value), sorted by progress. The value is linear between points and constant before and after them."""

    def at(self, progress: float) -> float:
        """Return the value at `progress`; if two points have this progress, the value of the second one."""
        before = [point for point in self.points if point[0] <= progress]
        after = [point for point in self.points if point[0] > progress]
        if not before or not after:
            return (before or after)[-1 if before else 0][1]
        (left, low), (right, high) = before[-1], after[0]
        return low + (high - low) * (progress - left) / (right - left)


def parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameters of a curriculum.

    Raises:
        ConfigError: a string cannot be read, or a name is used twice.
    """
    found = tuple(map(_parameter, texts))
    names = [parameter.name for parameter in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"curriculum has {name} twice: write all of its points after one name")
    return found


def _parameter(text: str) -> Parameter:
    name, *written = text.split() or [""]
    try:
        points = tuple(_point(point) for point in written)
    except ValueError:
        points = ()
    times = [progress for progress, _ in points]
    if not name.isidentifier() or not points or times != sorted(times) or not 0 <= times[0] <= times[-1] <= 1:
        raise ConfigError(
            f"curriculum has {text!r}, but a name and its points, progress:value with ascending progress from 0 to 1, "
            'are expected: pass --set curriculum="gravity 0:9.8 0.5:20"'
        )
    return Parameter(name, points)


def _point(text: str) -> tuple[float, float]:
    progress, _, value = text.partition(":")
    point = float(progress), float(value)
    if not all(map(math.isfinite, point)):
        raise ValueError
    return point
