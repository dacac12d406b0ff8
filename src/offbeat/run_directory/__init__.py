"""The files of a run: its directory, its checkpoints, and the versions of packages and code it was made with.

Read `directory.py` first, then `checkpoint.py`. `lock.py`, `presence.py` and `links.py` protect a run from other
processes, from the loss of its directory, and from links to other files.
"""
