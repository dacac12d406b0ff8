"""What a run is made of: its settings, in TOML and out, and the names that users may type.

Read `tables.py` first, then `resolve.py`, which puts a config together. `presets/` has the tuned settings.
"""
