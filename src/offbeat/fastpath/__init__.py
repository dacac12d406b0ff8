"""Fast paths: plain MLPs in NumPy, for acting and for analytic gradients on a CPU.

`algorithms` and `models` do not import this package directly: `registrations` registers each fast path for one exact
class, and policies act with `mlp` if it exists. Tests compare each fast path with autograd. Without this folder
everything works, only slower. Read `mlp` first.
"""
