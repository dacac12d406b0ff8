"""The parts of SAC that differ between box actions and choices: noise, values, targets and the policy's loss."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.replay_actor_critic import Networks
from offbeat.losses import sac as losses
from offbeat.models.critics import Critics
from offbeat.models.distributions import TanhGaussian, masked


class Heads(Protocol):
    """The parts of SAC that differ between box actions and choices."""

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        """Return the random numbers that are needed to sample the actions of an update, name -> [M, ...]."""
        ...

    def values(self, minibatch: Minibatch) -> Tensor:
        """Return the critics' values of the recorded actions, [E, M]."""
        ...

    def targets(self, minibatch: Minibatch, critics: Critics, temperature: Tensor) -> Tensor:
        """Return targets, [M], without gradients, from the values of the next states by `critics`."""
        ...

    def policy_loss(self, minibatch: Minibatch, temperature: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's loss, [M], and its entropy, [M]: exact, or estimated from the sampled action."""
        ...


def sampled_actions(networks: Networks, minibatch: Minibatch, name: str, noise: str) -> tuple[Tensor, Tensor]:
    """Return box actions that are sampled from the policy, [M, action_size], and their log-probability, [M].

    Args:
        networks: the networks.
        minibatch: as `minibatch` returns it.
        name: 'observation' or 'next_observation'.
        noise: 'noise' or 'next_noise'.
    """
    return TanhGaussian(networks.distribution_parameters(minibatch, name)).sample(minibatch[noise])


class BoxHeads:
    """For box actions: one action is sampled in each state, and is an input of the critics."""

    def __init__(self, networks: Networks, action_size: int) -> None:
        self._networks, self._action_size = networks, action_size

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        shape = (2, rows, self._action_size)
        noise, next_noise = random.standard_normal(shape, dtype=np.float32)
        return {"noise": torch.from_numpy(noise), "next_noise": torch.from_numpy(next_noise)}

    def values(self, minibatch: Minibatch) -> Tensor:
        networks = self._networks
        return networks.values(networks.critic_network, minibatch, "observation", minibatch["action"])

    @torch.no_grad()
    def targets(self, minibatch: Minibatch, critics: Critics, temperature: Tensor) -> Tensor:
        networks = self._networks
        action, log_prob = sampled_actions(networks, minibatch, "next_observation", "next_noise")
        next_values = networks.values(critics, minibatch, "next_observation", action)
        return losses.soft_targets(minibatch["reward"], minibatch["discount"], next_values, log_prob, temperature)

    def policy_loss(self, minibatch: Minibatch, temperature: Tensor) -> tuple[Tensor, Tensor]:
        networks = self._networks
        action, log_prob = sampled_actions(networks, minibatch, "observation", "noise")
        values = networks.values(networks.frozen_critics, minibatch, "observation", action)
        return losses.policy_loss(log_prob, values, temperature), -log_prob.detach()


class ChoiceHeads:
    """For choices: the expectation over all choices, so no action is sampled."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        return {}

    def values(self, minibatch: Minibatch) -> Tensor:
        values = self._networks.values(self._networks.critic_network, minibatch, "observation")
        chosen = minibatch["action"][:, None].expand(*values.shape[:2], 1)
        return values.gather(2, chosen).squeeze(2)

    @torch.no_grad()
    def targets(self, minibatch: Minibatch, critics: Critics, temperature: Tensor) -> Tensor:
        log_probs = self._log_probs(minibatch, "next_observation", "next_mask")
        next_values = self._networks.values(critics, minibatch, "next_observation")
        return losses.discrete_soft_targets(
            minibatch["reward"], minibatch["discount"], next_values, log_probs, temperature
        )

    def policy_loss(self, minibatch: Minibatch, temperature: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._log_probs(minibatch, "observation", "mask")
        with torch.no_grad():
            values = self._networks.values(self._networks.frozen_critics, minibatch, "observation")
            entropy = losses.entropy_of(log_probs)
        return losses.discrete_policy_loss(log_probs, values, temperature), entropy

    def _log_probs(self, minibatch: Minibatch, name: str, mask: str) -> Tensor:
        logits = self._networks.distribution_parameters(minibatch, name)
        if self._networks.policy_network.spec.mask:
            logits = masked(logits, minibatch[mask])
        return functional.log_softmax(logits, dim=1)
