"""Leaves with an encoder, such as images. A batch has each frame once; the stacks of rows are gathered late."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.core.types import FRAME_AGE, Leaf
from offbeat.models.network_arrays import ENCODED
from offbeat.models.spec import PolicySpec


def encoded_leaves(spec: PolicySpec, batch: Batch) -> dict[str, Encoded]:
    """Return the leaves of a batch that go through an encoder: ENCODED + name -> `Encoded`."""
    return {ENCODED + leaf.name: Encoded(leaf, batch) for leaf in spec.encoded}


def encoded_of(spec: PolicySpec, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs of the encoders for a minibatch, leaf -> [M, *stacked_shape]."""
    return {leaf.name: rows[ENCODED + leaf.name] for leaf in spec.encoded}


class Encoded:
    """One leaf of a batch with an encoder. Each frame is stored once; `at` gathers the frame stacks of rows."""

    def __init__(self, leaf: Leaf, batch: Batch) -> None:
        """Use the frames of a leaf in a batch, [history + T + 1, B, *shape], and for stacks FRAME_AGE, [T + 1, B]."""
        self._frames: Tensor = batch[leaf.name].flatten(0, 1)
        self._stacks = None if leaf.stack == 1 else stacks_in(batch[FRAME_AGE], leaf.stack)
        self._columns = batch[leaf.name].shape[1]

    def at(self, rows: Tensor | slice) -> Tensor:
        """Return the leaf [M, *stacked_shape] for M row indices of [(T + 1) * B]."""
        if self._stacks is None:
            unstacked: Tensor = self._frames[rows]
            return unstacked
        frames = self._stacks[rows]  # [M, stack]
        return self._frames.index_select(0, frames.flatten()).reshape(*frames.shape, *self._frames.shape[1:])

    def of_columns(self, columns: Tensor, length: int) -> Tensor:
        """Return the leaf for the first `length` rows of some columns [b]: [length * b, *stacked_shape]."""
        return self.at(self.rows_of(columns, length))

    def rows_of(self, columns: Tensor, length: int) -> Tensor:
        """Return the row indices of the first `length` rows of some columns [b], [length * b]."""
        first = torch.arange(length, device=columns.device)[:, None] * self._columns
        rows: Tensor = (first + columns).flatten()
        return rows

    @property
    def device(self) -> torch.device:
        return self._frames.device


class EncodedColumns:
    """One leaf with an encoder, for a range of the columns of a batch."""

    def __init__(self, encoded: Encoded, columns: range, length: int) -> None:
        """Use a leaf of a batch with `length` rows."""
        indices = torch.arange(columns.start, columns.stop, device=encoded.device)
        self._encoded, self._rows = encoded, encoded.rows_of(indices, length)

    def at(self, rows: slice) -> Tensor:
        """Return the leaf [M, *stacked_shape] for M of the row indices of these columns."""
        return self._encoded.at(self._rows[rows])


def stacks_in(age: Tensor, stack: int) -> Tensor:
    """Return the indices of the frames in the stack of each row, [(T + 1) * B, stack], oldest first.

    The newest frame of row t in column b has the index (stack - 1 + t) * B + b, because stack - 1 history rows come
    first. At the start of an episode, its first frame is repeated.

    Args:
        age: number of earlier frames of the episode that a row's stack can contain, [T + 1, B].
        stack: frames in a stack.
    """
    rows, columns = age.shape
    back = torch.arange(stack - 1, -1, -1, device=age.device).minimum(age.flatten().long()[:, None])
    newest = torch.arange(rows * columns, device=age.device) + (stack - 1) * columns
    return newest[:, None] - back * columns
