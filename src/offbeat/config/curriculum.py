"""A curriculum: parameters of an env that follow the training's progress, from 0 to 1 over `steps`.

One parameter is written in one text, its name and then points, `progress:value`: "gravity 0:9.8 0.5:20" goes from 9.8
to 20 in the first half, and stays there. Two points at one moment make a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.core.errors import ConfigError


@dataclass(frozen=True)
class Parameter:
    """One parameter's course."""

    name: str
    points: tuple[tuple[float, float], ...]
    """(progress, value), in the order of progress: linear between, and constant before and after."""

    def at(self, progress: float) -> float:
        """Return the value; where two points share a moment, the later one's from there on."""
        before = [point for point in self.points if point[0] <= progress]
        after = [point for point in self.points if point[0] > progress]
        if not before or not after:
            return (before or after)[-1 if before else 0][1]
        (left, low), (right, high) = before[-1], after[0]
        return low + (high - low) * (progress - left) / (right - left)


def parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameters of a curriculum.

    Raises:
        ConfigError: a text says no such thing, or a name stands twice.
    """
    found = tuple(map(_parameter, texts))
    names = [parameter.name for parameter in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"curriculum has {name} twice: write all of its points behind one name")
    return found


def _parameter(text: str) -> Parameter:
    name, *written = text.split() or [""]
    try:
        points = tuple(_point(point) for point in written)
    except ValueError:
        points = ()
    moments = [moment for moment, _ in points]
    if not name.isidentifier() or not points or moments != sorted(moments) or not 0 <= moments[0] <= moments[-1] <= 1:
        raise ConfigError(
            f"curriculum has {text!r}, but a name and its points, progress:value with progress from 0 to 1 in order, "
            'are expected: pass --set curriculum="gravity 0:9.8 0.5:20"'
        )
    return Parameter(name, points)


def _point(text: str) -> tuple[float, float]:
    moment, _, value = text.partition(":")
    return float(moment), float(value)
