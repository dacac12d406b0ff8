"""Prepared batches, and the inputs of networks and losses that are selected from their rows.

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
from offbeat.models.policy_network import CoreState
from offbeat.models.spec import PolicySpec
from offbeat.models.tensor_inputs import flatten_tensors

ENCODED = "encoded/"
"""Prefix of the name of a leaf with an encoder, in a prepared batch and its minibatches."""
ROWS_AT_ONCE = 1024
"""Rows of images that are gathered and evaluated together: a whole batch would take gigabytes."""
_DECIDED = ("action", "proximal_log_prob", "advantage")
"""Inputs of the policy's loss, in addition to network outputs; and `mask`, if the env has action masks."""
_VALUED = ("value_target", "proximal_value")
"""Inputs of the critic's loss, also for rows without a decision."""


def prepared_rows(spec: PolicySpec, batch: Batch, statistics: Statistics) -> dict[str, Any]:
    """Return the inputs of networks and estimators for a batch of unrolls.

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
    """Return the ranges of rows, of [(T + 1) * B], that are evaluated together."""
    rows = batch["observation"].shape[:2].numel()
    at_once = ROWS_AT_ONCE if spec.encoded and not spec.recurrent else rows
    return [slice(first, first + at_once) for first in range(0, rows, at_once)]


def padded(rows: Tensor) -> Tensor:
    """Return rows [T, B, ...] with zeros for the row after the last, which has none, as [(T + 1) * B, ...]."""
    return torch.cat((rows, torch.zeros_like(rows[:1]))).flatten(0, 1)


# --- inputs of networks and losses --------------------------------------------------------------------------


def network_inputs(spec: PolicySpec, batch: Batch, rows: slice) -> tuple[Tensor, dict[str, Tensor], CoreState | None]:
    """Return the network's inputs for rows of [(T + 1) * B]; with a core the slice must have all rows."""
    encoded = {leaf.name: batch[ENCODED + leaf.name].at(rows) for leaf in spec.encoded}
    core_state = CoreState(batch["initial_state"], batch["resets"]) if spec.recurrent else None
    return batch["observation"].flatten(0, 1)[rows], encoded, core_state


def targets_of(spec: PolicySpec, batch: Batch, decided: Tensor, valued: Tensor) -> dict[str, Any]:
    """Return the inputs of the losses: of the policy's for M rows, of the critic's for M + m rows."""
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
    """Return a minibatch of whole columns: the losses use the valid rows, [M], the network all rows, [T * b, ...]."""
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
    """Return the inputs of the encoders for a minibatch, leaf -> [M, *seen]."""
    return {leaf.name: rows[ENCODED + leaf.name] for leaf in spec.encoded}


class Encoded:
    """One leaf of a batch, indexed by rows of [(T + 1) * B]. Each frame is stored once; stacks are gathered."""

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
    """Return the indices of the frames in the stack of each row, [(T + 1) * B, stack], oldest first.

    Row t of column b is frame (stack - 1 + t) * B + b, because stack - 1 history rows come first. At the start
    of an episode its first frame is repeated.

    Args:
        age: number of earlier frames of the episode that a row's stack can contain, [T + 1, B].
        stack: frames in a stack.
    """
    rows, columns = age.shape
    back = torch.arange(stack - 1, -1, -1, device=age.device).minimum(age.flatten().long()[:, None])
    newest = torch.arange(rows * columns, device=age.device) + (stack - 1) * columns
    return newest[:, None] - back * columns
