"""The base of all other packages: specs, errors, random streams, the pace. It imports no other package of offbeat.

Read `types.py` first (specs of envs, actions and fields; the policy), then `pace.py`, the main idea of the library.
All errors (`errors.py`) are written with flags; `argument_notation.py` shows these as arguments to callers in Python.
"""
