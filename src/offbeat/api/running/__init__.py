"""A run from its settings to its end.

`prepare` makes its parts, `run_context` says what a run has that is ready to start, and `run` runs it to its end with
the training loop of `run_loop`. `initial` gives it the weights of other runs, `resume_checks`, `resume_changes` and
`continuation` continue it from a checkpoint. Read `run_context` first, then `run`.
"""
