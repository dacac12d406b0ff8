"""How probable samples are, if they have the distribution that they should have.

SciPy is imported when it is first needed: every process of the tests imports all test files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def chi_square(observed: ArrayLike, expected: ArrayLike | None = None) -> Any:
    """Return the p-value of counts, of which all are equally probable unless `expected` has the mean of each."""
    from scipy.special import chdtrc  # type: ignore[import-untyped]

    counts = np.asarray(observed, float)
    means = np.full_like(counts, counts.mean()) if expected is None else np.asarray(expected, float)
    assert np.isclose(means.sum(), counts.sum())
    return chdtrc(counts.size - 1, ((counts - means) ** 2 / means).sum())


def kolmogorov_smirnov(samples: ArrayLike) -> Any:
    """Return the p-value of each column of many samples from a standard normal distribution (Kolmogorov-Smirnov)."""
    from scipy.special import kolmogorov, ndtr

    expected = ndtr(np.sort(samples, axis=0))
    count = len(expected)
    observed = np.arange(count + 1)[:, None] / count
    distance = np.maximum(observed[1:] - expected, expected - observed[:-1]).max(axis=0)
    return kolmogorov(np.sqrt(count) * distance)
