"""Envs: adapters that bring Gymnasium, EnvPool and Atari to one contract of rows; checks; envs made for tests.

`contract` says what every adapter promises, `make` makes envs from an id, `check` looks for faults of an env.
Read `contract` first, then `gymnasium`.
"""
