"""What a run is made of: its settings, in TOML and out, and the names that users may type.

Read `config.py` first, then the tables: `run_config.py`, `env.py`, `runtime_config.py`, and `settings.py`, the base of
every algorithm's. `resolve.py` puts a config together; `presets/` has the tuned settings.
"""
