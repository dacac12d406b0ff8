"""Registers offbeat's own envs with Gymnasium when it is imported.

    gymnasium.make("offbeat.envs.own:offbeat/Recall-v0")

Gymnasium has no plugins: an env is known after the module that registers it was imported. Commands and functions of
offbeat need no such import for the ids that start with 'offbeat/'.
"""

from __future__ import annotations

from offbeat.envs.registration import register_own_envs

register_own_envs()
