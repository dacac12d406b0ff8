"""Runtimes: run actors and learner in one thread, in threads, in processes, or as lock-free workers.

`plan` describes actors as plain data, `assembly` builds the parts of a run, `gate` enforces the pace, `paced` has the
training loop with one learner, `hogwild/` the lock-free runtime, `evaluation/` evaluations during training.
Read `serial` first, then `plan`, `gate` and `paced`.
"""
