"""The settings of a run, from and to TOML, and the names that users may type.

Read `config.py` first, then the tables: `run_config.py`, `env.py`, `runtime_config.py`, and `settings.py`, the base of
the settings of all algorithms. `runtimes.py` has an entry for each runtime, `registry.py` finds algorithms and encoders
by name, and `importing.py` imports the code that a caller names. `resolve.py` makes a config, `config_file.py` reads
one from a file, and `presets/` has the tuned settings.
"""
