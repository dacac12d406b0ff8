"""The fast path of CrossQ, for plain MLPs on a CPU: analytic gradients on one or two threads."""

from __future__ import annotations

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.crossq import MOMENTS, CrossQ
from offbeat.fastpath.crossq_gradients import CrossQGradients
from offbeat.fastpath.soft_actor_critic import SoftFastPath


class CrossQFastPath(SoftFastPath):
    """Implements `algorithms.soft_actor_critic.SoftFastPath`."""

    gradients: CrossQGradients

    def __init__(self, algorithm: CrossQ) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        super().__init__(algorithm)
        parts = algorithm.spec, algorithm.policy, algorithm.critics, algorithm.moments
        self.gradients = CrossQGradients(*parts, **self.settings())

    def critic_gradients(self, minibatch: Minibatch) -> LossResult:
        result, moments = super().critic_gradients(minibatch), self.gradients.batch_moments()
        loss = result.loss + 0 * float(moments.sum())  # as in `CrossQ.critic_loss`
        return result._replace(loss=loss, outputs={**result.outputs, MOMENTS: moments})
