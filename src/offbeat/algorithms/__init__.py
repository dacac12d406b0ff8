"""The algorithms: what is learned from a batch, and how; they know nothing of actors, memory or processes.

`on_policy` (PPO, A2C, IMPALA) and `off_policy` (SAC, DQN) share much; `base.Algorithm` is the contract.
Read `dqn` first: it is the shortest whole one. What only makes plain MLPs faster is in `offbeat.fastpath`.
"""
