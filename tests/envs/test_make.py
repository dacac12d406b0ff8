from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.sample_envs.env_zoo import (
    ChoicesFromFive,
    ManyChoices,
    TextActions,
    TextObservations,
    Unbounded,
    Wanderer,
    zoo_id,
)

from offbeat.config.env import EnvConfig, adapter_prefix
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable
from offbeat.core.tasks import TaskSample
from offbeat.envs.adapters.gymnasium.adapter import ADAPTER
from offbeat.envs.make import list_envs, make_envs
from offbeat.envs.registration import register_env
from offbeat.envs.worlds.make import make_world


def test_an_unknown_env_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'CartPol-v1'.*'CartPole-v1'.*offbeat list envs.*--import"):
        make_envs("CartPol-v1", 1, seed=0)


@pytest.mark.parametrize("env_id", ["CartPole-v99", "nowhere/Env-v0", "no good id"])
def test_an_unknown_version_namespace_or_format_is_a_config_error(env_id: str) -> None:
    with pytest.raises(ConfigError, match="unknown env"):
        make_envs(env_id, 1, seed=0)


def test_an_env_with_a_missing_dependency_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)  # as on a machine without it
    monkeypatch.delitem(sys.modules, "gymnasium.envs.mujoco.half_cheetah_v5", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.mujoco.mujoco_env", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.mujoco", raising=False)
    with pytest.raises(ConfigError, match=r'pip install "offbeat\[mujoco\]"'):
        make_envs("HalfCheetah-v5", 1, seed=0)
    assert "HalfCheetah-v5" not in list_envs()


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_a_missing_ale_py_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch, env_id: str) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(sys.modules, "ale_py.vector_env", raising=False)
    with pytest.raises(ConfigError, match=r'pip install "offbeat\[atari\]"'):
        make_envs(env_id, 1, seed=0)
    assert env_id not in list_envs()


def test_a_missing_envpool_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match=r'pip install "offbeat\[envpool\]"'):
        make_envs("envpool:Pong-v5", 1, seed=0)


@pytest.mark.parametrize(("declared", "frames"), [(np.int64(4), 4), (None, 1), ((2, 5), 1), (0, 1)])
def test_a_frame_skip_counts_if_it_is_a_number(declared: Any, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wanderer, "frame_skip", declared, raising=False)
    assert make_envs(zoo_id(Wanderer), 1, seed=0).spec.frame_skip == frames


@pytest.mark.parametrize(("columns", "groups"), [(3, 2), (0, 1), (2, 0), (2, 4)])
def test_groups_divide_the_columns(columns: int, groups: int) -> None:
    with pytest.raises(ConfigError, match="groups of equal size"):
        make_envs("CartPole-v1", columns, seed=0, groups=groups)


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        (zoo_id(TextObservations), "Dicts and Tuples of these, are supported"),
        (zoo_id(TextActions), "Dicts and Tuples of these, are supported"),
        ("zoo/MaskOfAnotherSize-v0", r"one flag for each of the 3 choices \[3\].*MultiBinary\(3\)"),
        ("zoo/MaskOfABox-v0", "cannot be masked: rename the key"),
        ("zoo/TwoOfOneName-v0", "two observations with the same name"),
        ("zoo/OnlyAMask-v0", "no inputs for a network"),
        ("zoo/CannotBeMade-v0", "FileNotFoundError: level.json"),
        ("zoo/SameStepOnly-v0", "NEXT_STEP"),
    ],
)
def test_unsupported_spaces_are_refused_with_a_reason(env_id: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_envs(env_id, 2, seed=0)


def test_unknown_arguments_of_an_env_are_reported() -> None:
    with pytest.raises(ConfigError, match="Pendulum-v1 has no argument 'wings'"):
        make_envs("Pendulum-v1", 1, seed=0, settings=EnvConfig(kwargs=PlainTable({"wings": 2})))


class ExitsWhenMade(gym.Env[Any, Any]):
    def __init__(self) -> None:
        sys.exit(0)


class Asserts(gym.Env[Any, Any]):
    def __init__(self, size: int) -> None:  # noqa: ARG002
        raise AssertionError  # pytest gives a text to `assert`


def test_an_assertion_without_a_text_is_reported_with_the_env_and_its_arguments() -> None:
    settings = EnvConfig(kwargs=PlainTable({"size": 2}))
    says = r"test_make:Asserts cannot be made with the arguments \{'size': 2\} \(AssertionError\): run "
    with pytest.raises(ConfigError, match=says) as refused:
        make_envs(f"{__name__}:Asserts", 1, seed=0, settings=settings)
    assert "raise AssertionError" in "".join(refused.value.__notes__)


def world_that_exits() -> Any:
    sys.exit(0)


@pytest.mark.parametrize(
    ("make", "env_id"),
    [
        (make_envs, f"{__name__}:ExitsWhenMade"),
        (make_envs, "exits/WhenMade-v0"),
        (make_world, f"{__name__}:world_that_exits"),
    ],
)
def test_an_env_that_calls_exit_when_it_is_made_is_a_config_error(make: Any, env_id: str) -> None:
    register_env("exits/WhenMade-v0", ExitsWhenMade)
    arguments: Any = {"columns": 1, "seed": 0} if make is make_envs else {"kwargs": {}}
    with pytest.raises(ConfigError, match=r"cannot be made \(SystemExit: 0\)"):
        make(env_id, **arguments)


def test_arguments_are_passed_to_the_env() -> None:
    envs = make_envs("zoo/Limited-v0", 1, seed=0, settings=EnvConfig(kwargs=PlainTable({"max_episode_steps": 2})))
    envs.reset()
    ends = []
    for _ in range(5):
        envs.send([0])  # type: ignore[arg-type]
        ends.append(bool(envs.recv().truncated[0]))
    assert ends == [False, True, False, False, True]


def test_a_vector_env_with_same_step_autoreset_is_replaced_by_single_envs() -> None:
    envs = make_envs("zoo/SameStepToo-v0", 2, seed=0)
    assert envs.reset()["observation"].shape == (2, 3)


def test_a_module_can_be_named_before_the_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('Mine-v0', 'gymnasium.envs.classic_control:PendulumEnv', max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert make_envs("my_envs:Mine-v0", 1, seed=0).spec.id == "my_envs:Mine-v0"
    gym.registry.pop("Mine-v0")


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("CartPole-v1", ("discrete", (), (2,), (), ())),
        ("Pendulum-v1", ("box", (1,), (), (-2.0,), (2.0,))),
        (zoo_id(ManyChoices), ("multidiscrete", (3,), (2, 5, 3), (), ())),
        (zoo_id(ChoicesFromFive), ("discrete", (), (3,), (), ())),
        (zoo_id(Unbounded), ("box", (3,), (), (-float("inf"), 0.0, -2.0), (float("inf"), float("inf"), 1.0))),
    ],
)
def test_the_spec_describes_the_accepted_actions(env_id: str, expected: tuple[Any, ...]) -> None:
    action = make_envs(env_id, 1, seed=0).spec.action
    assert (action.kind, action.shape, action.nvec, action.low, action.high) == expected


def test_a_dict_observation_has_one_leaf_per_key_in_the_order_of_the_space() -> None:
    leaves = make_envs("zoo/DictObservations-v0", 1, seed=0).spec.observation
    assert [(leaf.name, leaf.shape, leaf.dtype) for leaf in leaves] == [
        ("observation/height", (), "float32"),
        ("observation/image", (2, 2, 1), "uint8"),
        ("observation/place", (3,), "float32"),
    ]


def test_list_envs_returns_exactly_the_usable_envs() -> None:
    code = "from offbeat.envs.make import list_envs; print(*list_envs())"  # without what other tests have registered
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert {"CartPole-v1", "Pendulum-v1", "offbeat/OneStep-v0"} <= set(listed)
    assert {"FrozenLake-v1", "Taxi-v4", "Blackjack-v1"} <= set(listed)
    assert not {"Ant-v2", "GymV21Environment-v0"} & set(listed)
    for env_id in listed:
        if adapter_prefix(env_id):  # the tests of each adapter make these
            continue
        games = "ALE/" in env_id or getattr(gym.spec(env_id), "entry_point", "") == "ale_py.env:AtariEnv"
        if "Racing" not in env_id and (not games or "Pong" in env_id):  # slow to make, or very many
            make_envs(env_id, 1, seed=0).close()


class WithoutSpaces(gym.Env[Any, Any]):
    """Has no spaces of its own: its wrapper has them."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(2, np.float32), {}


class AddedSpaces(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space, self.action_space = gym.spaces.Box(0, 1, (2,)), gym.spaces.Discrete(2)


def with_spaces_of_a_wrapper() -> gym.Env[Any, Any]:
    return AddedSpaces(WithoutSpaces())


def test_an_env_whose_spaces_are_those_of_its_wrapper_can_be_reset() -> None:
    with closing(make_envs(f"{__name__}:with_spaces_of_a_wrapper", 2, seed=1)) as envs:
        assert envs.reset()["observation"].shape == (2, 2)


class Counted(gym.Env[Any, Any]):
    """Counts the envs of its class that are open."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = closed = 0

    def __init__(self, mode: str | None = None) -> None:
        self.render_mode = mode
        Counted.made += 1

    def close(self) -> None:
        Counted.closed += 1


def no_wrapper(env: gym.Env[Any, Any]) -> None:
    raise ValueError(f"{env} is refused")


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        (EnvConfig(frame_stack=4), None),
        (EnvConfig(ignore_observations=("text",)), None),
        (EnvConfig(curriculum=("gravity 0:1 1:2",)), None),
        (EnvConfig(wrappers=(f"{__name__}:no_wrapper",)), None),
        (EnvConfig(), TaskSample(0, 2, 2)),
    ],
)
def test_envs_that_are_refused_after_they_were_made_are_closed(settings: EnvConfig, tasks: TaskSample | None) -> None:
    """They may have started processes."""
    Counted.made = Counted.closed = 0
    with pytest.raises(ConfigError):
        make_envs(f"{__name__}:Counted", 3, seed=0, settings=settings, tasks=tasks)
    assert Counted.closed == Counted.made > 0


@pytest.mark.parametrize(
    "settings",
    [EnvConfig(), EnvConfig(kwargs=PlainTable({"mode": "rgb_array"}), curriculum=("gravity 0:1 1:2",))],
    ids=["no render mode", "no parameter of the curriculum"],
)
def test_an_env_that_is_refused_for_rendering_after_it_was_made_is_closed(settings: EnvConfig) -> None:
    Counted.made = Counted.closed = 0
    env_id, mode = f"{__name__}:Counted", "rgb_array"
    with pytest.raises(ConfigError):
        ADAPTER.make_renderable(env_id, settings, mode)
    assert Counted.closed == Counted.made == 1
