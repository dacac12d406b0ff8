"""Adapters: one module per library of envs. Each one implements the contract in `envs/contract.py`.

A new library needs one module here and one line in the table `ADAPTERS` in `config/env.py`. Read `gymnasium/` first.
"""
