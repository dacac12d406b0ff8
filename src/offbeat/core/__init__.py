"""What everything else stands on, and what imports nothing else of offbeat: records, errors, random streams, the pace.

Read `types.py` first (env, action and field specs, the policy), then `pace.py`, the idea of the library.
"""
