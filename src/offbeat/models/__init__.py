"""Models: networks in torch, policies that act with them, and their parameters in one flat vector.

`spec` describes a policy as plain data; `actor_critic` and `critics` are trained, `acting` selects actions, `actions`
converts actions for the env, `collective` gathers what several learners compute, `mlp` is the network in NumPy. Read
`spec` first, then `policy_network`.
"""
