"""A soak: hundreds of short runs with random settings, each with at most one mishap, and what must hold after it.

Read `plan` (what is drawn), `mishaps` (what happens to a run) and `checks` (what must hold) first. `one_run` joins
them, `__main__` does all runs, `results` writes what came of them. `envs` are the envs that misbehave.
"""
