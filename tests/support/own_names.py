"""A user's module that registers what own_code.py has, as soon as it is imported."""

from __future__ import annotations

from tests.support.own_code import CarefulDQN, Pole, Rows

import offbeat

offbeat.register_algorithm("careful", CarefulDQN, summary="DQN that doubts what it sees")
offbeat.register_env("own/Pole-v0", Pole, max_episode_steps=60)
offbeat.register_encoder("rows", Rows)
