"""An encoder for simple spread with three agents: it reads each landmark with the same layers.

    offbeat run benchmarks/specs/simple-spread-landmarks.toml --trust-code

The order of the landmarks, and that of the other agents, means nothing in this env. A plain network must learn each
order by itself. This encoder gives the same features for all of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.core.types import Leaf

LANDMARKS, OTHERS = 3, 2
INPUTS = 12
"""Numbers that describe one landmark: see `Landmarks.described`."""
SCALE = 2.0
"""Positions and velocities are mostly below 1, and small differences of them matter."""


class Landmarks(nn.Module):
    """Features of each landmark, pooled by learned weights and by their mean."""

    def __init__(self, observation: Leaf, units: int = 64, pools: int = 4) -> None:
        """Create the layers.

        Args:
            observation: the observation of simple spread with three agents.
            units: units of each layer.
            pools: number of poolings by learned weights, each of `units / pools` features.
        """
        super().__init__()
        if observation.size != 18:
            raise ValueError(f"the observation has {observation.size} numbers, but 18 are expected: three agents")
        self.first, self.second = _linear(INPUTS, units), _linear(units, units)
        self.weights = _linear(units, pools)
        self.pools = pools

    def forward(self, observation: Tensor) -> Tensor:
        """Return features [M, 2 * units] of observations [M, 18]."""
        features = functional.relu(self.first(SCALE * self.described(observation)))
        features = functional.relu(self.second(features))
        weights = self.weights(features).softmax(dim=1)
        pooled = weights.unsqueeze(-1) * features.reshape(*features.shape[:2], self.pools, -1)
        return torch.cat((pooled.sum(dim=1).flatten(1), features.mean(dim=1)), dim=1)

    def described(self, observation: Tensor) -> Tensor:
        """Return what describes each landmark, [M, LANDMARKS, INPUTS].

        The agent's velocity, its way to the landmark with the distance, the ways from the landmark to the other agents
        with their distances, the nearer one first, and how much farther the agent is than the nearer one.
        """
        velocity = observation[:, None, 0:2].expand(-1, LANDMARKS, -1)
        landmarks = observation[:, 4:10].reshape(-1, LANDMARKS, 1, 2)
        others = observation[:, 10:14].reshape(-1, 1, OTHERS, 2) - landmarks
        distance, distances = _length(landmarks), _length(others)
        swapped = distances[:, :, :1] > distances[:, :, 1:]
        others = torch.where(swapped, others.flip(2), others)
        distances = torch.where(swapped, distances.flip(2), distances)
        farther = distance[:, :, 0] - distances[:, :, 0]
        own = torch.cat((landmarks, distance), dim=-1).flatten(2)
        return torch.cat((velocity, own, others.flatten(2), distances.flatten(2), farther), dim=-1)


def _length(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors [..., 2], [..., 1]."""
    return vectors.square().sum(dim=-1, keepdim=True).sqrt()


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, math.sqrt(2))
    nn.init.zeros_(layer.bias)
    return layer
