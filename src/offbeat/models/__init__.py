"""Models: networks in torch, policies that act with them, and how both lie in one flat vector.

`spec` describes a policy as plain data. `actor_critic` and `critics` are trained, `acting` has the policies that act,
`actions` converts network outputs to actions. The NumPy network is in `offbeat.fastpath`.
Read `spec` first, then `policy_network`.
"""
