"""The files of a run: its directory, its checkpoints, and what it was made with.

Read `directory.py` first, then `checkpoint.py`.
"""
