"""A curriculum: parameters of an env that change with the training progress, which goes from 0 to 1 over `steps`.

Each parameter is one string: its name, then the points of `core/schedules.py`. "gravity 0:9.8 0.5:20" increases gravity
from 9.8 to 20 during the first half of the training and leaves it at 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.core.errors import ConfigError
from offbeat.core.schedules import Points, points_of, value_at


@dataclass(frozen=True)
class Parameter:
    """The schedule of one parameter."""

    name: str
    points: Points

    def at(self, progress: float) -> float:
        """Return the value at `progress`; if two points have this progress, the value of the second one."""
        return value_at(self.points, progress)


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
    name, *points = text.split(maxsplit=1) or [""]
    try:
        if name.isidentifier():
            return Parameter(name, points_of(*points or [""]))
    except ValueError:
        pass
    raise ConfigError(
        f"curriculum has {text!r}, but a name and its points, progress:value with ascending progress from 0 to 1, "
        'are expected: pass --set curriculum="gravity 0:9.8 0.5:20"'
    )
