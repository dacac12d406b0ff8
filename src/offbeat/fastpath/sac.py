"""The fast path of SAC, for box actions and plain MLPs on a CPU: analytic gradients on one or two threads."""

from __future__ import annotations

from offbeat.algorithms.sac import SAC
from offbeat.fastpath.sac_gradients import SACGradients
from offbeat.fastpath.soft_actor_critic import SoftFastPath


class SACFastPath(SoftFastPath):
    """Implements `algorithms.soft_actor_critic.SoftFastPath`."""

    def __init__(self, algorithm: SAC) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        super().__init__(algorithm)
        parts = algorithm.spec, algorithm.policy, algorithm.critics, algorithm.ema_critics
        self.gradients = SACGradients(*parts, **self.settings())
