"""Models: networks in torch, the same in NumPy for actors, and how both lie in one flat vector.

`spec` describes a policy as plain data; `actor_critic` and `critics` are learned, `numpy_policy` acts.
Read `spec` first, then `policy_network`.
"""
