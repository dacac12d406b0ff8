"""The probabilities of a loaded policy's actions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from offbeat.core.types import F32, F64, Array
from offbeat.models.acting import ActingPolicy
from offbeat.models.spec import LOG_STD_RANGE


@dataclass(frozen=True)
class PolicyDistribution:
    """How a policy samples actions: its choices and its continuous numbers are independent of each other.

    For a batch of N observations each array has N as its first axis.
    """

    probabilities: F64
    """[choices], the probability of each choice. With several components, those of each component one after the other,
    in the order of an action mask. Empty without choices."""
    mean: Array
    """The means of the numbers: [*shape] of a Box, or [numbers] of all boxes of a Dict or Tuple. Empty without them."""
    std: Array
    """The standard deviations of the numbers, of the same shape."""
    is_before_tanh: bool
    """False, with PPO, A2C and IMPALA: mean and std are in the env's units, and the numbers are clipped to its bounds.
    True, with SAC, CrossQ, PEARL and action_distribution=squashed: mean and std are those of u, and the env gets
    low + (tanh(u) + 1) / 2 * (high - low)."""

    def of_one(self) -> PolicyDistribution:
        """Return the distribution of the first observation, without the first axis."""
        return replace(self, probabilities=self.probabilities[0], mean=self.mean[0], std=self.std[0])


def distribution_of(policy: ActingPolicy, parameters: F32) -> PolicyDistribution:
    """Return the distribution for N observations with these parameters, [N, outputs]: see `ActingPolicy.parameters`."""
    spec, to_env = policy.spec, policy.to_env
    components = np.split(parameters[:, : spec.logits].astype(np.float64), np.cumsum(spec.action.nvec)[:-1], axis=1)
    probabilities = np.concatenate([_softmax(logits) for logits in components], axis=1)
    mean, log_std = np.split(parameters[:, spec.logits :], [spec.box_size], axis=1)
    log_std = log_std.clip(*LOG_STD_RANGE) if policy.log_std is None else np.broadcast_to(policy.log_std, mean.shape)
    shape = (len(mean), *spec.action.shape) if spec.action.kind == "box" else mean.shape
    mean, std = mean.reshape(shape), np.exp(log_std).reshape(shape)
    if spec.distribution == "gaussian":
        in_env = mean * to_env.half_width + to_env.center, std * to_env.half_width
        return PolicyDistribution(probabilities, *in_env, is_before_tanh=False)
    return PolicyDistribution(probabilities, mean.copy(), std, is_before_tanh=spec.distribution != "categorical")


def _softmax(logits: F64) -> F64:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    probabilities: F64 = weights / weights.sum(axis=1, keepdims=True)
    return probabilities
