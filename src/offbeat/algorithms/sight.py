"""What networks are given of a batch's rows: the leaves that go through an encoder, of stacks each frame gathered
from where it lies once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.models.spec import PolicySpec
from offbeat.types import FRAME_AGE, Batch, Leaf

ENCODED = "encoded/"
"""What the name of a leaf that goes through an encoder begins with, in a prepared batch and its minibatches."""


def encoded_leaves(spec: PolicySpec, batch: Batch) -> dict[str, Encoded]:
    """Return the leaves of a batch that go through an encoder, by ENCODED and their names."""
    return {ENCODED + leaf.name: Encoded(leaf, batch) for leaf in spec.encoded}


def encoded_of(spec: PolicySpec, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the encoders are given of a minibatch, leaf -> [M, *seen]."""
    return {leaf.name: rows[ENCODED + leaf.name] for leaf in spec.encoded}


class Encoded:
    """One leaf of a batch. Its rows are counted as in [(T + 1) * B], time by time."""

    def __init__(self, leaf: Leaf, batch: Batch) -> None:
        """Look at a leaf's frames in a batch, [lead + T + 1, B, *shape]; of stacks with their ages, [T + 1, B]."""
        self._frames: Tensor = batch[leaf.name].flatten(0, 1)
        self._stacks = None if leaf.stack == 1 else stacks_in(batch[FRAME_AGE], leaf.stack)
        self._columns = batch[leaf.name].shape[1]

    def at(self, rows: Tensor | slice) -> Tensor:
        """Return rows [M, *seen]."""
        if self._stacks is None:
            unstacked: Tensor = self._frames[rows]
            return unstacked
        frames = self._stacks[rows]  # [M, stack]
        return self._frames.index_select(0, frames.flatten()).reshape(*frames.shape, *self._frames.shape[1:])

    def of_columns(self, columns: Tensor, length: int) -> Tensor:
        """Return the first `length` rows of some columns [b], time by time: [length * b, *seen]."""
        first = torch.arange(length, device=columns.device) * self._columns
        return self.at((first[:, None] + columns).flatten())


def stacks_in(age: Tensor, stack: int) -> Tensor:
    """Return which frames of a batch each row sees, [(T + 1) * B, stack], oldest first.

    Row t of column b is frame (stack - 1 + t) * B + b, as stack - 1 rows lead; those of an episode's start see its
    first frame several times.

    Args:
        age: rows of its episode that a row's stack reaches back at most, [T + 1, B].
        stack: frames that are seen.
    """
    rows, columns = age.shape
    back = torch.arange(stack - 1, -1, -1, device=age.device).minimum(age.flatten().long()[:, None])
    newest = torch.arange(rows * columns, device=age.device) + (stack - 1) * columns
    return newest[:, None] - back * columns
