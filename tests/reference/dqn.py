"""Slow twins of DQN: target and loss one transition at a time, and its update on plain modules with torch's Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.support.models import ACTIONS, OBSERVATIONS
from torch import Tensor, nn

from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.core.types import EnvSpec

Rows = NDArray[Any]


def new_dqn(config: DQNConfig, *, observation: str = "vector", seed: int = 0) -> DQN:
    env = EnvSpec("Test-v0", OBSERVATIONS[observation], ACTIONS["discrete"], 4)
    return DQN(config, config.policy_spec(env), seed=seed)


def perturb(algorithm: DQN, scale: float, seed: int = 0) -> None:
    """Move all values that are learned, so that the ema network differs from the network."""
    generator = torch.Generator().manual_seed(seed)
    for name, view in algorithm.arrays().items():
        if name not in ("updates", "epsilon"):
            view.add_(torch.randn(view.shape, generator=generator), alpha=scale)


def target(reward: float, discount: float, next_values: Sequence[float], choosing: Sequence[float]) -> float:
    best = max(range(len(choosing)), key=lambda choice: choosing[choice])
    return reward + discount * next_values[best]


def loss_row(value: float, goal: float, weight: float) -> float:
    error = abs(value - goal)
    return weight * (error**2 / 2 if error <= 1 else error - 0.5)


def epsilon(config: DQNConfig, progress: float) -> float:
    """Return the point at `progress` on the line from (0, 1) to (exploration_fraction, final_epsilon), and its end."""
    points = [0.0, config.exploration_fraction] if config.exploration_fraction else [-1.0, 0.0]
    return float(np.interp(progress, points, [1.0, config.final_epsilon]))


class Twin:
    """DQN in float64, on ordinary modules and an optimizer of torch's."""

    def __init__(self, config: DQNConfig, weights: Mapping[str, Rows]) -> None:
        self.config, self.made = config, 0
        names = [
            *(
                f"policy_body.{i}"
                for i in range(len((256, 256) if config.hidden_sizes is None else config.hidden_sizes))
            ),
            "policy_head",
        ]
        self.network = self._stack(weights, names)
        self.ema = self._stack(weights, [f"ema_{name}" for name in names])
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate, eps=config.adam_eps)
        self.errors: list[float] = []

    def _stack(self, weights: Mapping[str, Rows], names: Sequence[str]) -> nn.Sequential:
        modules: list[nn.Module] = []
        for name in names:
            weight, bias = (torch.tensor(weights[f"{name}.{kind}"]).double() for kind in ("weight", "bias"))
            layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
            layer.weight.data, layer.bias.data = weight, bias
            modules += [layer, nn.Tanh() if self.config.activation == "tanh" else nn.ReLU()]
        return nn.Sequential(*modules[:-1])

    def update(self, minibatch: Mapping[str, Tensor]) -> None:
        """Make an update from a prepared minibatch, one row after the other."""
        losses, self.errors = [], []
        for i in range(len(minibatch["reward"])):
            row = {name: tensor[i] for name, tensor in minibatch.items()}
            value = self.network(row["observation"].double())[row["action"]]
            following = self.ema(row["next_observation"].double()).tolist()
            choosing = self.network(row["next_observation"].double()).tolist() if self.config.double else following
            goal = target(float(row["reward"]), float(row["discount"]), following, choosing)
            self.errors.append(abs(value.item() - goal))
            weight = float(row.get("weight", torch.tensor(1.0)))
            error = (value - goal).abs()
            losses.append(weight * (error**2 / 2 if error <= 1 else error - 0.5))
        self.optimizer.zero_grad()
        (torch.stack(losses).sum() / len(losses)).backward()
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        self.made += 1
        if self.made % self.config.ema_every == 0:
            with torch.no_grad():
                for slow, fast in zip(self.ema.parameters(), self.network.parameters(), strict=True):
                    slow.copy_((1 - self.config.ema_rate) * slow + self.config.ema_rate * fast)

    def arrays(self) -> dict[str, Rows]:
        """Return its parameters under the names that a checkpoint gives them."""
        named = {}
        for prefix, network in (("", self.network), ("ema_", self.ema)):
            layers = [layer for layer in network if isinstance(layer, nn.Linear)]
            names = [*(f"policy_body.{i}" for i in range(len(layers) - 1)), "policy_head"]
            for name, layer in zip(names, layers, strict=True):
                named[f"{prefix}{name}.weight"] = deepcopy(layer.weight.detach().numpy())
                named[f"{prefix}{name}.bias"] = deepcopy(layer.bias.detach().numpy())
        return named
