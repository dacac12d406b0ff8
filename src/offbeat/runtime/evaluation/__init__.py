"""Evaluations during training, in a separate process while learning continues.

`schedule` decides when to evaluate, `evaluators` starts the process and collects results, `plan` describes an
evaluation as plain data. Read `schedule` first, then `evaluators`.
"""
