"""Envs with tasks, for meta-learning: the point robots of PEARL, and MuJoCo robots with goals.

`point_robot` needs only NumPy: read it first, as an example of an env with tasks. `locomotion` changes the rewards of
Gymnasium's MuJoCo envs. `envs/own.py` registers them all.
"""
