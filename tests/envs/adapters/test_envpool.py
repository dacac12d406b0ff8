"""What EnvPool is asked for, which can be said without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.importable import is_importable
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.envs.adapters import envpool
from offbeat.envs.adapters.envpool import Pool, _arguments, _own_limit
from offbeat.envs.contract import NO_LIMITS, Limits
from offbeat.envs.make import make_envs
from offbeat.envs.rows import empty_rows

GAME = SimpleNamespace(use_fire_reset=True, frame_skip=4)


def test_atari_settings_are_translated_to_envpools_names() -> None:
    settings = EnvConfig(fire_reset=False, episodic_life=True, noop_max=5, max_frames=400)
    assert _arguments("envpool:Pong-v5", GAME, settings) == {
        "stack_num": 1,
        "use_fire_reset": False,
        "episodic_life": True,
        "noop_max": 5,
        "max_episode_steps": 100,
    }
    assert _arguments("envpool:Ant-v4", SimpleNamespace(), EnvConfig(reward_scale=2)) == {}


@pytest.mark.parametrize(("frames", "steps"), [(3, 1), (4, 1), (5, 2)])
def test_the_step_that_reaches_max_frames_is_the_last_one(frames: int, steps: int) -> None:
    assert _arguments("envpool:Pong-v5", GAME, EnvConfig(max_frames=frames))["max_episode_steps"] == steps


def test_envpool_refuses_settings_that_its_env_does_not_support() -> None:
    with pytest.raises(ConfigError, match="noop_max is 2, which is not supported by envpool:Ant-v4"):
        _arguments("envpool:Ant-v4", SimpleNamespace(), EnvConfig(noop_max=2))
    with pytest.raises(ConfigError, match="pass --set noop_max=1"):
        _arguments("envpool:Pong-v5", GAME, EnvConfig(noop_max=0))


UNLIMITED = 2**31 - 1


def test_a_pool_without_a_limit_refuses_max_episode_steps_and_is_not_cut_by_an_evaluation() -> None:
    with pytest.raises(ConfigError, match="max_episode_steps is 7, which is not supported by EnvPool's CliffW"):
        _own_limit("envpool:CliffWalking-v1", UNLIMITED, Limits(run=7))
    assert _own_limit("envpool:CliffWalking-v1", UNLIMITED, Limits(evaluation=7)) == (None, NO_LIMITS)
    assert _own_limit("envpool:Ant-v4", 1000, Limits(run=7)) == (1000, Limits(run=7))
    assert _own_limit("envpool:BabyAI-Unlock-v0", 0, Limits(run=7)) == (None, Limits(run=7)), "each level has its own"


class EndlessPool:
    """A stand-in for a pool that does not know the limit that it was given: it only counts."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    elapsed = 0

    def recv(self) -> tuple[object, ...]:
        self.elapsed += 1
        flags = np.zeros(2, np.bool_)
        elapsed = np.full(2, self.elapsed, np.int32)
        return np.zeros((2, 1), np.float32), np.zeros(2, np.float32), flags, flags, {"elapsed_step": elapsed}


def test_a_pool_that_exceeds_its_episode_limit_fails() -> None:
    leaf = Leaf("observation", (1,), "float32")
    spec = EnvSpec("envpool:Highway-v0", (leaf,), ActionSpec("discrete", (), nvec=(2,)), 2)
    pool = Pool(spec, EndlessPool(), empty_rows([leaf], 2), 0, limit=3)
    pool.recv(), pool.recv()
    with pytest.raises(EnvFailed, match="env 0: max_episode_steps is 3, which is not supported"):
        pool.recv()


def test_pools_that_are_refused_after_they_were_made_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    text = gym.spaces.Text(5)
    pool = SimpleNamespace(observation_space=text, action_space=gym.spaces.Discrete(2), close=lambda: closed.append(""))
    library = SimpleNamespace(
        list_all_envs=lambda: ["Text-v0"],
        make_spec=lambda _name: SimpleNamespace(config=SimpleNamespace(max_episode_steps=10)),
        make_gymnasium=lambda *_, **__: pool,
    )
    monkeypatch.setattr(envpool, "_envpool", lambda: library)
    monkeypatch.setattr(envpool, "is_importable", lambda _name: True)
    with pytest.raises(ConfigError, match="Text"):
        make_envs("envpool:Text-v0", 4, seed=0, groups=2)
    assert len(closed) == 2


@pytest.mark.skipif(is_importable("envpool"), reason="EnvPool is installed")
def test_a_folder_named_envpool_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "envpool").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not envpool.ADAPTER.ids()
    with pytest.raises(ConfigError, match="needs envpool, which is not installed"):
        make_envs("envpool:CartPole-v1", 1, seed=0)
