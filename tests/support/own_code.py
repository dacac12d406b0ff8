"""An algorithm, envs and encoders as a user's module has them. Importing it registers nothing; own_names.py does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torch import Tensor, nn

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.core.fields import Share


@dataclass(frozen=True)
class CarefulConfig(DQNConfig):
    """Those of DQN, and how much is doubted."""

    doubt: Share = 0.25
    """Share of each target that is not believed."""


class CarefulDQN(DQN):
    """Learns towards less than what it sees."""

    config_class = CarefulConfig
    config: CarefulConfig

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        return result._replace(metrics={**result.metrics, "doubt": self.config.doubt})

    @torch.no_grad()
    def targets(self, minibatch: Minibatch) -> Tensor:
        return (1 - self.config.doubt) * super().targets(minibatch)


class Pole(CartPoleEnv):
    """CartPole-v1 without a time limit."""


def make_pole(**kwargs: Any) -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Pole(**kwargs), 50)


class Sized(nn.Module):
    """Linear layers whose sizes are arguments."""

    def __init__(self, leaf: Any, units: int, *, layers: Sequence[int] = (), bias: bool = True) -> None:
        super().__init__()
        sizes = [leaf.size, *layers, units]
        self.layers = nn.Sequential(*(nn.Linear(*pair, bias=bias) for pair in pairwise(sizes)))

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.layers(observations.flatten(1))
        return features


class Rows(nn.Module):
    """Flattens what is observed."""

    def __init__(self, leaf: Any) -> None:
        super().__init__()
        self.leaf = leaf

    def forward(self, observations: Tensor) -> Tensor:
        return observations.flatten(1)
