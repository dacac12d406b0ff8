"""The actor, the learner and the evaluator. They are the same in every runtime.

`link` gives an actor its tickets, `feed` gives a learner its data, `learner` and `replay_learner` make learning steps,
`updates` and `stages` apply gradients.
Read `link` and `actor` first, then `feed` and `learner`.
"""
