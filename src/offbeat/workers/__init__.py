"""Workers: the actor, the learner and the evaluator. None of them knows in which runtime it works.

`link` gives an actor its tickets, `feed` gives a learner its data, `learner` and `replay_learner` make learning steps,
`updates` applies gradients.
Read `link` and `actor` first, then `feed` and `learner`.
"""
