"""The lock-free runtime (Hogwild): worker processes that act and learn in turns on shared parameters.

Read `shared_state.py` and `board.py` first, then `worker_process.py`, `worker_pool.py` and `loop.py`.
"""
