"""Registers the fast paths of algorithms."""

from collections.abc import Callable
from typing import Any

from offbeat.algorithms.a2c import A2C
from offbeat.algorithms.batch_network import OnPolicyFastPath
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.fast_paths import register
from offbeat.algorithms.impala import IMPALA
from offbeat.algorithms.on_policy import OnPolicy
from offbeat.algorithms.ppo import PPO
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3
from offbeat.fastpath.actor_critic import ActorCriticFastPath
from offbeat.fastpath.crossq_gradients import CrossQGradients
from offbeat.fastpath.ppo import PPOFastPath
from offbeat.fastpath.sac_gradients import SACGradients
from offbeat.fastpath.td3_gradients import TD3Gradients


def _actor_critic(fast_path: type[ActorCriticFastPath[Any]]) -> Callable[[OnPolicy[Any]], OnPolicyFastPath]:
    """Return the function that makes a fast path for an algorithm: compiled, or this one, in NumPy."""

    def make(algorithm: OnPolicy[Any]) -> OnPolicyFastPath:
        if algorithm.config.kernels == "numpy":
            return fast_path(algorithm)
        from offbeat.fastpath.compiled_actor_critic import CompiledFastPath  # here: Numba is optional

        return CompiledFastPath(algorithm)

    return make


register(A2C, _actor_critic(ActorCriticFastPath), applies=ActorCriticFastPath.applies)
register(CrossQ, CrossQGradients, applies=CrossQGradients.applies)
register(IMPALA, _actor_critic(ActorCriticFastPath), applies=ActorCriticFastPath.applies)
register(PPO, _actor_critic(PPOFastPath), applies=PPOFastPath.applies)
register(SAC, SACGradients, applies=SACGradients.applies)
register(TD3, TD3Gradients, applies=TD3Gradients.applies)
