"""The env that a thread is calling is found by its index, in every loop over envs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from tests.support.scripted_worlds import SPEC, Script, step

from offbeat.config.env import EnvConfig
from offbeat.envs.contract import Envs
from offbeat.envs.current import calls_envs, env_called_by
from offbeat.envs.make import make_envs
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.envs.worlds.worlds import Worlds

LIMIT_S = 60.0


class Blocking:
    """A method that does not return until `free` is called."""

    def __init__(self) -> None:
        self.entered, self._freed = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self._freed.wait(LIMIT_S)

    def free(self) -> None:
        self._freed.set()


class Env(gym.Env[Any, Any]):
    """Calls `calls[name]` in its method of this name, if it is given."""

    made: ClassVar[list[Env]] = []
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.calls: dict[str, Callable[[], None]] = {}
        self.made.append(self)

    def reset(self, **_: Any) -> Any:
        self.calls.get("reset", int)()
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> Any:
        self.calls.get("step", int)()
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def set_progress(self, _: float) -> None:
        self.calls.get("set_progress", int)()


@contextmanager
def blocked_in(method: Blocking, call: Callable[[], Any]) -> Iterator[int]:
    """Call `call` in a thread until it is in `method`; yield the thread's identifier."""
    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert method.entered.wait(LIMIT_S)
        assert thread.ident is not None
        yield thread.ident
    finally:
        method.free()
        thread.join(LIMIT_S)


@pytest.fixture
def envs(monkeypatch: pytest.MonkeyPatch) -> Envs:
    """Four envs in two groups, made in the order of `Env.made`."""
    monkeypatch.setattr(Env, "made", [])
    envs = make_envs(f"{__name__}:Env", 4, seed=0, groups=2)
    envs.reset()
    return envs


def step_group_1(envs: Envs) -> None:
    envs.send(np.zeros(2, np.int64), 1)
    envs.recv(1)


def advance(envs: Envs) -> None:
    envs.advance(np.ones(4, np.int64), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("step", step_group_1),
        ("step", advance),
        ("reset", lambda envs: envs.reset()),
        ("set_progress", lambda envs: envs.set_progress(0.5)),
    ],
    ids=["step", "advance", "reset", "set_progress"],
)
def test_env_of_a_group_is_found_by_its_column(envs, name, call):
    Env.made[3].calls[name] = method = Blocking()
    with blocked_in(method, lambda: call(envs)) as thread:
        assert env_called_by(thread) == 3


def test_mujoco_env_is_found_by_its_column():
    envs: Any = make_envs("HalfCheetah-v5", 3, seed=0, settings=EnvConfig(max_episode_steps=1))
    envs.reset()
    envs.send(np.zeros((3, 6), np.float32))
    envs.recv()
    method, env = Blocking(), envs._all_envs()[2].unwrapped
    reset = env.reset_model

    def reset_model() -> Any:
        method()
        return reset()

    env.reset_model = reset_model
    envs.send(np.zeros((3, 6), np.float32))
    with blocked_in(method, envs.recv) as thread:
        assert env_called_by(thread) == 2


class BlockingScript(Script):
    """A world that calls a method in its second step."""

    def __init__(self, method: Callable[[], None]) -> None:
        super().__init__(*(step(a=0.0, b=0.0) for _ in range(3)))
        self.method = method

    def step(self, actions: Any) -> Any:
        self.method()
        return super().step(actions)


def test_world_is_found_by_its_index():
    method = Blocking()
    scripts = [Script(*(step(a=0.0, b=0.0) for _ in range(3))), BlockingScript(method)]
    spec = WorldSpec("script", (("a", SPEC), ("b", SPEC)))
    worlds = Worlds(spec, scripts, {"p": "ab"}, groups=[slice(0, 2)], seeds=[0, 1])
    worlds.envs["p"].reset()
    worlds.envs["p"].send(np.zeros(4, np.int64))
    with blocked_in(method, worlds.envs["p"].recv) as thread:
        assert env_called_by(thread) == 1


def test_thread_that_calls_no_env_has_none():
    method = Blocking()
    with blocked_in(method, method) as thread:
        assert env_called_by(thread) is None


@calls_envs(lambda at: at["column"])
def call_before_loop(method: Callable[[], None]) -> None:
    """Call a method before the loop over envs has begun."""
    method()
    for column in range(2):
        assert column >= 0


def test_loop_that_has_not_begun_calls_no_env():
    method = Blocking()
    with blocked_in(method, lambda: call_before_loop(method)) as thread:
        assert env_called_by(thread) is None


def test_a_function_whose_constants_have_no_hash_is_passed_over():
    method = Blocking()

    def call() -> None:
        method()

    call.__code__ = call.__code__.replace(co_consts=(*call.__code__.co_consts, {}))
    with blocked_in(method, call) as thread:
        assert env_called_by(thread) is None
