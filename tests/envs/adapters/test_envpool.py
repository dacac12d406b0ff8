"""What EnvPool is asked for, which can be said without it."""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from tests.support.env_rows import actions_of, collect

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.frozen_table import PlainTable
from offbeat.core.importable import is_importable
from offbeat.core.types import Array
from offbeat.envs.adapters.envpool import adapter as envpool
from offbeat.envs.adapters.envpool.adapter import _arguments, _own_limit
from offbeat.envs.contract import NO_LIMITS, Limits
from offbeat.envs.make import make_envs


class Config(NamedTuple):
    """The arguments of a pool, with EnvPool's defaults."""

    num_envs: int = 1
    max_num_players: int = 1
    max_episode_steps: int = 4000


class GameConfig(NamedTuple):
    """Those of an Atari game."""

    num_envs: int = 1
    max_num_players: int = 1
    max_episode_steps: int = 27_000
    frame_skip: int = 4
    noop_max: int = 30
    episodic_life: bool = False
    reward_clip: bool = False
    use_fire_reset: bool = True
    repeat_action_probability: float = 0.0


def test_atari_settings_are_translated_to_envpools_names() -> None:
    settings = EnvConfig(fire_reset=False, episodic_life=True, noop_max=5, max_frames=400)
    assert _arguments("envpool:Pong-v5", GameConfig(), settings) == {
        "stack_num": 1,
        "reward_clip": False,
        "frame_skip": 4,
        "repeat_action_probability": 0.0,
        "use_fire_reset": False,
        "episodic_life": True,
        "noop_max": 5,
        "max_episode_steps": 100,
    }
    assert _arguments("envpool:Ant-v4", Config(), EnvConfig(reward_scale=2)) == {}


@pytest.mark.parametrize(("frames", "steps"), [(3, 1), (4, 1), (5, 2)])
def test_the_step_that_reaches_max_frames_is_the_last_one(frames: int, steps: int) -> None:
    assert _arguments("envpool:Pong-v5", GameConfig(), EnvConfig(max_frames=frames))["max_episode_steps"] == steps


def test_envpool_refuses_settings_that_its_env_does_not_support() -> None:
    with pytest.raises(ConfigError, match="noop_max is 2, which is not supported by envpool:Ant-v4"):
        _arguments("envpool:Ant-v4", Config(), EnvConfig(noop_max=2))
    with pytest.raises(ConfigError, match="pass --set noop_max=1"):
        _arguments("envpool:Pong-v5", GameConfig(), EnvConfig(noop_max=0))


UNLIMITED = 2**31 - 1


def test_a_pool_without_a_limit_refuses_max_episode_steps_and_is_not_cut_by_an_evaluation() -> None:
    with pytest.raises(ConfigError, match="max_episode_steps is 7, which is not supported by EnvPool's CliffW"):
        _own_limit("envpool:CliffWalking-v1", UNLIMITED, Limits(run=7))
    assert _own_limit("envpool:CliffWalking-v1", UNLIMITED, Limits(evaluation=7)) == (None, NO_LIMITS)
    assert _own_limit("envpool:Ant-v4", 1000, Limits(run=7)) == (1000, Limits(run=7))
    assert _own_limit("envpool:BabyAI-Unlock-v0", 0, Limits(run=7)) == (None, Limits(run=7)), "each level has its own"


@pytest.mark.parametrize(("steps", "own"), [(1000, 334), (999, 333), (1, 1)])
def test_the_own_limit_of_a_pool_with_repeated_actions_is_rounded_up_to_env_steps(steps: int, own: int) -> None:
    assert _own_limit("envpool:Ant-v4", steps, NO_LIMITS, repeats=3) == (own, NO_LIMITS)


class IgnoresLimits:
    """A stand-in for a pool that ignores the limit that it was given: its episodes do not end."""

    action_space: gym.spaces.Space[Any] = gym.spaces.Discrete(2)
    spec = SimpleNamespace(config=SimpleNamespace())

    def __init__(self, columns: int) -> None:
        self.columns, self.elapsed, self.closed = columns, 0, False

    @cached_property
    def observation_space(self) -> gym.spaces.Space[Any]:
        return gym.spaces.Box(np.zeros(1), np.ones(1), dtype=np.float32)

    def reset(self) -> tuple[Any, Any]:
        return np.zeros((self.columns, 1), np.float32), {}

    def send(self, actions: Array, columns: Array | None = None) -> None: ...

    def recv(self) -> tuple[Any, ...]:
        self.elapsed += 1
        flags = np.zeros(self.columns, np.bool_)
        elapsed = np.full(self.columns, self.elapsed, np.int32)
        return *self.reset()[:1], np.zeros(self.columns, np.float32), flags, flags, {"elapsed_step": elapsed}

    def close(self) -> None:
        self.closed = True


class EndsEpisodes(IgnoresLimits):
    """A stand-in for a pool whose columns have episodes of 4, 5, ... steps. Each step has reward 1."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.lengths, self.steps, self.sent = np.arange(columns) + 4, np.zeros(columns, np.int32), np.arange(columns)

    def send(self, actions: Array, columns: Array | None = None) -> None:
        self.sent = np.arange(self.columns) if columns is None else columns
        assert len(actions) == len(self.sent)

    def recv(self) -> tuple[Any, ...]:
        sent = self.sent
        starts = self.steps[sent] == self.lengths[sent]
        self.steps[sent] = np.where(starts, 0, self.steps[sent] + 1)
        over, steps = self.steps[sent] == self.lengths[sent], self.steps[sent]
        observation, reward = np.zeros((len(sent), 1), np.float32), np.where(starts, 0, 1).astype(np.float32)
        none = np.zeros(len(sent), np.bool_)
        return observation, reward, *self.flags(over), {"elapsed_step": steps, "terminated": none}

    def flags(self, over: Array) -> tuple[Array, Array]:
        """Return terminated and truncated of the columns whose episodes are over."""
        return over, np.zeros_like(over)


class TruncatesEpisodes(EndsEpisodes):
    def flags(self, over: Array) -> tuple[Array, Array]:
        return np.zeros_like(over), over


class Library:
    """A stand-in for EnvPool, with an env for one agent and a game for two players."""

    def __init__(self) -> None:
        specs = {"Endless-v0": ("module", "Spec", {}), "Duel-v0": ("module", "Spec", {"max_num_players": 2})}
        self.registration = SimpleNamespace(registry=SimpleNamespace(specs=specs))
        self.config: Config | GameConfig = Config()
        self.pool_class: type[IgnoresLimits] = IgnoresLimits
        self.pools: list[IgnoresLimits] = []
        self.arguments: dict[str, Any] = {}
        """Those of the newest pool."""

    def list_all_envs(self) -> list[str]:
        return list(self.registration.registry.specs)

    def make_spec(self, _name: str) -> Any:
        return SimpleNamespace(config=self.config)

    def make_gymnasium(self, _name: str, *, num_envs: int, **arguments: Any) -> IgnoresLimits:
        self.pools.append(self.pool_class(num_envs))
        self.arguments = arguments
        return self.pools[-1]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(envpool, "_envpool", lambda: made)
    monkeypatch.setattr(envpool, "is_importable", lambda _name: True)
    return made


@pytest.mark.parametrize("name", ["episodic_life", "reward_clip", "use_fire_reset", "frame_skip"])
def test_arguments_of_a_game_that_settings_determine_are_refused(name: str, library: Library) -> None:
    library.config = GameConfig()
    settings = EnvConfig(kwargs=PlainTable({name: 1}))
    with pytest.raises(ConfigError, match=f"env.kwargs.{name} is 1, but for envpool:Endless-v0 the other keys of"):
        make_envs("envpool:Endless-v0", 1, seed=0, settings=settings)


def test_envs_with_several_players_are_refused_and_not_listed(library: Library) -> None:
    library.config = Config(max_num_players=2)
    with pytest.raises(ConfigError, match="envpool:Duel-v0 has 2 players, but only EnvPool's envs with one agent"):
        make_envs("envpool:Duel-v0", 1, seed=0)
    assert envpool.ADAPTER.ids() == ["envpool:Endless-v0"]


@pytest.mark.usefixtures("library")
def test_the_message_on_unsupported_actions_does_not_advise_to_wrap_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IgnoresLimits, "action_space", gym.spaces.Box(0, 4, (10,), np.int32))
    with pytest.raises(ConfigError, match=r"Box \(of floats\), and Dicts and Tuples of these, are supported$"):
        make_envs("envpool:Endless-v0", 1, seed=0)


def test_a_library_that_an_env_needs_is_to_be_installed(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> None:
        raise ImportError("needs Qt 5")

    monkeypatch.setattr(library, "make_spec", fail)
    with pytest.raises(ConfigError, match=r"\(ImportError: needs Qt 5\): install what its library needs"):
        make_envs("envpool:Endless-v0", 1, seed=0)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_episode_step", r"has no argument 'max_episode_step'.*max_episode_steps.*Its arguments are max_episode_s"),
        ("num_envs", "env.kwargs.num_envs is 3, but offbeat determines this argument: leave it out"),
    ],
)
def test_arguments_that_a_pool_does_not_have_or_that_offbeat_determines_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_envs("envpool:Endless-v0", 1, seed=0, settings=EnvConfig(kwargs=PlainTable({name: 3})))


@pytest.mark.usefixtures("library")
def test_a_pool_that_ignores_the_limit_of_a_run_fails() -> None:
    envs = make_envs("envpool:Endless-v0", 2, seed=0, settings=EnvConfig(max_episode_steps=3), cut_after=5)
    envs.reset()
    collect(envs, actions_of(envs, 2))
    with pytest.raises(EnvFailed, match=r"env 0: max_episode_steps is 3, which is not supported.*cannot be shortened"):
        collect(envs, actions_of(envs, 1))


@pytest.mark.usefixtures("library")
def test_a_pool_that_ignores_the_limit_of_an_evaluation_is_not_cut() -> None:
    envs = make_envs("envpool:Endless-v0", 2, seed=0, settings=EnvConfig(max_episode_steps=10), cut_after=3)
    envs.reset()
    assert not collect(envs, actions_of(envs, 9))["truncated"].any()


def test_a_pool_gets_the_limit_of_a_run_in_steps_of_its_own(library: Library) -> None:
    make_envs("envpool:Endless-v0", 2, seed=0, settings=EnvConfig(frame_skip=3, max_episode_steps=7))
    assert library.arguments["max_episode_steps"] == 21


@pytest.mark.usefixtures("library")
def test_the_limit_of_a_run_is_in_env_steps_where_actions_are_repeated() -> None:
    envs = make_envs("envpool:Endless-v0", 2, seed=0, settings=EnvConfig(frame_skip=3, max_episode_steps=3))
    envs.reset()
    collect(envs, actions_of(envs, 2))
    with pytest.raises(EnvFailed, match="max_episode_steps is 3"):
        collect(envs, actions_of(envs, 1))


def test_repeated_actions_end_with_the_episode_and_are_not_repeated_in_reset_rows(library: Library) -> None:
    library.pool_class = EndsEpisodes
    envs = make_envs("envpool:Endless-v0", 2, seed=0, settings=EnvConfig(frame_skip=3))
    envs.reset()
    rows = collect(envs, actions_of(envs, 4))
    assert rows["reward"].tolist() == [[3, 3], [1, 2], [0, 0], [3, 3]]
    assert rows["terminated"].tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]
    assert rows["valid"].tolist() == [[True] * 2, [True] * 2, [False] * 2, [True] * 2]


def test_a_game_with_lives_left_is_over_in_the_row_of_its_time_limit(library: Library) -> None:
    library.config, library.pool_class = GameConfig(), TruncatesEpisodes
    envs = make_envs("envpool:Endless-v0", 2, seed=0, settings=EnvConfig(episodic_life=True))
    envs.reset()
    ended = []
    for actions in actions_of(envs, 6):
        envs.send(actions)
        ended.append(envs.recv().ended.tolist())
    assert ended == [[False, False]] * 3 + [[True, False], [False, True], [False, False]]


@pytest.mark.usefixtures("library")
def test_the_spaces_of_pools_are_made_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_envs("envpool:Endless-v0", 4, seed=0, groups=2)


def test_pools_that_are_refused_after_they_were_made_are_closed(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IgnoresLimits, "observation_space", gym.spaces.Text(5))
    with pytest.raises(ConfigError, match="Text"):
        make_envs("envpool:Endless-v0", 4, seed=0, groups=2)
    assert [pool.closed for pool in library.pools] == [True, True]


@pytest.mark.skipif(is_importable("envpool"), reason="EnvPool is installed")
def test_a_folder_named_envpool_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "envpool").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not envpool.ADAPTER.ids()
    with pytest.raises(ConfigError, match="needs envpool, which is not installed"):
        make_envs("envpool:CartPole-v1", 1, seed=0)
