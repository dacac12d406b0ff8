r"""An encoder of your own, for env offbeat/PixelsGoal-v0: it shows a goal in a vector and a square in an image.

    cd examples
    offbeat train ppo offbeat/PixelsGoal-v0 --steps 10000 --set encoder=own_encoder:GoalEncoder minibatch_size=128 \
        normalize_observations=false

An encoder is a torch module with forward(observations) -> features. `observations` has the env's own shapes and dtypes
(floats are always float32) with one axis of rows in front: a dict of tensors for a Dict observation, otherwise one
tensor. The constructor gets the description of the observation: a `Leaf` (name, shape, dtype), or a dict of them. The
setting `encoder_kwargs` has its other arguments: --set encoder_kwargs.units=64. Each network gets its own encoder.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from offbeat.core.types import Leaf


class GoalEncoder(nn.Module):
    """Multiplies features of the image with features of the goal: which side is right depends on both."""

    def __init__(self, observation: Mapping[str, Leaf], units: int = 32) -> None:
        super().__init__()
        pixels, goals = observation["image"].size, observation["goal"].size
        self.image = nn.Sequential(nn.Linear(pixels, units), nn.ReLU(), nn.Linear(units, units))
        self.goal = nn.Linear(goals, units)

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return features [M, units] of images [M, H, W] in bytes and goals [M, 1]."""
        image = observations["image"].flatten(1).to(torch.float32) / 255
        features: Tensor = self.image(image) * self.goal(observations["goal"])
        return features
