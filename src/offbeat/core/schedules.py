"""Schedules: values that are a function of the training progress, which goes from 0 to 1 over `steps`.

A schedule is a text: points `progress:value` with spaces between them. "0:1 0.5:0.1 1:0" decreases from 1 to 0.1 in the
first half of the training and to 0 in the second one. Two points with the same progress make a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from offbeat.core.checks import Check
from offbeat.core.errors import ConfigError

Points = tuple[tuple[float, float], ...]
"""(progress, value), sorted by progress. The value is linear between points and constant before and after them."""

NAMED: dict[str, Points] = {"constant": ((0.0, 1.0),), "linear": ((0.0, 1.0), (1.0, 0.0))}
"""Name of a schedule -> its factors."""


def points_of(text: str) -> Points:
    """Return the points of a text.

    Raises:
        ValueError: it has no points, or one that cannot be read; or their progress does not ascend from 0 to 1.
    """
    points = tuple(map(_point, text.split()))
    times = [progress for progress, _ in points]
    if not points or times != sorted(times) or not 0 <= times[0] <= times[-1] <= 1:
        raise ValueError(text)
    return points


def _point(text: str) -> tuple[float, float]:
    progress, _, value = text.partition(":")
    point = float(progress), float(value)
    if not all(map(math.isfinite, point)):
        raise ValueError(text)
    return point


def value_at(points: Points, progress: float) -> float:
    """Return the value at `progress`; if two points have this progress, the value of the second one."""
    before = [point for point in points if point[0] <= progress]
    after = [point for point in points if point[0] > progress]
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (left, low), (right, high) = before[-1], after[0]
    return low + (high - low) * (progress - left) / (right - left)


@lru_cache
def factors_of(schedule: str) -> Points:
    """Return the factors of a schedule of a setting: its name, or their points.

    Raises:
        ValueError: the text is neither, or a factor is negative.
    """
    points = NAMED.get(schedule) or points_of(schedule)
    if any(factor < 0 for _, factor in points):
        raise ValueError(schedule)
    return points


def scheduled(value: float, schedule: str, progress: float) -> float:
    """Return a setting at `progress`: its value times the factor that the schedule has there.

    Raises:
        ConfigError: the schedule is a word of an algorithm's own.
    """
    try:
        factors = factors_of(schedule)
    except ValueError as error:
        raise ConfigError(
            f"the schedule {schedule!r} is one of the algorithm's own: override its method learning_rate(progress)"
        ) from error
    return value * value_at(factors, progress)


@dataclass(frozen=True)
class ScheduleText(Check):
    """A schedule of the factors of a setting: one of the names, or points."""

    example: ClassVar[str] = "linear"
    names: tuple[str, ...] = tuple(NAMED)

    def refuses(self, value: str) -> bool:
        if value in self.names:
            return False
        try:
            factors_of(value)
        except ValueError:
            return True
        return False

    def __str__(self) -> str:
        return (
            f'that is {", ".join(self.names)}, or points progress:factor such as "0:1 0.5:0.1 1:0" (ascending '
            "progress from 0 to 1, factors of at least 0)"
        )
