"""Points of curves: those of several seeds at the same places, and moving averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from offbeat.core.types import F64

GRID_POINTS = 200
"""Maximum number of points of a curve of several runs, and of its band."""
MOVING_AVERAGE_POINTS = 100
"""Window of the moving average, in points of a curve."""
_CLOSE = 0.25
"""Largest part of the distance to the next point by which points with the same number differ between runs."""


@dataclass(frozen=True)
class Curve:
    """Returns y over env steps, frames or seconds x. Metrics lines without one of the two values are omitted."""

    x: F64
    y: F64


def aligned(curves: Sequence[Curve]) -> tuple[F64, F64]:
    """Return curves at common places: x [points] and y [runs, points].

    A single curve is returned as it is. Several are paired if they can be; otherwise they are interpolated on one grid
    over their common range. There are no points if a curve is empty or there is no common range, and there is one if
    they have a single x in common.
    """
    if len(curves) == 1:
        return curves[0].x, curves[0].y[np.newaxis]
    if any(not len(curve.x) for curve in curves):
        return np.empty(0), np.empty((len(curves), 0))
    curves = [_in_order(curve) for curve in curves]
    if can_be_paired(curves):
        return _paired(curves)
    low, high = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    points = min(GRID_POINTS, max(len(curve.x) for curve in curves)) if low < high else 1
    grid = np.linspace(low, high, points) if low <= high else np.empty(0)
    return grid, np.stack([np.interp(grid, curve.x, curve.y) for curve in curves])


def _in_order(curve: Curve) -> Curve:
    """Return a curve whose x do not decrease."""
    order = np.argsort(curve.x, kind="stable")
    return Curve(curve.x[order], curve.y[order])


def _paired(curves: Sequence[Curve]) -> tuple[F64, F64]:
    """Return the points with the same number at the mean of their x, some of them if they are many."""
    count = len(curves[0].x)
    some = np.linspace(0, count - 1, min(count, GRID_POINTS)).astype(int)
    x = np.stack([curve.x[some] for curve in curves])
    return x[0] + (x - x[0]).mean(axis=0), np.stack([curve.y[some] for curve in curves])  # equal x stay as they are


def can_be_paired(curves: Sequence[Curve]) -> bool:
    """Whether the points with the same number belong together: all curves have as many, and these are close together.

    Their largest difference is at most a quarter of the smallest distance to the points before and after them, or of
    the smallest x of single points. So evaluations of several seeds are paired although their env steps differ by a
    part of a batch.
    """
    count = len(curves[0].x)
    if count == 0 or any(len(curve.x) != count for curve in curves):
        return False
    x = np.stack([curve.x for curve in curves])
    distances = np.diff(x, axis=1).min(axis=0) if count > 1 else x.min(axis=0)
    nearest = np.minimum(np.append(distances, np.inf), np.append(np.inf, distances))[:count]
    return bool((np.ptp(x, axis=0) <= _CLOSE * nearest).all())


def moving_average(curve: Curve, window: int) -> Curve:
    """Return the moving average over the last ``window`` points, or over fewer at the start of the curve."""
    size = min(window, len(curve.y))
    if size <= 1:
        return curve
    start = np.cumsum(curve.y[: size - 1]) / np.arange(1, size)
    return Curve(curve.x, np.concatenate([start, sliding_window_view(curve.y, size).mean(axis=-1)]))
