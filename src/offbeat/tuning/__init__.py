"""What acting and learning cost on this machine, and the topology that suits it.

Read `costs.py` first; `auto_layout.py` and `bench.py` use it, and the speed model in `metrics`.
"""
