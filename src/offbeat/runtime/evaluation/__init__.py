"""Evaluations during training, in a separate process while learning continues.

`schedule` decides when to evaluate, `evaluators` starts the process and collects results, `plan` describes an
evaluation as plain data. `evaluated_env` tests the env of evaluations before a run.
Read `schedule` first, then `evaluators`.
"""
