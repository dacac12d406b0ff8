"""The replay: each actor writes its rows into its own ring, and the learner samples from all rings together.

Read `rings.py` first, then `base.py` and `transitions.py`. `decisions.py` is for envs with rows without a decision, `sequences.py` for recurrent policies, `priorities.py`
has the uniform and the prioritized sampler.
"""
