"""What EnvPool is asked for, which can be said without it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from offbeat.env_config import EnvConfig
from offbeat.envs.envpool import _arguments
from offbeat.errors import ConfigError

GAME = SimpleNamespace(use_fire_reset=True, frame_skip=4)


def test_settings_of_games_get_the_names_that_envpool_has_for_them() -> None:
    settings = EnvConfig(fire_reset=False, episodic_life=True, noop_max=5, max_frames=400)
    assert _arguments("envpool:Pong-v5", GAME, settings) == {
        "stack_num": 1,
        "use_fire_reset": False,
        "episodic_life": True,
        "noop_max": 5,
        "max_episode_steps": 100,
    }
    assert _arguments("envpool:Ant-v4", SimpleNamespace(), EnvConfig(reward_scale=2)) == {}


def test_what_means_nothing_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="frame_skip is 2, which means nothing to envpool:Ant-v4"):
        _arguments("envpool:Ant-v4", SimpleNamespace(), EnvConfig(frame_skip=2))
    with pytest.raises(ConfigError, match="type --set noop_max=1"):
        _arguments("envpool:Pong-v5", GAME, EnvConfig(noop_max=0))
