"""A replay: rows of each actor in a ring, sampled as one memory.

Read `rings.py` first, then `store.py`; `sequences.py` is for recurrent policies, `priorities.py` the sum tree.
"""
