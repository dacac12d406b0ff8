"""Faster acting and training with the same results: plain MLPs in NumPy, with analytic gradients on a CPU.

`algorithms` and `models` do not import this package: `registrations` registers fast paths for exact classes, and
policies load `acting` if it is installed. The tests compare each fast path with autograd. Without this package
everything works, but slower. Read `mlp` first.
"""
