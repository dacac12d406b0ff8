"""The adapter of Gymnasium: any env of its registry, single or vectorized.

`adapter` implements the env contract, `scalar_columns` and `vector_columns` step the envs, `groups` makes them.
`snapshots` saves their state and `progress` passes the training progress to them. `mujoco_columns` and `locomotion`
step MuJoCo's locomotion envs faster, with the same bits. Read `adapter` first, then `columns`.
"""
