"""The algorithms: networks, losses and updates of PPO, IMPALA, A2C, SAC, TD3 and DQN, not actors, memory, processes.

`base.Algorithm` is the contract, `on_policy` (PPO, A2C, IMPALA) and `off_policy` (SAC, TD3, DQN) have the base classes;
`replay_actor_critic` has what SAC and TD3 share. Read `base` first, then `dqn`, which is the shortest. Faster gradients
for plain MLPs are in `offbeat.fastpath`.
"""
