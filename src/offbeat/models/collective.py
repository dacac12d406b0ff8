"""The collective: communication among the learners that train one algorithm together, each with its own data.

All shared decisions use it: sums of gradients, running statistics, the finite check, the KL stop, and the number of
updates that are due. So all learners make the same decisions. By default there is one learner and no communication.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Collective(Protocol):
    """Learners from 0 to size - 1. All of them must make the same calls in the same order."""

    rank: int
    size: int

    def sum_(self, values: Tensor) -> Tensor:
        """Replace values by their sums over all learners, added in the order of ranks; return them."""
        ...

    def all_(self, flag: bool) -> bool:
        """Return whether the flag is set in all learners."""
        ...


class Alone:
    """The collective of one learner."""

    rank = 0
    size = 1

    def sum_(self, values: Tensor) -> Tensor:
        return values

    def all_(self, flag: bool) -> bool:
        return flag


ALONE = Alone()


def total(collective: Collective, count: int) -> int:
    """Return the sum of a count over all learners."""
    return int(collective.sum_(torch.tensor([count]))) if collective.size > 1 else count


def mean(collective: Collective, value: float) -> float:
    """Return the mean of a value over all learners."""
    return float(collective.sum_(torch.tensor([value], dtype=torch.float64))) / collective.size
