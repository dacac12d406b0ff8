"""Fast paths: analytic gradients of plain MLPs on a CPU, in NumPy or compiled.

`registrations` registers each fast path for one exact algorithm class; `algorithms.fast_paths` imports it by name.
Tests compare each fast path with autograd. Read `models.mlp` first, then `actor_critic`.
"""
