"""Runtimes: who acts and learns where, in serial, threads, processes or lock-free, and what surrounds it.

`wiring` builds the parts of a run, `acting` and `gate` let actors follow the pace, `training_loop` does the rest.
Read `serial` first, then `gate` and `paced`; `worker_pool` and `hogwild` are for lock-free runs.
"""
