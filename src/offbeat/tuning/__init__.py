"""Measures what acting and learning cost on this machine, and chooses the number of actors.

Read `costs.py` first; `auto_layout.py` and `bench.py` use it, and the speed model in `metrics`. `run_speed.py` measures
a whole run, and `layouts.py` compares runs.
"""
