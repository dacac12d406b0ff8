"""One file for each library of envs: each adapter turns its envs into the rows of `envs/contract.py`.

Read `gymnasium.py` first.
"""
