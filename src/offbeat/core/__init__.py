"""The base of all other packages: specs, errors, random streams, the pace. It imports nothing else of offbeat.

Read `types.py` first (specs of envs, actions and fields; the policy), then `pace.py`, the main idea of the library.
"""
