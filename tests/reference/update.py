"""Slow twins of the learning steps: an ordinary module, torch's Adam, and a loop over rows, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import log, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.reference.advantages import by_column, gae_column, vtrace_column
from torch import Tensor, distributions, nn

from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig
from offbeat.core.types import Leaf, Tree
from offbeat.models.spec import PolicySpec

Rows = NDArray[Any]
Place = tuple[int, int]
"""Row and column."""


def observation_of(case: str, action: str) -> str:
    """Return the observations, of `support/models.py`, that a case named in words is learned from."""
    if "masked" in case:
        return "masked choices" if action != "discrete" else "masked"
    return "dict" if action == "discrete" else "vector"


class Network(nn.Module):
    """Policy and critic, each a plain stack of layers."""

    def __init__(self, spec: PolicySpec, weights: Mapping[str, Rows], *, shared: bool) -> None:
        super().__init__()
        self.spec = spec
        self.policy = _stack(spec, weights, "policy_body", "policy_head", None)
        self.critic = _stack(spec, weights, "critic_body", "critic_head", self.policy if shared else None)
        if "log_std" in weights:
            self.log_std = nn.Parameter(torch.from_numpy(weights["log_std"].copy()).double())

    def log_prob(self, observation: Tensor, action: Tensor, mask: Rows | None) -> Tensor:
        """The log-probability of one action: choices, then numbers of boxes; a squashed one is as before its tanh."""
        chosen, u = action.reshape(-1).split([len(self.spec.action.nvec), len(self.spec.action.low)])
        total = torch.zeros(())
        for (component, allowed), choice in zip(self._components(observation, mask), chosen, strict=True):
            total = total + component.log_prob(torch.tensor(allowed.index(int(choice))))
        for normal in self._normal(observation):
            total = total + normal.log_prob(u.double()).sum()
            if self.spec.distribution == "squashed":
                total = total - (1 - torch.tanh(u.double()) ** 2).log().sum()
        return total

    def entropy(self, observation: Tensor, mask: Rows | None) -> Tensor:
        total = torch.zeros(())
        for component, _ in self._components(observation, mask):
            total = total + component.entropy()
        for normal in self._normal(observation):
            total = total + normal.entropy().sum()
            if self.spec.distribution == "squashed":
                total = total + _mean_log_slope(normal)
        return total

    def symmetric_kl(self, observation: Tensor, mask: Rows | None) -> Tensor:
        """Half of both directions' divergence from the uniform policy over what is allowed."""
        total = torch.zeros(())
        for component, _ in self._components(observation, mask):
            log_uniform = -log(component.probs.numel())
            uniform = torch.full_like(component.logits, log_uniform).exp()
            there = (component.probs * (component.logits - log_uniform)).sum()
            back = (uniform * (log_uniform - component.logits)).sum()
            total = total + (there + back) / 2
        return total

    def value(self, observation: Tensor) -> Tensor:
        value: Tensor = self.critic(observation)[0]
        return value

    def _components(self, observation: Tensor, mask: Rows | None) -> list[tuple[distributions.Categorical, list[int]]]:
        """Return the distribution of each component over its allowed choices, and which these are."""
        logits, components, first = self.policy(observation), [], 0
        for count in self.spec.action.nvec:
            allowed = [i for i in range(count) if mask is None or mask[first + i]]
            part = torch.stack([logits[first + i] for i in allowed])
            components.append((distributions.Categorical(logits=part, validate_args=False), allowed))
            first += count
        return components

    def _normal(self, observation: Tensor) -> list[distributions.Normal]:
        """Return the distribution of the numbers of boxes, if there are any."""
        if not self.spec.action.low:
            return []
        means = self.policy(observation)[sum(self.spec.action.nvec) :]
        return [distributions.Normal(means, self.log_std.exp(), validate_args=False)]

    def array(self, name: str) -> Rows:
        """Return a parameter by the name that a checkpoint gives it."""
        if name == "log_std":
            return self.log_std.detach().numpy()
        part, *place, kind = name.replace("_head", f"_body.{len(self.spec.hidden_sizes)}").split(".")
        layer = getattr(self, part.removesuffix("_body"))[2 * int(place[0])]
        array: Rows = getattr(layer, kind).detach().numpy()
        return array


def _mean_log_slope(normal: distributions.Normal) -> Tensor:
    """Return what tanh adds to the entropy, by adding up over a fine grid."""
    z = torch.linspace(-6, 6, 4001, dtype=torch.float64).unsqueeze(1)
    slope = (1 - torch.tanh(normal.mean + normal.stddev * z) ** 2).log()
    mean: Tensor = (slope * torch.softmax(-z.square() / 2, dim=0)).sum()
    return mean


def _stack(
    spec: PolicySpec, weights: Mapping[str, Rows], body: str, head: str, shared: nn.Sequential | None
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(len(spec.hidden_sizes)):
        layers += [
            _linear(weights, f"{body}.{i}") if shared is None else shared[2 * i],
            nn.Tanh() if spec.activation == "tanh" else nn.ReLU(),
        ]
    return nn.Sequential(*layers, _linear(weights, head))


def _linear(weights: Mapping[str, Rows], name: str) -> nn.Linear:
    outputs, inputs = weights[f"{name}.weight"].shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    for kind in ("weight", "bias"):
        getattr(layer, kind).data = torch.from_numpy(weights[f"{name}.{kind}"].copy()).double()
    return layer


@dataclass
class Twin:
    """Learns by the plain policy gradient, one row at a time: as A2C does and, with V-trace always, as IMPALA does."""

    config: OnPolicyConfig
    network: Network
    corrected: bool
    """Whether the proximal policy is another than the one that acted."""
    weighs: bool
    """Whether V-trace weighs rows."""
    seen_observations: list[Rows] = field(default_factory=list)
    """Every valid row so far, [inputs] each."""
    seen_targets: list[float] = field(default_factory=list)
    """Their value targets, in units of reward."""

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.network.parameters(), eps=self.config.adam_eps)

    # --- statistics -----------------------------------------------------------------------------------------

    def normalized(self, raw: Rows) -> Tensor:
        if not self.config.normalize_observations:
            return torch.from_numpy(raw)
        seen = np.array(self.seen_observations or [raw * 0 - 1, raw * 0 + 1])
        normalized = np.clip((raw - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -10, 10)
        one_hot = [flag for leaf in self.network.spec.vectors for flag in [bool(leaf.choices)] * leaf.inputs]
        return torch.from_numpy(np.where(one_hot, raw, normalized))

    @property
    def return_std(self) -> float:
        return sqrt(np.var(self.seen_targets) + 1e-8) if self.seen_targets else 1.0

    @property
    def return_unit(self) -> float:
        return self.return_std / (self.config.return_scale if self.config.normalize_returns else 1)

    # --- a learning step ------------------------------------------------------------------------------------

    def learn(self, batch: Tree, rate: float, random: np.random.Generator) -> list[float]:
        """Learn from [T + 1, B, ...] arrays; return the gradients' norms before clipping."""
        rows = _Rows(batch, self.network.spec)
        self.masks = rows.masks
        self.observations = {where: self.normalized(raw) for where, raw in rows.raw.items()}
        valid = [where for where in rows.inner if batch["valid"][where]]
        self._prepare(batch, rows)
        self._estimate = lambda: self._target(batch, rows)
        first_targets = dict(self.targets)
        norms = [self._update(part, batch, rate) for part in self._parts(valid, random)]
        unit = self.return_unit
        if self.config.normalize_observations:
            self.seen_observations += [rows.raw[where] for where in valid]
        if self.config.normalize_returns:
            self.seen_targets += [first_targets[where] * unit for where in valid]
        return norms

    @torch.no_grad()
    def _prepare(self, batch: Tree, rows: _Rows) -> None:
        behavior = {where: float(batch["behavior_log_prob"][where]) for where in rows.inner}
        now = {where: float(self._log_prob(where, batch)) for where in rows.inner}
        self.proximal = now if self.corrected else behavior
        self.log_ratio = {where: now[where] - behavior[where] for where in rows.inner}
        self._target(batch, rows)
        self.values_at_start = self.values

    @torch.no_grad()
    def _target(self, batch: Tree, rows: _Rows) -> None:
        """Advantages, values and targets of each row, by the papers' sums."""
        unit, config = self.return_unit, self.config
        values = rows.grid({where: float(self.network.value(x)) * unit for where, x in self.observations.items()})
        arrays = (batch["reward"][:-1].astype(np.float64), values)
        ends = tuple(batch[name][:-1] for name in ("terminated", "truncated", "valid"))
        masks = (*ends, np.zeros_like(ends[-1]))  # each valid row has a decision
        decay = {"gamma": config.gamma, "gae_lambda": config.gae_lambda}
        if self.weighs:
            clips = {"rho_clip": config.rho_clip, "c_clip": config.c_clip}
            ratios = rows.grid(self.log_ratio)
            advantages, targets = by_column(vtrace_column, ratios, *arrays, *masks, **decay, **clips)
        else:
            advantages, targets = by_column(gae_column, *arrays, *masks, **decay)
        self.advantages = {where: advantages[where] for where in rows.inner}
        self.targets = {where: targets[where] / unit for where in rows.inner}
        self.values = {where: values[where] / unit for where in rows.inner}

    def _update(self, part: list[Place], batch: Tree, rate: float) -> float:
        advantages = np.array([self.advantages[where] for where in part])
        if self.config.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss = torch.zeros(())
        for where, advantage in zip(part, advantages, strict=True):
            loss = loss + self._row_loss(where, float(advantage), batch) / len(part)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.max_grad_norm)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        return float(norm)

    def _row_loss(self, where: Place, advantage: float, batch: Tree) -> Tensor:
        config, observation = self.config, self.observations[where]
        log_prob = self._log_prob(where, batch)
        loss = self._policy_loss(where, log_prob, advantage)
        loss = loss + config.value_coef * self._value_loss(where, self.network.value(observation))
        if config.exploration == "symmetric_kl":
            return loss + config.entropy_coef * self.network.symmetric_kl(observation, self.masks[where])
        if not config.entropy_coef:
            return loss
        return loss - config.entropy_coef * self.network.entropy(observation, self.masks[where])

    def _log_prob(self, where: Place, batch: Tree) -> Tensor:
        action = torch.from_numpy(np.array(batch["action"][where]))
        return self.network.log_prob(self.observations[where], action, self.masks[where])

    # --- what PPO does in another way ------------------------------------------------------------------------

    def _parts(self, valid: list[Place], random: np.random.Generator) -> Iterator[list[Place]]:  # noqa: ARG002
        yield valid

    def _policy_loss(self, where: Place, log_prob: Tensor, advantage: float) -> Tensor:  # noqa: ARG002
        return -advantage * log_prob

    def _value_loss(self, where: Place, value: Tensor) -> Tensor:
        return (value - self.targets[where]) ** 2 / 2


@dataclass
class PPOTwin(Twin):
    """Learns as PPO does."""

    config: PPOConfig

    def _parts(self, valid: list[Place], random: np.random.Generator) -> Iterator[list[Place]]:
        parts = -(-len(valid) // self.config.minibatch_size)
        for epoch in range(self.config.epochs):
            if epoch and self.config.recompute_advantages:
                self._estimate()
            for part in np.array_split(random.permutation(len(valid)), parts):
                yield [valid[i] for i in part]

    def _policy_loss(self, where: Place, log_prob: Tensor, advantage: float) -> Tensor:
        ratio, clip = (log_prob - self.proximal[where]).exp(), self.config.clip
        return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)

    def _value_loss(self, where: Place, value: Tensor) -> Tensor:
        clip, target, before = self.config.value_clip, self.targets[where], self.values_at_start[where]
        loss = super()._value_loss(where, value)
        if clip is None:
            return loss
        return torch.maximum(loss, (before + (value - before).clamp(-clip, clip) - target) ** 2 / 2)


def _inputs(leaf: Leaf, value: Rows) -> Rows:
    if not leaf.choices:
        return np.ravel(value).astype(np.float64)
    pairs = zip(np.ravel(value), leaf.choices, strict=True)
    return np.array([float(i == number) for number, count in pairs for i in range(count)])


class _Rows:
    """The places of a batch and the raw observation in each, leaves flattened and joined."""

    def __init__(self, batch: Tree, spec: PolicySpec) -> None:
        length, columns = batch["reward"].shape
        places = [(t, b) for t in range(length) for b in range(columns)]
        self.inner = [(t, b) for t, b in places if t < length - 1]
        self.raw = {
            where: np.concatenate([_inputs(leaf, batch[leaf.name][where]) for leaf in spec.vectors]) for where in places
        }
        self.masks = {where: batch[spec.mask][where] if spec.mask else None for where in places}

    def grid(self, numbers: Mapping[tuple[int, int], float]) -> Rows:
        """Return [rows, columns] from numbers by place."""
        length, columns = (1 + max(axis) for axis in zip(*numbers, strict=True))
        return np.array([[numbers[t, b] for b in range(columns)] for t in range(length)])
