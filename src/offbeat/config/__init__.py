"""The settings of a run, read from TOML and written to it, and the registries of names.

Read `config.py` first, then the tables: `run_config.py`, `env.py`, `runtime_config.py`, and `settings.py`, the base
class of every algorithm's settings. `resolve.py` builds a config; `presets/` has the tuned settings.
"""
