"""The fast path of SAC, for box actions and plain MLPs on a CPU: analytic gradients on one or two threads."""

from __future__ import annotations

import torch

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.sac import SAC
from offbeat.fastpath.sac_gradients import SACGradients
from offbeat.fastpath.two_threads import TwoThreadExecutor


class SACFastPath:
    """Implements `algorithms.sac.FastPath`."""

    def __init__(self, algorithm: SAC) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        self._algorithm, config = algorithm, algorithm.config
        self._executor = TwoThreadExecutor(2 if algorithm.threads > 1 else 1)
        self.threads: int = self._executor.threads
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

    @staticmethod
    def applies(algorithm: SAC) -> bool:
        """Whether the fast path supports the policy and the device of an algorithm."""
        spec = algorithm.spec
        return spec.plain and spec.action.kind == "box" and algorithm.device == "cpu"

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        result = self.gradients.critic(minibatch)
        if not self._algorithm.config.prioritized:
            return result
        return result._replace(outputs={"errors": torch.from_numpy(self.gradients.errors())})

    def policy_gradients(self, minibatch: Minibatch) -> LossResult:
        result = self.gradients.policy(minibatch)
        return result._replace(outputs={"entropy": result.metrics["entropy"]})

    def temperature_gradients(self, minibatch: Minibatch) -> LossResult:
        algorithm = self._algorithm
        parameters = algorithm.temperature.parameters
        assert parameters is not None
        gap = float(algorithm.entropy) - float(algorithm.entropy_target(minibatch))
        parameters.gradients[0] = gap
        loss = float(parameters.values[0]) * gap
        return LossResult(loss, {"temperature_loss": loss, "temperature": float(algorithm.temperature())})

    def close(self) -> None:
        self._executor.close()
