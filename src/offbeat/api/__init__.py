"""What users call from Python and what the command line calls: train, resume, load, evaluate, watch, share.

Read `train.py` first, then `run.py`, which runs what has been prepared to its end.
"""
