"""Workers: the actor, the learner and the evaluator; each does its work and knows nothing of where it runs.

`actor` acts tickets, `learner` and `replay_learner` take learning steps, `updates` applies gradients.
Read `actor` first, then `learner`.
"""
