"""What infos report becomes numbers; what nobody asks for is not touched; envs are told of progress."""

from __future__ import annotations

from copy import deepcopy
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from tests.sample_envs import curious_envs

from offbeat.config.curriculum import parameters
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.contract import Outcome
from offbeat.envs.infos import info_reader, vector_info_reader
from offbeat.envs.make import make_envs
from offbeat.envs.progress import progress_setters

NAN = np.nan


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, [NAN, NAN]),
        ({"a": 3, "b": {"c": True}}, [3, 1]),
        ({"a": np.float32(0.5), "b": {"c": np.array(2)}}, [0.5, 2]),
        ({"a": None, "b": 7}, [NAN, NAN]),
        ({"a": 1e300, "b": {"d": 1}}, [1e300, NAN]),
    ],
)
def test_info_values_of_a_single_env_are_read_by_key(info, expected):
    target = np.full((3, 2), NAN)
    info_reader(("a", "b/c:last"), target)(1, info)
    np.testing.assert_array_equal(target, [[NAN, NAN], expected, [NAN, NAN]])


@pytest.mark.parametrize("value", ["far", [1, 2], object(), {}])
def test_an_info_that_is_not_a_number_is_refused(value):
    with pytest.raises(ValueError, match="info a is"):
        info_reader(("a",), np.zeros((1, 1)))(0, {"a": value})


def test_info_values_of_a_vector_env_are_read_in_valid_rows_with_their_flag_set():
    target, valid = np.zeros((4, 3)), np.array([True, True, False, True])
    info = {"a": np.arange(4), "_a": np.array([1, 0, 1, 1], bool), "b": np.ones(4), "c": {"d": np.arange(4.0)}}
    vector_info_reader(("a", "b:sum", "c/d"), target)(valid, info)
    np.testing.assert_array_equal(target, [[0, 1, 0], [NAN, 1, 1], [NAN, NAN, NAN], [3, 1, 3]])
    vector_info_reader(("a", "b", "c/d"), target)(valid, {})
    assert np.isnan(target).all()


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((4, 1)), np.array(["x"] * 4), 3])
def test_info_arrays_of_a_vector_env_without_one_number_per_env_are_refused(values):
    with pytest.raises(ValueError, match="info a is an array"):
        vector_info_reader(("a",), np.zeros((4, 1)))(np.ones(4, bool), {"a": values})


class ReadOnlyInfos(curious_envs.Waiting):
    def info(self) -> Any:
        return MappingProxyType(super().info())


def test_no_decision_is_read_from_an_info_of_any_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = ReadOnlyInfos
    spec = gym.envs.registration.EnvSpec("curious/ReadOnlyInfos-v0", kind)
    monkeypatch.setitem(gym.registry, spec.id, spec)
    assert preflight(spec.id).no_decision


class Untouchable(dict[str, Any]):
    """An info that nobody may look into, but for two keys."""

    def get(self, key: Any, default: Any = None) -> Any:
        assert key in ("place", "no_decision")  # the latter is always looked for
        return super().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError(key)

    items = keys = values = __iter__ = copy = __getitem__  # type: ignore[assignment]


class Secretive(curious_envs.Line):
    def step(self, action: Any) -> Any:
        observation, *rest, _ = super().step(action)
        return (observation, *rest, Untouchable(place=self.place))


@pytest.mark.parametrize("asked", [(), ("place",)])
def test_only_requested_keys_of_an_info_are_read(asked):
    gym.register("curious/Secretive-v0", f"{__name__}:Secretive")
    try:
        envs = make_envs("curious/Secretive-v0", 2, seed=0, settings=EnvConfig(info_metrics=asked))
        envs.reset()
        for _ in range(30):
            envs.send(np.ones(2, np.int64))
            outcome = envs.recv()
            assert outcome.info.shape == (2, len(asked))
            if asked:
                assert (np.isfinite(outcome.info[:, 0]) == outcome.valid).all()
    finally:
        del gym.registry["curious/Secretive-v0"]


def stepped(env_id: str, columns: int, steps: int, *names: str) -> list[Outcome]:
    envs = make_envs(env_id, columns, seed=0, settings=EnvConfig(info_metrics=names))
    envs.reset()
    outcomes = []
    for _ in range(steps):
        envs.send(np.zeros(columns, np.int64))
        outcomes.append(deepcopy(envs.recv()))
    return outcomes


@pytest.mark.parametrize(("env_id", "name"), [("Reporting", "place"), ("LearningVector", "age")])
def test_rows_have_the_info_values_of_their_own_step_and_reset_rows_none(env_id, name):
    outcomes = stepped(f"curious/{env_id}-v0", 4, 60, name, "nothing")
    assert np.isfinite([outcome.info[:, 0] for outcome in outcomes]).mean() > 0.3
    for outcome in outcomes:
        given = np.isfinite(outcome.info[:, 0])
        assert not given[~outcome.valid].any()
        np.testing.assert_allclose(outcome.info[given, 0], outcome.observation["observation"][given, 0], atol=1e-6)
        assert np.isnan(outcome.info[:, 1]).all()
        if env_id == "LearningVector":
            np.testing.assert_array_equal(given, outcome.valid & np.array([1, 0, 1, 0], bool))


# --- being told of progress ---------------------------------------------------------------------------------


def test_progress_passes_wrappers_and_parameters_are_set_on_the_inner_env():
    inner = curious_envs.Learning()
    env = TimeLimit(inner, 5)
    for set_progress in progress_setters(env, parameters(["wind 0:0 1:4"]), "it"):
        set_progress(0.25)
    assert (inner.wind, inner.progress) == (1.0, 0.25)
    assert "wind" not in vars(env)


def test_a_vector_env_receives_progress_and_parameters_by_its_methods():
    env = curious_envs.LearningVector(3)
    for set_progress in progress_setters(env, parameters(["wind 0:0 1:4"]), "it"):
        set_progress(0.5)
    assert (env.wind, env.progress) == (2.0, 0.5)


def test_an_env_without_set_progress_gets_no_setter():
    assert progress_setters(curious_envs.Line(), [], "it") == []


def test_a_parameter_that_the_env_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="curriculum sets rain, but curious/Learning-v0 has no such attribute"):
        make_envs("curious/Learning-v0", 2, seed=0, settings=EnvConfig(curriculum=("rain 0:1",)))
    with pytest.raises(ConfigError, match="curriculum is not supported by envpool:CartPole-v1"):
        make_envs("envpool:CartPole-v1", 2, seed=0, settings=EnvConfig(curriculum=("gravity 0:1",)))


def test_an_exception_in_set_progress_names_the_env(monkeypatch):
    called = []

    def refuse(env: Any, _fraction: float) -> None:
        called.append(env)
        if len(called) == 2:
            raise RuntimeError("not now")

    monkeypatch.setattr(curious_envs.Learning, "set_progress", refuse)
    envs = make_envs("curious/Learning-v0", 3, seed=0)
    with pytest.raises(EnvFailed, match=r"env 1: set_progress\(0.5\) raised RuntimeError: not now") as failed:
        envs.set_progress(0.5)
    assert failed.value.column == 1
