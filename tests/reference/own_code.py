"""An algorithm, envs and an encoder as a user's module has them. Importing it registers nothing; own_names.py does."""

from __future__ import annotations

from dataclasses import dataclass
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
    _config: CarefulConfig

    def _loss(self, minibatch: Minibatch) -> LossResult:
        result = super()._loss(minibatch)
        return LossResult(result.loss, {**result.metrics, "doubt": self._config.doubt})

    @torch.no_grad()
    def _targets(self, minibatch: Minibatch) -> Tensor:
        return (1 - self._config.doubt) * super()._targets(minibatch)


class Pole(CartPoleEnv):
    """CartPole-v1 without a time limit."""


def make_pole(**kwargs: Any) -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Pole(**kwargs), 50)


class Rows(nn.Module):
    """Flattens what is observed."""

    def __init__(self, leaf: Any) -> None:
        super().__init__()
        self.leaf = leaf

    def forward(self, observations: Tensor) -> Tensor:
        return observations.flatten(1)
