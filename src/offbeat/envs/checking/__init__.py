"""`offbeat check`, and the steps in an env before each run: they find the faults of an env.

`check` checks an env with one agent, `world` one with several, both with `parts`. `tasks`, `snapshots` and
`values` each check one promise of an env. `rollouts` steps envs as an actor does, for the checks and for `preflight`,
which tests an env before a run; `evaluated_env` tests that of evaluations. Read `check` first.
"""
