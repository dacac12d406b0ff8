"""Cuts the minibatches of on-policy algorithms into shards.

A shard has the arrays of a minibatch (`rows.py`) for its M_k rows with a decision and m_k rows without one, and

    normalized_advantage    [M_k], normalised over the whole minibatch, if normalize_advantages is set
    value_weight            a number, if the minibatch has rows without a decision: the factor of the value loss

The loss of a shard counts in proportion to M_k. But its value loss is a mean over M_k + m_k rows, and must count in
proportion to them, hence the factor. The two kinds of rows are cut separately, so that each shard with rows has
decisions. With a core, whole columns are cut: first those with a decision, then those without.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from offbeat.algorithms.base import Minibatch, Shard
from offbeat.algorithms.shards import cut_rows, even_ranges, part_of_columns, selected
from offbeat.core.types import INITIAL_STATE
from offbeat.losses.actor_critic import normalized_advantages

NORMALIZED = "normalized_advantage"
VALUE_WEIGHT = "value_weight"


def advantages_of(minibatch: Minibatch, *, normalize: bool) -> Tensor:
    """Return the advantages of a minibatch, [M]; if `normalize`, normalised over it, for a shard over the whole."""
    advantages: Tensor = minibatch["advantage"]
    if not normalize:
        return advantages
    of_whole: Tensor | None = minibatch.get(NORMALIZED)
    return normalized_advantages(advantages) if of_whole is None else of_whole


def weighted_value_loss(value_loss: Tensor, minibatch: Minibatch) -> Tensor:
    """Return the value loss of a minibatch; that of a shard with the weight of its rows."""
    return value_loss * minibatch[VALUE_WEIGHT] if VALUE_WEIGHT in minibatch else value_loss


def cut_minibatch(minibatch: Minibatch, shards: int, *, normalize: bool, recurrent: bool) -> list[Shard]:
    """Cut a minibatch of rows, or if `recurrent` of columns; `normalize`: whether advantages are normalised."""
    if normalize:
        minibatch = {**minibatch, NORMALIZED: normalized_advantages(minibatch["advantage"])}
    if recurrent:
        return _cut_columns(minibatch, shards)
    decisions, valued = len(minibatch["advantage"]), len(minibatch["value_target"])
    if minibatch.get("rows") is None:
        return cut_rows(minibatch, decisions, shards)
    return _cut_with_critic_only_rows(minibatch, decisions, valued, shards)


def _value_weight(of_shard: tuple[int, int], of_minibatch: tuple[int, int]) -> dict[str, float]:
    """Return the weight of the value loss of a shard, by its name; nothing without critic-only rows.

    Args:
        of_shard: number of rows with a decision, and of all rows that the critic learns from, M_k and M_k + m_k.
        of_minibatch: the same of the minibatch, M and M + m.
    """
    (decisions, valued), (all_decisions, all_valued) = of_shard, of_minibatch
    if all_decisions == all_valued:
        return {}
    return {VALUE_WEIGHT: (valued / all_valued) * (all_decisions / max(1, decisions))}


# --- rows ---------------------------------------------------------------------------------------------------


def _cut_with_critic_only_rows(minibatch: Minibatch, decisions: int, valued: int, shards: int) -> list[Shard]:
    """Cut M rows with a decision and, behind them, m rows without one; m may be 0. `rows` of such a minibatch is
    0 .. M - 1.
    """
    cuts = even_ranges(decisions, shards)
    with_rows = min(shards, decisions)
    behind = [*even_ranges(valued - decisions, with_rows), *[range(0)] * (shards - with_rows)]

    def part(of_policy: range, of_critic: range) -> dict[str, Any]:
        device, count = minibatch["advantage"].device, len(of_policy)
        ends = (of_policy.start, of_policy.stop), (decisions + of_critic.start, decisions + of_critic.stop)
        rows = torch.cat([torch.arange(*each, device=device) for each in ends])
        return {
            **selected(minibatch, {decisions: rows[:count], valued: rows}),
            "rows": torch.arange(count, device=device),
            **_value_weight((count, len(rows)), (decisions, valued)),
        }

    return [
        Shard(slice(cut.start, cut.stop), len(cut), partial(part, cut, extra))
        for cut, extra in zip(cuts, behind, strict=True)
    ]


# --- columns ------------------------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """Some of the b columns of a minibatch, and their rows."""

    columns: Tensor
    """Indices of the columns, [b_k]."""
    decisions: Tensor
    """Positions of their rows with a decision in `rows` of the minibatch, [M_k]."""
    valued: Tensor
    """Positions of the rows that the critic learns from in `valued` of the minibatch, [M_k + m_k]."""


def _cut_columns(minibatch: Minibatch, shards: int) -> list[Shard]:
    """Cut a minibatch of whole columns."""
    count = len(minibatch[INITIAL_STATE])
    of_rows, of_valued = minibatch["rows"] % count, minibatch["valued"] % count
    decides = torch.zeros(count, dtype=torch.bool, device=of_rows.device)
    decides[of_rows] = True
    deciding, others = (flags.nonzero().squeeze(1) for flags in (decides, ~decides))
    parts = min(shards, len(deciding))
    # torch.tensor_split makes the ranges of `even_ranges`.
    columns = [torch.cat(pair) for pair in zip(deciding.tensor_split(parts), others.tensor_split(parts), strict=True)]
    columns += [deciding[:0]] * (shards - parts)
    cuts = [_Columns(each, _places(of_rows, each, count), _places(of_valued, each, count)) for each in columns]
    return [Shard(cut.decisions, len(cut.decisions), partial(_part_of_columns, minibatch, cut)) for cut in cuts]


def _places(column: Tensor, columns: Tensor, count: int) -> Tensor:
    """Return the positions of the rows that are in some columns.

    Args:
        column: column of each row, [M].
        columns: indices of the columns.
        count: number of all columns, b.
    """
    flags = torch.zeros(count, dtype=torch.bool, device=columns.device)
    flags[columns] = True
    return flags[column].nonzero().squeeze(1)


def _part_of_columns(minibatch: Minibatch, cut: _Columns) -> dict[str, Any]:
    sizes = len(minibatch["rows"]), len(minibatch["valued"])
    return {
        **part_of_columns(minibatch, cut.columns, {"rows": cut.decisions, "valued": cut.valued}),
        **_value_weight((len(cut.decisions), len(cut.valued)), sizes),
    }
