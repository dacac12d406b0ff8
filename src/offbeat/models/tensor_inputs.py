"""Converts the leaves of observations to network inputs in torch, as ``inputs.py`` does in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from offbeat.core.choices import Choices, firsts
from offbeat.core.types import Leaf
from offbeat.models.inputs import OBSERVATION_CLIP


def flatten_tensors(leaves: Sequence[Leaf], rows: Mapping[str, Tensor], prefix: str = "") -> Tensor:
    """Join leaves into [..., inputs] float32.

    Args:
        leaves: the leaves.
        rows: `prefix` + name of a leaf -> [..., *shape]. Without leaves, `rows["reward"]` gives the leading dimensions.
        prefix: prefix of the names, for example 'next/'.
    """
    if not leaves:
        return torch.empty(*rows["reward"].shape, 0, device=rows["reward"].device)
    parts = [_flat(leaf, rows[prefix + leaf.name]) for leaf in leaves]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def _flat(leaf: Leaf, values: Tensor) -> Tensor:
    if len(leaf.shape) != 1:
        values = values.reshape(*values.shape[: values.ndim - len(leaf.shape)], leaf.size)
    return one_hot(values, leaf.choices) if leaf.choices else values.to(torch.float32)


def one_hot(numbers: Tensor, choices: Choices) -> Tensor:
    """Return the one-hot encoding, [..., sum(choices)] float32, of choices [..., components] counted from 0."""
    first = torch.from_numpy(firsts(choices)).to(numbers.device, non_blocking=True)
    indices = numbers.long() + first
    zeros = torch.zeros(*numbers.shape[:-1], sum(choices), device=numbers.device)
    return zeros.scatter_(-1, indices, 1.0)


def normalized(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Return rows [..., inputs] shifted by a mean, scaled and clipped, for a mean and a scale of [inputs]."""
    clip = float(OBSERVATION_CLIP)
    return ((x - mean) * scale).clamp_(-clip, clip)
