"""The collective: the learners that compute the shards of each update together.

A minibatch is cut into K shards, which are fixed ranges of its rows. Each learner computes the gradients of its own
shards and gathers those of all. All learners have all data, so everything else, each makes for itself: statistics,
counts, and decisions from the gathered numbers. By default, one learner computes all shards and communicates nothing.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Collective(Protocol):
    """The learners that compute the shards of each update together."""

    shards: int
    """Number of shards of each minibatch, K."""
    own: range
    """The shards that this learner computes, one after the other."""

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all shards in order, [K, n]. They are valid until the next call.

        All learners must make the same calls in the same order; n and the dtype may differ between calls.

        Args:
            rows: those of this learner's own shards, [len(own), n].

        Raises:
            Closed: the run ends.
            RunFailed: a learner is lost.
        """
        ...


class AllShards:
    """The collective of one learner, which computes all shards."""

    def __init__(self, shards: int = 1) -> None:
        self.shards, self.own = shards, range(shards)

    def gather(self, rows: Tensor) -> Tensor:
        return rows


ALONE = AllShards()
"""One learner, and minibatches that are not cut."""


def tree_sum(rows: Tensor) -> Tensor:
    """Return the sum of rows [K, n] over K, [n].

    Neighbours are added in pairs, then the sums of neighbours, and so on. The order depends only on K, so the bits do
    not depend on which learner computed which row.
    """
    while len(rows) > 1:
        pairs = len(rows) // 2
        sums, left = rows[0 : 2 * pairs : 2] + rows[1 : 2 * pairs : 2], rows[2 * pairs :]
        rows = torch.cat((sums, left)) if len(left) else sums
    return rows[0]
