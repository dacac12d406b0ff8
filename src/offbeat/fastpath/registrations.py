"""Registers the fast paths of algorithms.

This is a separate module because it imports torch, while actors import `mlp` without torch.
"""

from offbeat.algorithms.a2c import A2C
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.fast_paths import register
from offbeat.algorithms.impala import IMPALA
from offbeat.algorithms.ppo import PPO
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3
from offbeat.fastpath.actor_critic import ActorCriticFastPath
from offbeat.fastpath.crossq import CrossQFastPath
from offbeat.fastpath.ppo import PPOFastPath
from offbeat.fastpath.sac import SACFastPath
from offbeat.fastpath.td3 import TD3FastPath

register(A2C, ActorCriticFastPath, applies=ActorCriticFastPath.applies)
register(CrossQ, CrossQFastPath, applies=CrossQFastPath.applies)
register(IMPALA, ActorCriticFastPath, applies=ActorCriticFastPath.applies)
register(PPO, PPOFastPath, applies=PPOFastPath.applies)
register(SAC, SACFastPath, applies=SACFastPath.applies)
register(TD3, TD3FastPath, applies=TD3FastPath.applies)
