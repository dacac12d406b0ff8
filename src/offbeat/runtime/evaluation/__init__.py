"""Evaluations during training: when, by whom, and what with.

Read `schedule.py` first, then `evaluators.py`.
"""
