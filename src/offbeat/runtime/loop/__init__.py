"""The training loop: what every run does around learning, in every runtime.

`training_loop` counts, evaluates, saves and ends a run; `paced` is the loop of a run with one learner, and
`paced_workforce` those who act and learn in it. The lock-free loop is `hogwild/loop`. Read `training_loop` first.
"""
