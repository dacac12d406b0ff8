"""Fast paths: plain MLPs in NumPy, for acting and for analytic gradients on a CPU.

Without this folder everything works, only slower: other packages import its modules by name, if they exist.
`registrations` registers each fast path for one exact algorithm class, and policies act with `mlp`. Tests compare each
fast path with autograd. Read `mlp` first.
"""
