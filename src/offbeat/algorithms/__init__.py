"""The algorithms: networks, losses and updates of PPO, IMPALA, A2C, SAC and DQN, without actors, memory or processes.

`base.Algorithm` is the contract, `on_policy` (PPO, A2C, IMPALA) and `off_policy` (SAC, DQN) have the base classes.
Read `base` first, then `dqn`, which is the shortest. Faster gradients for plain MLPs are in `offbeat.fastpath`.
"""
