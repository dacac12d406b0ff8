"""The adapter of Gymnasium: any env of its registry, single or vectorized, and Atari's games.

`adapter` implements the env contract, `scalar_columns` and `vector_columns` step the envs, `groups` makes them.
`snapshots` saves their state, `tasks` sets their tasks, `mask_method` reads masks of a method, and `action_repeat`
repeats actions. `mujoco_columns` and `locomotion` step MuJoCo's locomotion envs faster, with the same bits. `ale` steps
Atari's games with the vector env of ale-py. Read `adapter` first, then `columns`.
"""
