"""`offbeat check`, and the steps in an env before each run: they find the faults of an env.

`check` checks an env with one agent, `world` one with several, both with `parts`. `rows`, `tasks`, `snapshots` and
`values` each check one promise of an env. `preflight` tests an env before a run, `evaluated_env` that of evaluations.
Read `check` first.
"""
