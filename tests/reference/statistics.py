"""The statistics of plots, written as loops over plain lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product


def iqm(scores: Sequence[float]) -> float:
    """Sort, strike out a quarter (rounded down) at either end, and average what is left."""
    left = sorted(scores)
    for _ in range(len(scores) // 4):
        left.remove(min(left))
        left.remove(max(left))
    return sum(left) / len(left)


def quantile(values: Sequence[float], fraction: float) -> float:
    """The value at a fraction of the way through the sorted values, interpolated between neighbours."""
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def bootstrap_band(
    curves: Sequence[Sequence[float]], confidence: float, repetitions: int, seed: int
) -> tuple[list[float], list[float]]:
    """Draw whole runs with replacement, again and again; note the IQM of each point; take its quantiles."""
    generator = random.Random(seed)
    noted: list[list[float]] = [[] for _ in curves[0]]
    for _ in range(repetitions):
        drawn = [curves[generator.randrange(len(curves))] for _ in curves]
        for point, values in enumerate(zip(*drawn, strict=True)):
            noted[point].append(iqm(values))
    tail = (1 - confidence) / 2
    return [quantile(point, tail) for point in noted], [quantile(point, 1 - tail) for point in noted]


def exact_interval(scores: Sequence[float], confidence: float) -> tuple[float, float]:
    """Note the IQM of every way to draw as many scores with replacement; take the quantiles."""
    noted = [iqm(drawn) for drawn in product(scores, repeat=len(scores))]
    tail = (1 - confidence) / 2
    return quantile(noted, tail), quantile(noted, 1 - tail)
