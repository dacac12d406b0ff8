"""A replay: the rows of each actor are in a ring, and all rings are sampled together.

Read `rings.py` first, then `base.py` and `transitions.py`. `sequences.py` is for recurrent policies, `priorities.py`
has uniform and prioritized samplers.
"""
