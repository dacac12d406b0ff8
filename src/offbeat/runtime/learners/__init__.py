"""Several learners that compute the shards of each update together, one process per device.

The learner of rank 0 is in the process of the training loop, the others are child processes. All of them make the same
learning steps with the same data; each computes the gradients of its own shards.

Read `processes.py` first, then `learner_process.py`, `board.py` and `shared_memory.py`.
"""
