"""Prepared batches, and minibatches of their rows: the inputs of networks and losses.

A row index counts the rows of a batch, flattened to [T * B] or [(T + 1) * B]. A minibatch has M rows with a decision,
and m rows without one, from which only the critic learns:

    observation         [M + m, inputs], normalised
    encoded/LEAF        [M + m, *stacked_shape], for each leaf with an encoder
    action              [M, ...], as recorded
    mask                [M, logits], if the env has action masks
    reference_log_prob  [M], of the recorded action under the reference policy, see `on_policy.py`: the one that acted
                        or, if V-trace corrects for lag, the one at the start of the learning step
    advantage           [M]
    value_target        [M + m], in units of the normalised return
    proximal_value      [M + m], of the critic at the start of the learning step, in the same units
    rows                [M], indices of the rows with a decision in `observation`; None: all rows
    no_decision         [M + m], whether a row has no decision, if the env has such rows; with a core [T * b]

With a core a minibatch has whole columns. `observation` is [T * b, inputs], all rows of b columns. `rows` [M] are the
indices of the rows with a decision in it, `valued` [M + m] those of all rows that the critic learns from.
`initial_state` [b, state_size] is the core's state before the first row, `resets` [T, b] marks the ends of episodes.

A shard of a minibatch is again a minibatch, with two more arrays (`on_policy_shards.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.algorithms.encoded import EncodedColumns, encoded_leaves
from offbeat.algorithms.minibatch_types import RowRange
from offbeat.algorithms.shards import even_ranges
from offbeat.algorithms.statistics import Statistics
from offbeat.core.types import INITIAL_STATE, LAST_NO_DECISION, NO_DECISION
from offbeat.models.network_arrays import ENCODED
from offbeat.models.policy_network import CoreState
from offbeat.models.spec import PolicySpec
from offbeat.models.tensor_inputs import flatten_tensors

ROWS_AT_ONCE = 1024
"""Number of rows of images that the network evaluates together: a whole batch would take gigabytes."""
_POLICY_INPUTS = ("action", "reference_log_prob", "advantage")
"""Arrays for the policy's loss. `mask` is another one, if the env has action masks."""
_CRITIC_INPUTS = ("value_target", "proximal_value")
"""Arrays for the critic's loss, which also have the rows without a decision."""


def prepared_rows(spec: PolicySpec, batch: Batch, statistics: Statistics) -> dict[str, Any]:
    """Return the inputs of networks and advantage estimators for a batch of unrolls.

    Returns:
        observation [T + 1, B, inputs], normalised; raw_observation, not normalised; the leaves with an encoder, see
        `encoded_leaves`; action, reward, terminated, truncated, valid and with masks mask, [T, B, ...]; no_decision
        [T, B], the rows without a decision; if the env has any, last_no_decision [B], the same for row T;
        behavior_log_prob [T, B]; reference_log_prob, equal to it: `OnPolicy.prepare` may recompute it; with a core
        initial_state [B, state_size] and resets [T + 1, B].
    """
    rows = {name: batch[name][:-1] for name in ("action", "reward", "terminated", "truncated", "valid")}
    if spec.mask:
        rows["mask"] = batch[spec.mask][:-1]
    raw = flatten_tensors(spec.vectors, batch)
    behavior = batch["behavior_log_prob"][:-1]
    core = {}
    if spec.recurrent:
        in_episode = batch["valid"] | batch[NO_DECISION] if NO_DECISION in batch else batch["valid"]
        core = {INITIAL_STATE: batch[INITIAL_STATE], "resets": ~in_episode}
    return {
        **rows,
        **encoded_leaves(spec, batch),
        **core,
        "raw_observation": raw,
        "observation": statistics.normalized(raw),
        "behavior_log_prob": behavior,
        "reference_log_prob": behavior,
        NO_DECISION: batch[NO_DECISION][:-1] if NO_DECISION in batch else torch.zeros_like(rows["valid"]),
        **({LAST_NO_DECISION: batch[LAST_NO_DECISION]} if spec.no_decision else {}),
    }


# --- row indices --------------------------------------------------------------------------------------------


def valid_rows(batch: Batch) -> Tensor:
    """Return the indices of the valid rows of a batch, [M]."""
    valid: Tensor = batch["valid"].flatten().nonzero().squeeze(1)
    return valid


def critic_only_marks(batch: Batch) -> Tensor:
    """Return the marks of the rows that only the critic learns from, [T, B]: those without a decision, but not row 0,
    from which no earlier row of the unroll bootstraps.
    """
    marks: Tensor = batch[NO_DECISION].clone()
    marks[0] = False
    return marks


def critic_only_rows(batch: Batch) -> Tensor | None:
    """Return the indices of the rows that only the critic learns from, [m]; None for no rows."""
    rows = critic_only_marks(batch).flatten().nonzero().squeeze(1)
    return rows if len(rows) else None


def value_rows(batch: Batch, valid: Tensor) -> Tensor:
    """Return the indices of the rows that the critic learns from, [M + m]: `valid`, then critic-only rows."""
    return _joined(valid, critic_only_rows(batch))


def _joined(decisions: Tensor, critic_only: Tensor | None) -> Tensor:
    return decisions if critic_only is None else torch.cat((decisions, critic_only))


def row_ranges(spec: PolicySpec, batch: Batch) -> list[slice]:
    """Return the ranges of row indices, of [(T + 1) * B], that the network evaluates together."""
    rows = batch["observation"].shape[:2].numel()
    at_once = ROWS_AT_ONCE if spec.encoded and not spec.recurrent else rows
    return [slice(first, first + at_once) for first in range(0, rows, at_once)]


def padded(rows: Tensor) -> Tensor:
    """Return rows [T, B, ...] as [(T + 1) * B, ...], with zeros in row T."""
    return torch.cat((rows, torch.zeros_like(rows[:1]))).flatten(0, 1)


# --- inputs of networks and losses --------------------------------------------------------------------------


def network_inputs(spec: PolicySpec, batch: Batch, rows: slice) -> tuple[Tensor, dict[str, Tensor], CoreState | None]:
    """Return the network's inputs for a range of row indices of [(T + 1) * B]; with a core it must be all rows."""
    encoded = {leaf.name: batch[ENCODED + leaf.name].at(rows) for leaf in spec.encoded}
    core_state = CoreState(batch[INITIAL_STATE], batch["resets"]) if spec.recurrent else None
    return batch["observation"].flatten(0, 1)[rows], encoded, core_state


def no_decision_of(spec: PolicySpec, batch: Batch, rows: slice) -> Tensor | None:
    """Return the marks of rows without a decision in a range of row indices of [(T + 1) * B]; None if the env has
    none.
    """
    if not spec.no_decision:
        return None
    return torch.cat((batch[NO_DECISION], batch[LAST_NO_DECISION][None])).flatten()[rows]


def loss_arrays(spec: PolicySpec, batch: Batch, decisions: Tensor, valued: Tensor) -> dict[str, Any]:
    """Return the arrays for the losses: those of the policy for M rows, those of the critic for M + m rows.

    Args:
        spec: the policy.
        batch: as `OnPolicy.prepare` returns it.
        decisions: indices of the rows with a decision, [M].
        valued: indices of the rows that the critic learns from, [M + m].
    """
    of_policy = {name: batch[name].flatten(0, 1).index_select(0, decisions) for name in _policy_inputs(spec)}
    return of_policy | {name: batch[name].flatten(0, 1).index_select(0, valued) for name in _CRITIC_INPUTS}


def _policy_inputs(spec: PolicySpec) -> tuple[str, ...]:
    return (*_POLICY_INPUTS, "mask") if spec.mask else _POLICY_INPUTS


def minibatch_of_rows(spec: PolicySpec, batch: Batch, decisions: Tensor, critic_only: Tensor | None) -> dict[str, Any]:
    """Return a minibatch of rows, as in the module's docstring.

    Args:
        spec: the policy.
        batch: as `OnPolicy.prepare` returns it.
        decisions: indices of valid rows, [M].
        critic_only: indices of critic-only rows, [m]; they come last in the minibatch. None: there are none.
    """
    minibatch = minibatch_without_inputs(spec, batch, decisions, critic_only)
    gathers = input_gathers(spec, batch, _joined(decisions, critic_only))
    return minibatch | {name: gather() for name, gather in gathers.items()}


def input_gathers(spec: PolicySpec, batch: Batch, rows: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return functions that gather the network's inputs for rows [N]: observation, and the leaves with an encoder."""
    encoded = [ENCODED + leaf.name for leaf in spec.encoded]
    return {
        "observation": lambda: batch["observation"].flatten(0, 1).index_select(0, rows),
        **{name: partial(batch[name].at, rows) for name in encoded},
    }


def minibatch_without_inputs(
    spec: PolicySpec, batch: Batch, decisions: Tensor, critic_only: Tensor | None
) -> dict[str, Any]:
    """Return the arrays of `minibatch_of_rows` without the network's inputs; the arguments are the same."""
    valued = _joined(decisions, critic_only)
    minibatch = loss_arrays(spec, batch, decisions, valued)
    if spec.no_decision:
        minibatch[NO_DECISION] = batch[NO_DECISION].flatten()[valued]
    minibatch["rows"] = torch.arange(len(decisions), device=decisions.device) if critic_only is not None else None
    return minibatch


def host_arrays(spec: PolicySpec, batch: Batch) -> dict[str, NDArray[Any]]:
    """Return the arrays of a batch that a minibatch of rows has, [T * B, ...] each.

    The batch is on the host, without images, and each row has a decision.
    """
    names = ("observation", *_policy_inputs(spec), *_CRITIC_INPUTS)
    return {name: batch[name].flatten(0, 1).numpy() for name in names}


def host_minibatches(
    arrays: Mapping[str, NDArray[Any]], rows: NDArray[np.int64], parts: int
) -> Iterator[Mapping[str, Any]]:
    """Yield minibatches of rows that are equal to those of `minibatch_of_rows`, faster.

    Args:
        arrays: as `host_arrays` returns them.
        rows: indices of all rows, [N], in order.
        parts: number of minibatches; their sizes are those of torch.tensor_split.
    """
    gathered = {name: array.take(rows, axis=0) for name, array in arrays.items()}
    for part in even_ranges(len(rows), parts):
        yield RowRange(gathered, slice(part.start, part.stop))


def minibatch_of_columns(spec: PolicySpec, batch: Batch, columns: Tensor) -> dict[str, Any]:
    """Return a minibatch of whole columns, for a core, as in the module's docstring; `columns`: their indices, [b]."""
    length = len(batch["reward"])
    names = (*_policy_inputs(spec), *_CRITIC_INPUTS, "valid", NO_DECISION)
    of_columns = {name: batch[name][:, columns] for name in names}
    valid = valid_rows(of_columns)
    valued = value_rows(of_columns, valid)
    return {
        **loss_arrays(spec, of_columns, valid, valued),
        "observation": batch["observation"][:length, columns].flatten(0, 1),
        **{name: batch[name].of_columns(columns, length) for name in (ENCODED + leaf.name for leaf in spec.encoded)},
        INITIAL_STATE: batch[INITIAL_STATE][columns],
        "resets": batch["resets"][:length, columns],
        **({NO_DECISION: of_columns[NO_DECISION].flatten()} if spec.no_decision else {}),
        "rows": valid,
        "valued": valued,
    }


def columns_of(spec: PolicySpec, batch: Batch, columns: range) -> dict[str, Any]:
    """Return the part of a prepared batch that a network and its action distribution read, for a range of columns."""
    of_columns = slice(columns.start, columns.stop)
    names = ("observation", "action", "reward", "mask", "resets", NO_DECISION)
    part = {name: batch[name][:, of_columns] for name in names if name in batch}
    part |= {name: batch[name][of_columns] for name in (INITIAL_STATE, LAST_NO_DECISION) if name in batch}
    length = len(batch["observation"])
    return part | {
        name: EncodedColumns(batch[name], columns, length) for name in (ENCODED + leaf.name for leaf in spec.encoded)
    }
