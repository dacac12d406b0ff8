"""The algorithms: networks, losses and updates of PPO, A2C, IMPALA, SAC, CrossQ, TD3, DQN and PEARL, not the runtime.

`base.Algorithm` is the contract, `on_policy` (PPO, A2C, IMPALA) and `off_policy` (all others) have the base classes;
`replay_actor_critic` has what SAC, CrossQ and TD3 share. Read `base` first, then `dqn`, which has all of it in one
file. Faster gradients for plain MLPs are in `offbeat.fastpath`.
"""
