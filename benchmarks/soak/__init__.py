"""A soak: hundreds of short runs with random settings, each with at most one mishap, and what must hold after it.

Read `choices` (what there is), `draw` and `plan` (what one run is), `mishaps` (what happens to it) and `checks` (what
must hold) first; `bits` compares exact runs with serial. `one_run` joins them, `populations` is the same for a
population, `__main__` does all runs. `report` is what came of one run, `results` writes what came of all. `envs` and
`worlds` have envs that misbehave.
"""
