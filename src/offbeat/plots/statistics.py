"""Statistics of several runs: the interquartile mean and its band.

The mean and the interval follow Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", arXiv:2108.13264, and their library rliable.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import F64

FEWEST_FOR_INTERVAL = 4
"""Fewest runs with an interval. Of fewer, the percentile interval is the range, and the IQM is the mean."""
_REPETITIONS = 2000
"""Number of random resamplings."""
_MOST_RUNS_FOR_ALL = 5
"""Most runs of which all resamplings are taken: of five there are 3,125, of six 46,656."""


def iqm(scores: ArrayLike, axis: int | None = None) -> F64:
    """Return the interquartile mean: the mean without the lowest and the highest quarter of the scores.

    A quarter is rounded down to whole scores, so that the IQM of fewer than four scores is their mean.

    Args:
        scores: Scores of any shape.
        axis: Axis to reduce; None reduces all axes.
    """
    values = np.asarray(scores, dtype=np.float64)
    along = 0 if axis is None else axis
    ordered = np.sort(values.ravel() if axis is None else values, axis=along)
    count = ordered.shape[along]
    if count == 0:
        raise ConfigError("the IQM of no scores is not defined: pass at least 1 score")
    cut = count // 4
    middle = np.take(ordered, range(cut, count - cut), axis=along)
    return np.asarray(middle.mean(axis=along))


def band_of(curves: ArrayLike) -> tuple[F64, F64]:
    """Return the 95 % percentile bootstrap interval of the IQM of the runs, at each point of their curves; of fewer
    than four runs, their range.

    Whole runs are resampled with replacement. Of at most five runs all resamplings are taken, so no seed decides;
    of more, random ones, always with the same seed. The runs of one setting on one env are one stratum: call this
    once per env.

    Args:
        curves: Scores, [runs, points].

    Returns:
        (low, high), each [points].
    """
    runs = np.asarray(curves, dtype=np.float64)
    if len(runs) < FEWEST_FOR_INTERVAL:
        return runs.min(axis=0), runs.max(axis=0)
    resampled = _resampled(len(runs))
    edges = [np.quantile(iqm(point[resampled], axis=1), [0.025, 0.975]) for point in runs.T]
    low, high = np.asarray(edges).reshape(-1, 2).T
    return low, high


def _resampled(runs: int) -> NDArray[np.int64]:
    """Return the indices of the runs in each resampling, [resamplings, runs]."""
    if runs <= _MOST_RUNS_FOR_ALL:
        return np.asarray(list(product(range(runs), repeat=runs)))
    return np.random.default_rng(0).integers(runs, size=(_REPETITIONS, runs))
