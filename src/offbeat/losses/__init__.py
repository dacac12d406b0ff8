"""Losses, advantages and targets: pure functions of tensors, each with its source.

`advantages` has GAE and V-trace over rows in NEXT_STEP order. The other modules are per algorithm.
Read `advantages` first.
"""
