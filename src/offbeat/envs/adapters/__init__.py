"""Adapters: for each library of envs a folder or a module, which implements the contract in `envs/contract.py`.

A new library needs one of these here and one line in the table `ADAPTERS` in `config/env.py`. Read `gymnasium/` first.
`grouped` is what the vector envs of EnvPool and of Atari share. `unity` is no adapter: it makes worlds of PettingZoo's
API from Unity's builds, for envs of your own (docs/how-to/unity.md).
"""
