"""The files of a run: its directory, its checkpoints, and the versions of packages and code it was made with.

Read `directory.py` first, then `checkpoint.py`.
"""
