"""Envs of one's own: registered under an id, or found where they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.support import own_code
from tests.support.own_code import Pole, make_pole
from tests.support.registries import registries_kept

import offbeat
from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, message_with_notes
from offbeat.core.frozen_table import PlainTable
from offbeat.envs.checking.check import check_env
from offbeat.envs.make import make_envs
from offbeat.envs.registration import registry_entry

PLACE = "tests.support.own_code:Pole"


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    with registries_kept():
        yield


def first_observation(env_id: str) -> Any:
    return make_envs(env_id, 2, seed=3).reset()["observation"]


@pytest.mark.parametrize("entry_point", [Pole, make_pole, PLACE])
def test_register_env_passes_all_arguments_to_gymnasium(entry_point):
    offbeat.register_env("own/Pole-v0", entry_point, max_episode_steps=7, kwargs={"sutton_barto_reward": True})
    env = gym.make("own/Pole-v0")
    env.reset(seed=0)
    rows = [env.step(0) for _ in range(6)]
    assert {row[1] for row in rows} == {0.0}, "as Sutton and Barto reward it"
    entry = registry_entry("own/Pole-v0")
    assert (entry.max_episode_steps, entry.kwargs) == (7, {"sutton_barto_reward": True})
    np.testing.assert_array_equal(first_observation("own/Pole-v0"), first_observation(PLACE))


@pytest.mark.parametrize("steps", [7.0, np.int64(7)])
def test_whole_floats_and_numbers_of_numpy_are_limits_of_episodes(steps):
    offbeat.register_env("own/Pole-v0", Pole, max_episode_steps=steps)
    limit = registry_entry("own/Pole-v0").max_episode_steps
    assert (type(limit), limit) == (int, 7)


@pytest.mark.parametrize("name", ["Pole", "make_pole"])
def test_an_env_is_found_by_its_import_path(name):
    place = f"tests.support.own_code:{name}"
    assert registry_entry(place).entry_point is getattr(own_code, name)
    assert make_envs(place, 2, seed=3).spec.id == place


def test_a_registered_name_takes_precedence_over_a_class_of_that_name():
    offbeat.register_env("Pole", make_pole, max_episode_steps=9)
    assert registry_entry(PLACE).max_episode_steps == 9


def test_registering_the_same_env_again_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for steps in (5, 6):
            offbeat.register_env("own/Pole-v0", Pole, max_episode_steps=steps)
    assert registry_entry("own/Pole-v0").max_episode_steps == 6


@pytest.mark.parametrize(
    ("env_id", "entry_point", "registration", "words"),
    [
        ("own Pole", Pole, {}, "'own Pole' is not a valid env id.*'my_env/MyEnv-v0'"),
        ("CartPole-v1", Pole, {}, "CartPole-v1 is already registered, with .*use another id"),
        ("own/Pole-v0", Pole(), {}, "own/Pole-v0 has entry_point .*each actor makes several envs"),
        ("own/Pole-v0", "Pole", {}, "own/Pole-v0 has entry_point 'Pole': pass 'my_module:MyEnv' or the class itself"),
        ("own/Pole-v0", dict, {}, "own/Pole-v0 has the class dict, which must extend gymnasium.Env"),
        ("own/Pole-v0", Pole, {"max_steps": 5}, r"unknown argument 'max_steps'. Did you mean 'max_episode_steps'"),
        ("own/Pole-v0", Pole, {"max_episode_steps": 0}, "max_episode_steps 0, but a whole number of at least 1"),
        ("own/Pole-v0", Pole, {"max_episode_steps": "5"}, "max_episode_steps is '5', but a whole number"),
    ],
)
def test_register_env_refuses_invalid_arguments(env_id, entry_point, registration, words):
    before = dict(gym.registry)
    with pytest.raises(ConfigError, match=words):
        offbeat.register_env(env_id, entry_point, **registration)
    assert dict(gym.registry) == before


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        (
            "tests.support.own_code:Pol",
            r"'tests.support.own_code:Pole'\? The module tests.support.own_code has no class, function or env",
        ),
        ("tests.sample_envs.not_envs:LEVELS", "not_envs:LEVELS is not a class or function: pass the class of an env"),
        (
            "tests.sample_envs.not_envs:Late-v0",
            r"^unknown env .* Late-v0 is not registered by importing tests.sample_envs.not_envs: call gymnasium.reg",
        ),
        ("no_module:Pole", "the module no_module cannot be imported"),
        ("tests.support.own_code:", "^tests.support.own_code: names only a module: pass tests.support.own_code:MyEnv"),
    ],
)
def test_an_unknown_import_path_of_an_env_is_refused(env_id, words):
    with pytest.raises(ConfigError, match=words):
        make_envs(env_id, 1, seed=0)


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("Settings", {}, "is not the class of an env: pass a class that extends gymnasium.Env.*possible_agents"),
        ("Level", {}, "is not the class of an env"),
        ("Several", {}, 'is a vector env.*vector_entry_point="tests.sample_envs.not_envs:Several"'),
        ("nothing", {}, "returned None, which is not an env: pass .* a function that returns an env"),
        ("a_class", {}, "returned the class Poles, which is not an env"),
        ("Pole", {}, "needs the argument height: pass --env-kwargs height=VALUE"),
        ("Poles", {}, "needs the arguments number, height: pass --env-kwargs number=VALUE height=VALUE"),
        ("Poles", {"number": 2}, "needs the argument height: "),
        ("Poles", {"numbr": 2}, "no argument 'numbr'. Did you mean 'number'.* Its arguments are number, height"),
        ("NoSpaces", {}, "has no attribute 'observation_space'.: set self.observation_space in its __init__"),
        ("Broken", {}, r"cannot be made \(TypeError: a level is missing\): run `import tests.sample_envs.not_envs; "),
    ],
)
def test_a_class_or_function_that_is_no_env_or_needs_arguments_is_refused_with_what_to_pass(name, kwargs, words):
    with pytest.raises(ConfigError, match=words):
        check_env(f"tests.sample_envs.not_envs:{name}", settings=EnvConfig(kwargs=PlainTable(kwargs)))


def test_the_traceback_of_a_constructor_has_the_line_that_raised_the_error():
    with pytest.raises(ConfigError) as caught:
        make_envs("tests.sample_envs.not_envs:Broken", 1, seed=0)
    assert 'raise TypeError("a level is missing")' in message_with_notes(caught.value)
