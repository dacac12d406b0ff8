"""What the fast paths of SAC, TD3 and CrossQ share: analytic gradients on one or two threads, for plain MLPs on a CPU.

The critics may be normalised.
"""

from __future__ import annotations

from typing import Any

import torch

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.replay_actor_critic import ReplayActorCritic
from offbeat.fastpath.replay_gradients import ReplayGradients
from offbeat.fastpath.two_threads import TwoThreadExecutor


class ReplayActorCriticFastPath:
    """Implements `algorithms.replay_actor_critic.ReplayFastPath`, once a subclass has made the gradients."""

    gradients: ReplayGradients[Any]

    def __init__(self, algorithm: ReplayActorCritic[Any, Any]) -> None:
        """Start the threads for an algorithm for which `applies` is true."""
        self._prioritized: bool = algorithm.config.prioritized
        self._executor = TwoThreadExecutor(2 if algorithm.threads > 1 else 1)
        self.threads: int = self._executor.threads

    @staticmethod
    def applies(algorithm: ReplayActorCritic[Any, Any]) -> bool:
        """Whether the fast path supports the policy and the device of an algorithm."""
        spec = algorithm.spec
        return spec.plain and spec.action.kind == "box" and algorithm.device == "cpu"

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        result = self.gradients.critic(minibatch)
        if not self._prioritized:
            return result
        return result._replace(outputs={"errors": torch.from_numpy(self.gradients.errors())})

    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        return self.gradients.policy(minibatch)

    def close(self) -> None:
        self._executor.close()
