"""How likely one setting is better than another, from several runs of each.

The probability of improvement and its interval follow Agarwal et al. 2021, arXiv:2108.13264: the share of all pairs of
runs in which the first is better (equal counts one half), and a percentile bootstrap over the runs of both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

REPETITIONS = 2000
CONFIDENCE = 0.95


def probability_of_improvement(scores: ArrayLike, others: ArrayLike) -> float:
    """Return the probability that a run of `scores`, [runs], is better than one of `others`, [runs]."""
    return float(_share(np.asarray(scores, dtype=np.float64), np.asarray(others, dtype=np.float64)))


def mean_probability_of_improvement(pairs: Sequence[tuple[ArrayLike, ArrayLike]], seed: int = 0) -> tuple[float, ...]:
    """Return the mean probability of improvement over envs, and its 95 % interval: (probability, low, high).

    Args:
        pairs: for each env the scores of the one setting and those of the other, [runs] each.
        seed: seed of the resampling.
    """
    random = np.random.default_rng(seed)
    resampled = np.mean([_resampled(np.asarray(one), np.asarray(other), random) for one, other in pairs], axis=0)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(np.mean([probability_of_improvement(*pair) for pair in pairs])), float(low), float(high)


def _resampled(
    scores: NDArray[np.float64], others: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.float64]:
    """Return the probabilities of improvement of runs that were drawn again, [repetitions]."""
    drawn = [values[random.integers(len(values), size=(REPETITIONS, len(values)))] for values in (scores, others)]
    return _share(*drawn)


def _share(scores: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the pairs whose first is better: [..., runs], [..., runs] -> [...]."""
    first, second = scores[..., :, None], others[..., None, :]
    return np.asarray(((first > second) + 0.5 * (first == second)).mean(axis=(-2, -1)))
