"""Prepared batches, and what networks and losses are given of their rows: of all of them, or of a minibatch.

Rows are counted as in [T * B], or [(T + 1) * B], time by time. A minibatch of M rows with a decision, and m rows
without one, of which the critic alone learns:

    observation         [M + m, inputs], normalised; encoded/LEAF [M + m, *seen] for each leaf with an encoder
    action              [M, ...], as recorded
    mask                [M, logits], if the env has action masks
    proximal_log_prob   [M], of the policy at the start of the learning step; at max_lag = 0 of the policy that acted
    advantage           [M]
    value_target        [M + m], in units of the normalised return
    proximal_value      [M + m], of the critic at the start of the learning step, in the same units
    rows                where in `observation` the M rows are; None: all

With a core, `observation` is [T * b, inputs], all rows of b columns; `rows` [M] and `valued` [M + m] say which rows the
losses use, `initial_state` [b, state_size] and `resets` [T, b] what the core starts from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.algorithms.statistics import Statistics
from offbeat.core.types import FRAME_AGE, Leaf
from offbeat.losses.advantages import no_decision_rows
from offbeat.models.policy_network import Remembered
from offbeat.models.spec import PolicySpec
from offbeat.models.tensor_inputs import flatten_tensors

ENCODED = "encoded/"
"""What the name of a leaf that goes through an encoder begins with, in a prepared batch and its minibatches."""
ROWS_AT_ONCE = 1024
"""Rows of images that are gathered, and looked at, together: all of a batch would take gigabytes."""
_DECIDED = ("action", "proximal_log_prob", "advantage")
"""What the policy's loss sees of a row, beside the network's outputs; and `mask`, if the env has action masks."""
_VALUED = ("value_target", "proximal_value")
"""What the critic's loss sees of a row: also where there was no decision to make."""


def prepared_rows(spec: PolicySpec, batch: Batch, statistics: Statistics) -> dict[str, Any]:
    """Return what networks and estimators need of a batch of unrolls, before anything is computed by a network.

    Returns:
        observation [T + 1, B, inputs], normalised, and raw_observation, as it was; what is in an unroll's rows, [T, B,
        ...]; no_decision [T, B], the rows without a decision; behavior_log_prob [T, B], and as proximal_log_prob the
        same.
    """
    rows = {name: batch[name][:-1] for name in ("action", "reward", "terminated", "truncated", "valid")}
    if spec.mask:
        rows["mask"] = batch[spec.mask][:-1]
    raw = flatten_tensors(spec.vectors, batch)
    behavior = batch["behavior_log_prob"][:-1]
    core = {}
    if spec.recurrent:
        core = {"initial_state": batch["initial_state"], "resets": ~(batch["valid"] | batch["no_decision"])}
    return {
        **rows,
        **encoded_leaves(spec, batch),
        **core,
        "raw_observation": raw,
        "observation": statistics.normalized(raw),
        "behavior_log_prob": behavior,
        "proximal_log_prob": behavior,
        "no_decision": no_decision_rows(rows["terminated"], rows["truncated"], rows["valid"]),
    }


# --- which rows ---------------------------------------------------------------------------------------------


def valid_rows(batch: Batch) -> Tensor:
    """Return where the valid rows of a batch are, [M]."""
    valid: Tensor = batch["valid"].flatten().nonzero().squeeze(1)
    return valid


def critic_rows(batch: Batch) -> Tensor | None:
    """Return the rows without a decision, of which the critic alone learns, [m]; None where there are none."""
    rows: Tensor = batch["no_decision"].flatten().nonzero().squeeze(1)
    return rows if len(rows) else None


def valued_rows(batch: Batch, valid: Tensor) -> Tensor:
    """Return the rows that the critic learns from, [M + m]: the valid ones [M], then those without a decision."""
    return _joined(valid, critic_rows(batch))


def _joined(decided: Tensor, critic_only: Tensor | None) -> Tensor:
    return decided if critic_only is None else torch.cat((decided, critic_only))


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


def targets_of(spec: PolicySpec, batch: Batch, decided: Tensor, valued: Tensor) -> dict[str, Any]:
    """Return what the losses are given: the policy's of rows [M], the critic's of these and more, [M + m]."""
    rows = len(batch["reward"])
    taken = {name: batch[name][:rows].flatten(0, 1)[decided] for name in _decided(spec)}
    return taken | {name: batch[name][:rows].flatten(0, 1)[valued] for name in _VALUED}


def _decided(spec: PolicySpec) -> tuple[str, ...]:
    return (*_DECIDED, "mask") if spec.mask else _DECIDED


def minibatch_of_rows(spec: PolicySpec, batch: Batch, decided: Tensor, critic_only: Tensor | None) -> dict[str, Any]:
    """Return a minibatch, as the module says, with one gather per array.

    Args:
        spec: of the policy.
        batch: as `OnPolicy.prepare` returns it.
        decided: valid rows, [M].
        critic_only: rows without a decision, [m], which come after the others in what the critic needs; None: the batch
            has none.
    """
    valued = _joined(decided, critic_only)
    taken = targets_of(spec, batch, decided, valued)
    taken["observation"] = batch["observation"][: len(batch["reward"])].flatten(0, 1)[valued]
    taken |= {name: batch[name].at(valued) for name in (ENCODED + leaf.name for leaf in spec.encoded)}
    taken["rows"] = torch.arange(len(decided), device=decided.device) if critic_only is not None else None
    return taken


def minibatch_of_columns(spec: PolicySpec, batch: Batch, columns: Tensor) -> dict[str, Any]:
    """Return whole columns, of which the losses see the valid rows, [M]; the network sees all, [T * b, ...]."""
    rows = len(batch["reward"])
    names = (*_decided(spec), *_VALUED, "reward", "valid", "no_decision")
    of_columns = {name: batch[name][:, columns] for name in names}
    valid = valid_rows(of_columns)
    valued = valued_rows(of_columns, valid)
    return {
        **targets_of(spec, of_columns, valid, valued),
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
