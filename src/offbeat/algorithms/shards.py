"""Cuts minibatches into shards: parts whose gradients are computed apart and then added.

A minibatch is cut in the same way whichever learners compute the shards. Here are the parts that all algorithms share,
and the cut of plain rows; `on_policy_shards` and `sequences` have those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.base import Minibatch, Rows, Shard
from offbeat.core.errors import RunFailed
from offbeat.core.types import INITIAL_STATE, NO_DECISION
from offbeat.models.network_arrays import ENCODED


def even_ranges(count: int, parts: int) -> list[range]:
    """Return `parts` consecutive ranges of `count` items, as equal as possible; the first ones get one more."""
    size, larger = divmod(count, parts)
    starts = [part * size + min(part, larger) for part in range(parts + 1)]
    return [range(*ends) for ends in pairwise(starts)]


def cut_rows(minibatch: Minibatch, rows: int, shards: int) -> list[Shard]:
    """Cut a minibatch whose arrays all have M = `rows` rows into ranges of rows."""
    return [
        Shard(slice(cut.start, cut.stop), len(cut), partial(selected, minibatch, {rows: slice(cut.start, cut.stop)}))
        for cut in even_ranges(rows, shards)
    ]


def selected(minibatch: Minibatch, rows: Mapping[int, Rows]) -> dict[str, Any]:
    """Return the arrays of a minibatch at some rows. What has no rows is the same in all shards.

    Args:
        minibatch: the minibatch.
        rows: number of rows of an array -> those to select.

    Raises:
        RunFailed: an array has another number of rows, or is not a tensor.
    """
    return {name: _selected(name, value, rows) for name, value in minibatch.items()}


def _selected(name: str, value: Any, rows: Mapping[int, Rows]) -> Any:
    if isinstance(value, np.ndarray | list | tuple):
        raise RunFailed(
            f"{name} of a minibatch is of type {type(value).__name__}, which is not cut into shards: pass a tensor, or "
            "override `cut`, or pass --set shards=1"
        )
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    if len(value) not in rows:
        counts = " or ".join(map(str, rows))
        raise RunFailed(
            f"the array {name} of a minibatch has {len(value)} rows, but {counts} are expected: override `cut`, which "
            "cuts a minibatch into shards, or pass --set shards=1"
        )
    return value[rows[len(value)]]


# --- columns ------------------------------------------------------------------------------------------------


def part_of_columns(minibatch: Minibatch, columns: Tensor, indices: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the part of a minibatch of whole columns that has some of them.

    Args:
        minibatch: the minibatch.
        columns: indices of the columns, [b].
        indices: name of an array of row indices -> positions in it of the rows that are in these columns. Arrays that
            are as long as it are cut at the same positions.
    """
    count = minibatch["resets"].shape[1]
    by_row = [name for name in minibatch if name in ("observation", NO_DECISION) or name.startswith(ENCODED)]
    apart = {"resets", INITIAL_STATE, *indices, *by_row}
    others = {name: value for name, value in minibatch.items() if name not in apart}
    return {
        **selected(others, {len(minibatch[name]): positions for name, positions in indices.items()}),
        **{name: _moved_rows(minibatch[name][positions], count, columns) for name, positions in indices.items()},
        **{name: _rows_of_columns(minibatch[name], count, columns) for name in by_row},
        "resets": minibatch["resets"][:, columns],
        INITIAL_STATE: minibatch[INITIAL_STATE][columns],
    }


def _rows_of_columns(value: Tensor, count: int, columns: Tensor) -> Tensor:
    """Return the rows [T * b, ...] of some columns, of all rows [T * count, ...]."""
    return value.reshape(len(value) // count, count, *value.shape[1:])[:, columns].flatten(0, 1)


def _moved_rows(rows: Tensor, count: int, columns: Tensor) -> Tensor:
    """Return row indices of [T * count] as row indices of [T * b], those of some columns.

    Args:
        rows: the row indices, all in these columns.
        count: number of all columns.
        columns: indices of the columns, [b].
    """
    place = torch.zeros(count, dtype=torch.int64, device=columns.device)
    place[columns] = torch.arange(len(columns), device=columns.device)
    moved: Tensor = rows // count * len(columns) + place[rows % count]
    return moved
