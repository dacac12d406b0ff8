"""The replay: each actor writes its rows into its own ring, and the learner samples from all rings together.

Read `rings.py` first, then `base.py` and `transitions.py`. `window.py` says which tickets can be sampled, and
`n_step.py` sums the rewards of n steps. `sequences.py` is for recurrent policies, `decisions.py` for envs with rows
without a decision, `tasks.py` for meta-learning. `priorities.py` has the uniform and the prioritized samplers.
"""
