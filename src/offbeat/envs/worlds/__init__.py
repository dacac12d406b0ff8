"""Worlds: envs with several agents, whose columns belong to one or several policies.

`contract` defines what the adapters provide, `make` makes worlds from an id, and `worlds` steps those of one actor.
`state` knows which agents of a world are alive, and `rows` are the rows of one policy. Read `contract` first.
"""
