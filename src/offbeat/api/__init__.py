"""The functions that Python users and the command line call: train, resume, load, evaluate, watch, share.

Read `train.py` and `resume.py` first, then `run.py`, which runs a prepared run to its end: `run_context.py` says what
is prepared, and `run_loop.py` makes the training loop from it.
"""
