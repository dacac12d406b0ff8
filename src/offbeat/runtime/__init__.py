"""Runtimes: run actors and a learner in one thread, in threads or in processes, or run lock-free workers.

`plan` describes actors as plain data, `assembly` builds the parts of a run, `gate` enforces the pace, `paced` has the
training loop with one learner. `hogwild/` is the lock-free runtime, `evaluation/` evaluates during training.
Read `serial` first, then `plan`, `gate` and `paced`.
"""
