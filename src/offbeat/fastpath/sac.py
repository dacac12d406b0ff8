"""The fast path of SAC, for box actions and plain MLPs on a CPU: analytic gradients on one or two threads."""

from __future__ import annotations

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.sac import SAC
from offbeat.fastpath.replay_actor_critic import ReplayActorCriticFastPath
from offbeat.fastpath.sac_gradients import SACGradients


class SACFastPath(ReplayActorCriticFastPath):
    """Implements `algorithms.sac.FastPath`."""

    def __init__(self, algorithm: SAC) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        super().__init__(algorithm)
        self._algorithm, config = algorithm, algorithm.config
        self.gradients = SACGradients(
            algorithm.spec,
            algorithm.policy,
            algorithm.critics,
            algorithm.ema_critics,
            temperature=lambda: float(algorithm.temperature()),
            executor=self._executor,
            weighted=config.prioritized,
            sample_ahead=config.policy_delay == 1,
        )

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
