"""Evaluations during training: in a process of their own, beside learning.

`schedule` says when, `evaluators` starts the process and collects results, `plan` describes an evaluation as plain
data.
Read `schedule` first, then `evaluators`.
"""
