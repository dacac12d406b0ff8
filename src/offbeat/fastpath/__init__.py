"""Everything that only makes training faster: analytic gradients in NumPy for plain MLPs on a CPU.

`algorithms` never imports this package: it finds here what is registered below, for exact classes. The tests hold each
fast path to autograd. Without this folder everything works, slower. Read `actor_critic` first.
"""

from offbeat.algorithms.a2c import A2C
from offbeat.algorithms.fast_paths import register
from offbeat.algorithms.impala import IMPALA
from offbeat.algorithms.ppo import PPO
from offbeat.fastpath.actor_critic import ActorCriticFastPath
from offbeat.fastpath.ppo import PPOFastPath

register(A2C, ActorCriticFastPath, applies=ActorCriticFastPath.applies)
register(IMPALA, ActorCriticFastPath, applies=ActorCriticFastPath.applies)
register(PPO, PPOFastPath, applies=PPOFastPath.applies)
