"""How probable samples are, if they have the distribution that they should have.

SciPy is imported when it is first needed: every process of the tests imports all test files.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike


def chi_square(observed: ArrayLike, expected: ArrayLike | None = None) -> Any:
    """Return the p-value of counts, of which all are equally probable unless `expected` has the mean of each."""
    from scipy import stats  # type: ignore[import-untyped]

    return stats.chisquare(observed, expected).pvalue


def kolmogorov_smirnov(samples: ArrayLike) -> Any:
    """Return the p-value of each column of samples from a standard normal distribution (Kolmogorov-Smirnov)."""
    from scipy import stats

    return stats.kstest(samples, "norm").pvalue
