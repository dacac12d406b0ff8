"""Converts sequences of a replay to minibatches with one row per transition, and cuts these into shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from offbeat.algorithms.base import Batch, Minibatch, Shard
from offbeat.algorithms.shards import even_ranges, part_of_columns
from offbeat.core.types import INITIAL_STATE
from offbeat.models.policy_network import CoreState

LARGEST_ERROR_WEIGHT = 0.9
"""Weight of a sequence's largest error in its priority; the mean error has the rest (eta of R2D2, section 2.3)."""


def transitions_of(sampled: Batch, *, weighted: bool) -> dict[str, Tensor]:
    """Return the positions of the M transitions in sequences, and their actions, rewards, discounts and weights.

    Args:
        sampled: as `SequenceReplay.sample` returns it, with B sequences of T rows.
        weighted: whether the sequences have importance weights, as they do with priorities.

    Returns:
        rows [M], the row index of each transition in [(T + 1) * B]; next_rows [M], the row index of the next
        observation of its target; column [M], its sequence; action, reward and discount [M, ...]; weight [M] if
        `weighted`.
    """
    columns = sampled["valid"].shape[1]
    rows = sampled["valid"].flatten().nonzero().squeeze(1)
    column = rows % columns
    next_rows = sampled["next"].flatten()[rows] * columns + column
    transitions = {"rows": rows, "next_rows": next_rows, "column": column}
    transitions |= {name: sampled[name].flatten(0, 1)[rows] for name in ("action", "reward", "discount")}
    return transitions | ({"weight": sampled["weight"][column]} if weighted else {})


def forward_sequences(
    network: nn.Module, minibatch: Minibatch, encoded: Mapping[str, Tensor], state: Tensor, burn_in: int
) -> Tensor:
    """Return the outputs of a network for all rows after the burn-in, [(T + 1) * B, ...]. The burn-in has no gradient.

    Args:
        network: a `PolicyNetwork`, or a `Body`.
        minibatch: with observation [(L + 1) * B, inputs] and resets [L + 1, B].
        encoded: the leaves with an encoder, leaf -> [(L + 1) * B, ...].
        state: the core's state before the first row, [B, state_size].
        burn_in: number of rows that only update the state.
    """
    resets = minibatch["resets"]
    first = burn_in * resets.shape[1]
    if burn_in:
        with torch.no_grad():
            before = {name: leaf[:first] for name, leaf in encoded.items()}
            _, after = network(minibatch["observation"][:first], before, CoreState(state, resets[:burn_in]))
        state = after
    rows = {name: leaf[first:] for name, leaf in encoded.items()}
    outputs: Tensor = network(minibatch["observation"][first:], rows, CoreState(state, resets[burn_in:]))[0]
    return outputs


def sequence_errors(errors: Tensor, column: Tensor, columns: int) -> Tensor:
    """Return the error of each sequence, [B]: eta max + (1 - eta) mean of the errors of its transitions (R2D2, 2.3).

    Args:
        errors: errors of the transitions, [M], not negative.
        column: index of the sequence of each transition, [M].
        columns: number of sequences, B.
    """
    zeros = torch.zeros(columns, device=errors.device)
    count = zeros.index_add(0, column, torch.ones_like(errors))
    mean = zeros.index_add(0, column, errors) / count
    return LARGEST_ERROR_WEIGHT * zeros.scatter_reduce(0, column, errors, "amax") + (1 - LARGEST_ERROR_WEIGHT) * mean


def cut_sequences(minibatch: Minibatch, shards: int) -> list[Shard]:
    """Cut a minibatch into ranges of whole sequences."""
    column, cuts = minibatch["column"], even_ranges(len(minibatch[INITIAL_STATE]), shards)
    of_cuts = [((column >= cut.start) & (column < cut.stop)).nonzero().squeeze(1) for cut in cuts]
    return [
        Shard(rows, len(rows), partial(_part_of_sequences, minibatch, cut, rows))
        for cut, rows in zip(cuts, of_cuts, strict=True)
    ]


def _part_of_sequences(minibatch: Minibatch, cut: range, transitions: Tensor) -> dict[str, Any]:
    """Return the part of a minibatch with a range of its B sequences; `transitions`: theirs among the M, [M_k]."""
    columns = torch.arange(cut.start, cut.stop, device=transitions.device)
    part = part_of_columns(minibatch, columns, {"rows": transitions, "next_rows": transitions})
    return {**part, "column": part["column"] - cut.start}
