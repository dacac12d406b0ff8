"""Envs whose best returns are known exactly, for tests and examples.

Read `known_values.py` first, then `correct_action.py`, which `recall.py`, `bandit.py` and `pixels.py` extend.
`worlds.py`, `games.py` and `smuggling.py` have envs with several agents.
"""
