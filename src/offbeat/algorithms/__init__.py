"""The algorithms: how to learn from a batch. They do not depend on actors, memory or processes.

`on_policy` (PPO, A2C, IMPALA) and `off_policy` (SAC, DQN) are base classes; `base.Algorithm` is the contract.
Read `dqn` first: it is the shortest algorithm. Faster gradients for plain MLPs are in `offbeat.fastpath`.
"""
