"""Converts sequences of a replay to minibatches with one row per transition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from offbeat.algorithms.base import Batch, Minibatch
from offbeat.models.policy_network import CoreState

Network = Callable[[Tensor, Mapping[str, Tensor], CoreState | None], tuple[Tensor, Tensor | None]]
"""From rows to outputs, and with a core its state after them: `Body.forward`, `PolicyNetwork.forward_with_state`."""

SHARE_OF_WORST = 0.9
"""How much the largest error of a sequence counts for its priority, beside their mean: eta of R2D2, section 2.3."""


def transitions_of(sampled: Batch, *, weighted: bool) -> dict[str, Tensor]:
    """Return the positions of the M transitions in sequences, and their actions, rewards, discounts and weights.

    Args:
        sampled: as `SequenceReplay.sample` returns it, with sequences of T rows.
        weighted: whether sequences have weights, [B], as they do with priorities.

    Returns:
        rows and next_rows, [M]: of the transition, and of the value that follows it, among the T + 1 rows of B columns
        each; column, [M]; action, reward and discount, [M, ...]; and weight, [M], if they have any.
    """
    columns = sampled["valid"].shape[1]
    rows = sampled["valid"].flatten().nonzero().squeeze(1)
    column = rows % columns
    found = {"rows": rows, "next_rows": sampled["next"].flatten()[rows] * columns + column, "column": column}
    found |= {name: sampled[name].flatten(0, 1)[rows] for name in ("action", "reward", "discount")}
    return found | ({"weight": sampled["weight"][column]} if weighted else {})


def forward_sequences(network: Network, minibatch: Minibatch, state: Tensor, burn_in: int) -> Tensor:
    """Return the outputs of a network for all rows after the burn-in, [(T + 1) * B, ...]. The burn-in has no gradient.

    Args:
        network: the network.
        minibatch: with observation [(L + 1) * B, inputs], encoded leaves under observation/, resets [L + 1, B].
        state: [B, state_size], before the first row.
        burn_in: rows that only update the state.
    """
    resets, encoded = minibatch["resets"], minibatch["encoded"]
    first = burn_in * resets.shape[1]
    if burn_in:
        with torch.no_grad():
            before = {name: leaf[:first] for name, leaf in encoded.items()}
            _, after = network(minibatch["observation"][:first], before, CoreState(state, resets[:burn_in]))
        assert after is not None
        state = after
    rows = {name: leaf[first:] for name, leaf in encoded.items()}
    return network(minibatch["observation"][first:], rows, CoreState(state, resets[burn_in:]))[0]


def sequence_errors(errors: Tensor, column: Tensor, columns: int) -> Tensor:
    """Return one error of each sequence, [B], from those of its transitions: eta max + (1 - eta) mean (R2D2, 2.3).

    Args:
        errors: [M], not negative.
        column: [M], which sequence each is of.
        columns: B.
    """
    zeros = torch.zeros(columns, device=errors.device)
    count = zeros.index_add(0, column, torch.ones_like(errors))
    mean = zeros.index_add(0, column, errors) / count
    return SHARE_OF_WORST * zeros.scatter_reduce(0, column, errors, "amax") + (1 - SHARE_OF_WORST) * mean
