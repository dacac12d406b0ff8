"""The fast path of TD3, for plain MLPs on a CPU: analytic gradients on one or two threads."""

from __future__ import annotations

from offbeat.algorithms.td3 import TD3
from offbeat.fastpath.replay_actor_critic import ReplayActorCriticFastPath
from offbeat.fastpath.td3_gradients import Smoothing, TD3Gradients


class TD3FastPath(ReplayActorCriticFastPath):
    """Implements `algorithms.replay_actor_critic.ReplayFastPath`."""

    def __init__(self, algorithm: TD3) -> None:
        """Read and write the parameters of an algorithm for which `applies` is true."""
        super().__init__(algorithm)
        config = algorithm.config
        self.gradients = TD3Gradients(
            algorithm.spec,
            algorithm.policy,
            algorithm.critics,
            algorithm.ema_critics,
            ema_policy=algorithm.ema_policy,
            smoothing=Smoothing(config.target_policy_noise, config.target_noise_clip),
            executor=self._executor,
            weighted=config.prioritized,
        )
