"""What networks and losses are given of a prepared batch's rows, all of them or the few of a minibatch.

Rows are counted as in [T * B], or [(T + 1) * B], time by time.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.core.types import FRAME_AGE, Leaf
from offbeat.models.policy_network import Remembered
from offbeat.models.spec import PolicySpec

ENCODED = "encoded/"
"""What the name of a leaf that goes through an encoder begins with, in a prepared batch and its minibatches."""
ROWS_AT_ONCE = 1024
"""Rows of images that are gathered, and looked at, together: all of a batch would take gigabytes."""
_DECIDED = ("action", "mask", "proximal_log_prob", "advantage")
"""What the policy's loss sees of a row, beside what the network makes of its observation; a mask where there is one."""
_VALUED = ("value_target", "proximal_value")
"""What the critic's loss sees of a row: also where there was no decision to make."""

# --- which rows ---------------------------------------------------------------------------------------------


def valid_rows(batch: Batch) -> Tensor:
    """Return where the valid rows of a batch are, [M]."""
    valid: Tensor = batch["valid"].flatten().nonzero().squeeze(1)
    return valid


def no_decision_in(batch: Batch) -> Tensor | None:
    """Return where the rows without a decision are, [m]; None where there are none."""
    return batch["no_decision"].flatten().nonzero().squeeze(1) if "no_decision" in batch else None


def pieces(spec: PolicySpec, batch: Batch) -> list[slice]:
    """Return the rows, of [(T + 1) * B], that are looked at together."""
    rows = batch["observation"].shape[:2].numel()
    at_once = ROWS_AT_ONCE if spec.encoded and not spec.recurrent else rows
    return [slice(first, first + at_once) for first in range(0, rows, at_once)]


def padded(rows: Tensor) -> Tensor:
    """Return rows [T, B, ...] with zeros for the row after the last, which has none, as [(T + 1) * B, ...]."""
    return torch.cat((rows, torch.zeros_like(rows[:1]))).flatten(0, 1)


# --- what is seen of them -----------------------------------------------------------------------------------


def seen(spec: PolicySpec, batch: Batch, rows: slice) -> tuple[Tensor, dict[str, Tensor], Remembered | None]:
    """Return what the network is given of rows of [(T + 1) * B]; of a core's, all."""
    encoded = {leaf.name: batch[ENCODED + leaf.name].at(rows) for leaf in spec.encoded}
    remembered = Remembered(batch["initial_state"], batch["resets"]) if spec.recurrent else None
    return batch["observation"].flatten(0, 1)[rows], encoded, remembered


def targets_of(batch: Batch, decided: Tensor, valued: Tensor) -> dict[str, Tensor]:
    """Return what the losses are given: the policy's of rows [M], the critic's of these and more, [M + m]."""
    rows = len(batch["reward"])
    taken = {name: batch[name][:rows].flatten(0, 1)[decided] for name in _DECIDED if name in batch}
    return taken | {name: batch[name][:rows].flatten(0, 1)[valued] for name in _VALUED}


def minibatch_of_rows(
    spec: PolicySpec, batch: Batch, order: Tensor, no_decision: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the rows at `order` [M] of what a loss needs: one gather per array.

    Of `no_decision` rows, [m], the critic alone learns: they stand behind the others in what it needs, [M + m].
    """
    valued = order if no_decision is None else torch.cat((order, no_decision))
    taken = targets_of(batch, order, valued)
    taken["observation"] = batch["observation"][: len(batch["reward"])].flatten(0, 1)[valued]
    taken |= {name: batch[name].at(valued) for name in (ENCODED + leaf.name for leaf in spec.encoded)}
    return taken if no_decision is None else {**taken, "rows": torch.arange(len(order), device=order.device)}


def minibatch_of_columns(spec: PolicySpec, batch: Batch, columns: Tensor) -> dict[str, Tensor]:
    """Return whole columns, of which the losses see the valid rows, [M]; the network sees all, [T * b, ...]."""
    rows = len(batch["reward"])
    of_columns = {name: array[:, columns] for name, array in batch.items() if name in (*_DECIDED, *_VALUED, "reward")}
    valid = batch["valid"][:, columns].flatten().nonzero().squeeze(1)
    valued = valid
    if "no_decision" in batch:
        valued = torch.cat((valid, batch["no_decision"][:, columns].flatten().nonzero().squeeze(1)))
    return {
        **targets_of(of_columns, valid, valued),
        "observation": batch["observation"][:rows, columns].flatten(0, 1),
        **{name: batch[name].of_columns(columns, rows) for name in (ENCODED + leaf.name for leaf in spec.encoded)},
        "initial_state": batch["initial_state"][columns],
        "resets": batch["resets"][:rows, columns],
        "rows": valid,
        "valued": valued,
    }


# --- images -------------------------------------------------------------------------------------------------


def encoded_leaves(spec: PolicySpec, batch: Batch) -> dict[str, Encoded]:
    """Return the leaves of a batch that go through an encoder, by ENCODED and their names."""
    return {ENCODED + leaf.name: Encoded(leaf, batch) for leaf in spec.encoded}


def encoded_of(spec: PolicySpec, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the encoders are given of a minibatch, leaf -> [M, *seen]."""
    return {leaf.name: rows[ENCODED + leaf.name] for leaf in spec.encoded}


class Encoded:
    """One leaf of a batch, by its rows of [(T + 1) * B]; of stacks each frame is gathered from where it lies once."""

    def __init__(self, leaf: Leaf, batch: Batch) -> None:
        """Look at a leaf's frames in a batch, [history + T + 1, B, *shape]; of stacks with their ages, [T + 1, B]."""
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
