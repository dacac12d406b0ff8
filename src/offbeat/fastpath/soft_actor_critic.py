"""What the fast paths of SAC and CrossQ share."""

from __future__ import annotations

from typing import Any

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.soft_actor_critic import SoftActorCritic
from offbeat.fastpath.replay_actor_critic import ReplayActorCriticFastPath
from offbeat.fastpath.sac_gradients import SoftGradients


class SoftFastPath(ReplayActorCriticFastPath):
    """Implements `algorithms.soft_actor_critic.SoftFastPath`, once a subclass has made the gradients."""

    gradients: SoftGradients

    def __init__(self, algorithm: SoftActorCritic[Any]) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        super().__init__(algorithm)
        self._algorithm = algorithm

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of `SoftGradients`."""
        algorithm, config = self._algorithm, self._algorithm.config
        return {
            "temperature": lambda: float(algorithm.temperature()),
            "executor": self._executor,
            "weighted": config.prioritized,
            "sample_ahead": config.policy_delay == 1,
        }

    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        result = super().policy_gradients(minibatch)
        return result._replace(outputs={"entropy": result.metrics["entropy"]})

    def temperature_gradients(self, minibatch: Minibatch) -> LossResult:
        algorithm = self._algorithm
        parameters = algorithm.temperature.parameters
        assert parameters is not None
        gap = float(algorithm.entropy) - float(algorithm.entropy_target(minibatch))
        parameters.gradients[0] = gap
        loss = float(parameters.values[0]) * gap
        return LossResult(loss, {"temperature_loss": loss, "temperature": float(algorithm.temperature())})
