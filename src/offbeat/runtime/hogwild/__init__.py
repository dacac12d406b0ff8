"""The lock-free runtime: workers that act and learn in turns, on parameters that all of them share.

Read `shared_state.py` first, then `worker_process.py`, `worker_pool.py` and `loop.py`.
"""
