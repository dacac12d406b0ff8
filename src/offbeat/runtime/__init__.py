"""Runtimes: run actors and a learner in one thread, in threads or in processes, or run lock-free workers.

Read `runtimes` first (what a runtime is), then `assembly` (the parts of a run), `serial`, then `gate` and `links`, then
`training_loop`, `paced` and `paced_workforce` in `loop/`. `children/` starts and supervises processes, `hogwild/` is
the lock-free runtime, `evaluation/` evaluates during training.
"""
