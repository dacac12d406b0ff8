"""Everything that only makes acting and training faster: plain MLPs in NumPy, with analytic gradients on a CPU.

`algorithms` and `models` import nothing of it: `registrations` registers fast paths for exact classes, and policies act
with `acting` where it is there. The tests compare each fast path with autograd. Without this folder everything works,
slower. Read `mlp` first.
"""
