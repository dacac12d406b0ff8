"""Action distributions in torch, for losses. Acting samples in NumPy (``sampling.py``)."""

from __future__ import annotations

import math
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from offbeat.models.spec import LOG_STD_RANGE, MASKED_LOGIT, PolicySpec


class ActionDistribution(Protocol):
    """A distribution over the actions of M rows."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probabilities of recorded actions, [M]."""
        ...

    def entropy(self) -> Tensor:
        """Return the entropy in nats, [M] or a scalar."""
        ...


class Categorical:
    """Independent categorical components; logits [M, sum(nvec)]."""

    def __init__(self, logits: Tensor, nvec: tuple[int, ...], mask: Tensor | None = None) -> None:
        """Take the joined logits of all components, and the mask of the allowed choices, of the same shape."""
        if mask is not None:
            logits = masked(logits, mask)
        self._masks = None if mask is None else torch.split(mask, list(nvec), dim=-1)
        self._log_probs = [functional.log_softmax(part, dim=-1) for part in torch.split(logits, list(nvec), dim=-1)]

    def log_prob(self, action: Tensor) -> Tensor:
        actions = action.reshape(len(action), len(self._log_probs)).long()
        parts = [log_probs.gather(1, actions[:, i : i + 1]).squeeze(1) for i, log_probs in enumerate(self._log_probs)]
        return _total(parts)

    def entropy(self) -> Tensor:
        return _total([-(log_probs.exp() * log_probs).sum(dim=-1) for log_probs in self._log_probs])

    def symmetric_kl_to_uniform(self) -> Tensor:
        """Return (KL(p || u) + KL(u || p)) / 2, [M], for the uniform distribution u over the allowed choices."""
        parts = zip(self._log_probs, self._masks or [None] * len(self._log_probs), strict=True)
        return _total([_symmetric_kl_to_uniform(*part) for part in parts])


def masked(logits: Tensor, mask: Tensor) -> Tensor:
    """Return logits [..., n] with probability 0 and no gradient for choices that the mask [..., n] does not allow."""
    return torch.where(mask, logits, MASKED_LOGIT)


def _symmetric_kl_to_uniform(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    allowed = torch.ones_like(log_probs) if mask is None else mask.to(log_probs.dtype)
    uniform = allowed / allowed.sum(dim=-1, keepdim=True)
    # sum over choices of (p - u) (log p - log u), halved
    gap = torch.where(allowed > 0, log_probs - uniform.clamp_min(1e-30).log(), 0.0)
    return 0.5 * ((log_probs.exp() - uniform) * gap).sum(dim=-1)


def _total(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(dim=0)


class Gaussian:
    """A diagonal Gaussian; mean [M, D], log_std [D]."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def log_prob(self, action: Tensor) -> Tensor:
        standardized = (action.reshape(self.mean.shape) - self.mean) * (-self.log_std).exp()
        constant = self.log_std.sum() + 0.5 * math.log(2 * math.pi) * self.mean.shape[-1]
        return -0.5 * standardized.square().sum(dim=-1) - constant

    def entropy(self) -> Tensor:
        """Return a scalar: the entropy does not depend on the mean."""
        return self.log_std.sum() + 0.5 * math.log(2 * math.pi * math.e) * self.mean.shape[-1]


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


class SquashedGaussian(Gaussian):
    """tanh of a diagonal Gaussian; actions are recorded before the tanh."""

    def log_prob(self, action: Tensor) -> Tensor:
        u = action.reshape(self.mean.shape)
        return super().log_prob(action) - _log_tanh_slope(u).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Return [M]: the Gaussian's entropy plus the mean log-slope of tanh, by 16-point Gauss-Hermite quadrature.

        The error of each number is below 0.015 nats for standard deviations up to e, and 0.25 nats for e squared.
        """
        nodes, weights = _quadrature(self.mean.dtype, self.mean.device)
        u = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes  # [M, D, 16]
        return super().entropy() + (_log_tanh_slope(u) * weights).sum(dim=(-1, -2))


@cache
def _quadrature(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return nodes and weights, [16] each. They are copied to the device once: the host waits for such a copy."""
    nodes, weights = torch.from_numpy(_NODES), torch.from_numpy(_WEIGHTS / _WEIGHTS.sum())
    return nodes.to(device, dtype), weights.to(device, dtype)


class TanhGaussian:
    """tanh of a diagonal Gaussian whose standard deviations are network outputs too; actions are recorded after tanh.

    It has no `log_prob`: near the bounds, the value before the tanh cannot be computed from the recorded action.
    """

    def __init__(self, parameters: Tensor) -> None:
        """Take parameters [M, 2 D]: means, then log standard deviations."""
        self._mean, log_std = parameters.chunk(2, dim=1)
        self._log_std = log_std.clamp(*LOG_STD_RANGE)

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [M, D] in [-1, 1] and their log-probabilities [M] (arXiv:1812.05905, appendix C).

        Args:
            noise: [M, D], standard normal. Both results are differentiable by the parameters.
        """
        u = self._mean + self._log_std.exp() * noise
        log_prob = -0.5 * noise.square() - self._log_std - 0.5 * math.log(2 * math.pi) - _log_tanh_slope(u)
        return u.tanh(), log_prob.sum(dim=1)


def _log_tanh_slope(u: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2) elementwise, without overflow."""
    return 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))


class Mixed:
    """C choices and D continuous numbers, independent of each other; in an action, [M, C + D], choices come first."""

    def __init__(self, choices: Categorical, numbers: Gaussian) -> None:
        self._choices, self._numbers = choices, numbers

    def log_prob(self, action: Tensor) -> Tensor:
        chosen = action.shape[1] - self._numbers.mean.shape[1]
        return self._choices.log_prob(action[:, :chosen]) + self._numbers.log_prob(action[:, chosen:])

    def entropy(self) -> Tensor:
        return self._choices.entropy() + self._numbers.entropy()


def make_distribution(
    spec: PolicySpec, parameters: Tensor, log_std: Tensor | None, mask: Tensor | None = None
) -> ActionDistribution:
    """Return the distribution that `spec` names, from a network's output [M, outputs] and a mask [M, logits]."""
    if log_std is None:
        return Categorical(parameters, spec.action.nvec, mask)
    gaussian = SquashedGaussian if spec.distribution == "squashed" else Gaussian
    if not spec.logits:
        return gaussian(parameters, log_std)
    choices = Categorical(parameters[:, : spec.logits], spec.action.nvec, mask)
    return Mixed(choices, gaussian(parameters[:, spec.logits :], log_std))
