"""A slow twin of CrossQ in float64: unit by unit, with plain tensors and torch's own Adam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tests.reference.actor_critic_twin import Rows, adam_step
from tests.reference.sac import bounded_spec, tanh_gaussian
from torch import Tensor

from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.crossq_config import CrossQConfig
from offbeat.models.batch_norm import WARMUP


def new_crossq(action: str, config: CrossQConfig, *, observation: str = "vector", seed: int = 0) -> CrossQ:
    return CrossQ(config, bounded_spec(action, config, observation), seed=seed)


def set_moments(algorithm: CrossQ, seed: int, *, renormalized: bool) -> None:
    """Give an algorithm random running moments, as many updates old as renormalisation needs, or as many less one."""
    generator = torch.Generator().manual_seed(seed)
    for mean, variance in zip(algorithm.moments.means, algorithm.moments.variances, strict=True):
        mean.copy_(0.3 * torch.randn(mean.shape, generator=generator))
        variance.copy_(0.05 + 2 * torch.rand(variance.shape, generator=generator))
    algorithm.moments.updates.fill_(WARMUP if renormalized else 0)


class CrossQTwin:
    """All that is learned, by its names in a checkpoint, and an optimizer for each group."""

    def __init__(self, config: CrossQConfig, weights: Mapping[str, Rows]) -> None:
        """Start with the weights of a checkpoint."""
        self.config = config
        self.tensors = {name: torch.tensor(array).double() for name, array in weights.items() if name != "uniform"}
        self.depth = sum(name.startswith("critics.weights.") for name in weights)
        groups = {"critic": "critics.", "policy": "policy_", "temperature": "log_alpha"}
        self.optimizers: dict[str, Any] = {}
        for group, prefix in groups.items():
            learned = [tensor for name, tensor in self.tensors.items() if name.startswith(prefix)]
            for tensor in learned:
                tensor.requires_grad_()
            if learned:
                self.optimizers[group] = torch.optim.Adam(
                    learned, betas=(config.adam_beta1, 0.999), eps=config.adam_eps
                )

    def alpha(self) -> Tensor:
        fixed = self.config.temperature
        return self.tensors["log_alpha"].detach().exp() if fixed is None else torch.tensor(fixed).double()

    def update(self, number: int, minibatch: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """Make an update from a prepared minibatch."""
        rows = {name: tensor.double() for name, tensor in minibatch.items()}
        batch_moments: list[tuple[int, int, Tensor, Tensor]] = []
        self._step("critic", self._critic_loss(rows, batch_moments), rates)
        if number % self.config.policy_delay == 0:
            action, log_prob = self._act(rows["observation"], rows["noise"])
            inputs = torch.cat((rows["observation"], action), dim=1)
            values = torch.stack([self._value(e, inputs, None) for e in range(self.config.critics)])
            least = values.min(dim=0).values
            self._step("policy", (self.alpha() * log_prob - least).mean(), rates)
            if self.config.temperature is None:
                entropy = -log_prob.detach().mean()
                target = -float(action.shape[1]) if self.config.target_entropy is None else self.config.target_entropy
                self._step("temperature", self.tensors["log_alpha"] * (entropy - target), rates)
        for e, i, mean, variance in batch_moments:
            for kind, new in (("means", mean), ("variances", variance)):
                running = self.tensors[f"critic_moments.{kind}.{i}"]
                running[e] = 0.99 * running[e] + 0.01 * new.detach()
        self.tensors["critic_moments.updates"] += 1

    def _critic_loss(self, rows: Mapping[str, Tensor], batch_moments: list[tuple[int, int, Tensor, Tensor]]) -> Tensor:
        with torch.no_grad():
            next_action, log_prob = self._act(rows["next_observation"], rows["next_noise"])
        now = torch.cat((rows["observation"], rows["action"]), dim=1)
        later = torch.cat((rows["next_observation"], next_action), dim=1)
        pairs = [self._value(e, torch.cat((now, later)), batch_moments) for e in range(self.config.critics)]
        values, next_values = torch.stack(pairs).tensor_split(2, dim=1)
        soft = next_values.detach().min(dim=0).values - self.alpha() * log_prob
        target = rows["reward"] + rows["discount"] * soft
        weight = rows.get("weight", torch.ones_like(target))
        return sum((weight * (one - target) ** 2 / 2).mean() for one in values)

    def _act(self, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        x = observation
        for i in range(self.depth - 1):
            x = self._activation(x @ self.tensors[f"policy_body.{i}.weight"].T + self.tensors[f"policy_body.{i}.bias"])
        output = x @ self.tensors["policy_head.weight"].T + self.tensors["policy_head.bias"]
        drawn = [
            tanh_gaussian(row[: len(own)], row[len(own) :].clamp(-20, 2), own)
            for row, own in zip(output, noise, strict=True)
        ]
        return torch.stack([action for action, _ in drawn]), torch.stack([log_prob for _, log_prob in drawn])

    def _value(self, e: int, x: Tensor, batch_moments: list[tuple[int, int, Tensor, Tensor]] | None) -> Tensor:
        """Return the values by critic e, [N], normalised by the running moments, or the rows' if collected."""
        for i in range(self.depth):
            learns = batch_moments is not None
            columns = [self._unit(e, i, unit, x[:, unit], learns=learns) for unit in range(x.shape[1])]
            if batch_moments is not None:
                batch_moments.append((e, i, x.mean(dim=0), ((x - x.mean(dim=0)) ** 2).mean(dim=0)))
            scale, shift = self.tensors[f"critics.scales.{i}"][e], self.tensors[f"critics.shifts.{i}"][e]
            x = torch.stack(columns, dim=1) * scale + shift
            x = x @ self.tensors[f"critics.weights.{i}"][e].T + self.tensors[f"critics.biases.{i}"][e]
            x = self._activation(x) if i < self.depth - 1 else x
        return x[:, 0]

    def _unit(self, e: int, i: int, unit: int, x: Tensor, *, learns: bool) -> Tensor:
        """Return the normalised inputs of one unit, [N], before scale and shift."""
        running_mean = self.tensors[f"critic_moments.means.{i}"][e, unit]
        running_std = (self.tensors[f"critic_moments.variances.{i}"][e, unit] + 1e-3).sqrt()
        if not learns:
            return (x - running_mean) / running_std
        mean = x.sum() / len(x)
        std = (((x - mean) ** 2).sum() / len(x) + 1e-3).sqrt()
        if float(self.tensors["critic_moments.updates"]) < WARMUP:
            return (x - mean) / std
        r = min(max(float(std.detach() / running_std), 1 / 3), 3.0)
        d = min(max(float((mean.detach() - running_mean) / running_std), -5.0), 5.0)
        return (x - mean) / std * r + d

    def _activation(self, x: Tensor) -> Tensor:
        return x.tanh() if self.config.activation == "tanh" else x.relu()

    def _step(self, group: str, loss: Tensor, rates: Mapping[str, float]) -> None:
        adam_step(self.optimizers[group], loss, rates[group], self.config.max_grad_norm)

    def arrays(self) -> dict[str, Rows]:
        """Return all that is learned, by the names of a checkpoint."""
        return {name: tensor.detach().numpy() for name, tensor in self.tensors.items()}
