"""What of an env's observation the policies get: keys that are left out, and images that are made smaller and grey."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.sample_envs.described_images import SIDES, Described

from offbeat.config.env import EnvConfig
from offbeat.config.resolve import resolve
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable
from offbeat.core.images import reduced
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.envs.checking.check import check_env
from offbeat.envs.make import make_envs
from offbeat.envs.observations import image_notes, observation_leaves, stacked
from offbeat.envs.writers import observation_writer

COIN = ActionSpec("discrete", (), (2,))
DESCRIBED = f"{Described.__module__}:Described"
NUMBER = spaces.Box(-1, 1, (1,), np.float32)
TEXT = spaces.Text(10)


def leaves_of(space: Any, **settings: Any) -> tuple[Leaf, ...]:
    return observation_leaves(space, "Test-v0", COIN, EnvConfig(**settings))


# --- keys that are left out ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "keys"),
    [
        (spaces.Dict(mission=TEXT, x=NUMBER), "mission"),
        (spaces.Dict(words=spaces.Sequence(NUMBER), x=NUMBER), "words"),
        (spaces.Tuple((NUMBER, TEXT)), "1"),
        (spaces.Dict(a=spaces.Dict(b=TEXT, c=NUMBER), d=TEXT), "a/b,d"),
    ],
    ids=["text", "sequence", "tuple", "nested"],
)
def test_the_refusal_of_a_space_names_the_setting_that_leaves_it_out(space, keys):
    with pytest.raises(ConfigError, match=re.escape(f"pass --set ignore_observations={keys} to leave ")):
        leaves_of(space)
    (leaf,) = leaves_of(space, ignore_observations=tuple(keys.split(",")))
    target = np.zeros((1,), np.float32)
    observation = space.sample()
    observation_writer(space, [leaf], [target])(observation)
    for key in leaf.name.split("/")[1:]:
        observation = observation[int(key) if isinstance(observation, tuple) else key]
    assert target == observation


def test_an_observation_of_no_choices_is_refused_by_name_and_can_be_left_out():
    space = spaces.Dict(x=NUMBER, hand=spaces.MultiDiscrete(np.zeros(0, np.int64)))
    with pytest.raises(ConfigError, match=r"MultiDiscrete\(\[\]\) \(observation/hand\), which is empty: leave it out"):
        leaves_of(space)
    assert [leaf.name for leaf in leaves_of(space, ignore_observations=("hand",))] == ["observation/x"]


def test_a_key_leaves_out_all_that_is_inside_of_it():
    space = spaces.Dict(a=spaces.Dict(b=TEXT, c=NUMBER), ab=NUMBER)
    assert [leaf.name for leaf in leaves_of(space, ignore_observations=("a",))] == ["observation/ab"]


def test_an_observation_that_is_only_text_is_refused_with_a_wrapper_as_the_remedy():
    with pytest.raises(ConfigError, match="are supported: wrap the env in"):
        leaves_of(TEXT)


def test_a_key_that_the_observation_does_not_have_is_refused_with_those_that_it_has():
    with pytest.raises(ConfigError, match="has 'misson', which is not in the observation of Test-v0: its keys are mis"):
        leaves_of(spaces.Dict(mission=TEXT, x=NUMBER), ignore_observations=("misson",))
    with pytest.raises(ConfigError, match="so it has no keys: leave ignore_observations empty"):
        leaves_of(NUMBER, ignore_observations=("mission",))
    others = [spaces.Dict(mission=TEXT)]
    of_another_agent = EnvConfig(ignore_observations=("mission",))
    assert observation_leaves(spaces.Dict(x=NUMBER), "Test-v0", COIN, of_another_agent, others=others)


def test_all_keys_cannot_be_left_out():
    with pytest.raises(ConfigError, match="contain no inputs for a network"):
        leaves_of(spaces.Dict(mission=TEXT), ignore_observations=("mission",))


def test_a_vector_env_is_read_without_the_ignored_key():
    settings = EnvConfig(ignore_observations=("goal",))
    envs, whole = (make_envs("offbeat/PixelsGoal-v0", 3, seed=1, settings=each) for each in (settings, EnvConfig()))
    assert [leaf.name for leaf in envs.spec.observation] == ["observation/image"]
    np.testing.assert_array_equal(envs.reset()["observation/image"], whole.reset()["observation/image"])


# --- images -------------------------------------------------------------------------------------------------


def test_single_envs_and_vector_envs_give_smaller_grey_images():
    settings: dict[str, Any] = {"image_size": (16, 20), "grayscale": True}
    single = EnvConfig(**settings, ignore_observations=("mission",), frame_stack=2)
    envs, whole = (
        make_envs(DESCRIBED, 2, seed=1, settings=each) for each in (single, EnvConfig(ignore_observations=("mission",)))
    )
    image, speed = envs.spec.observation
    assert (image.shape, image.env_shape, image.stack) == ((16, 20), (*SIDES, 3), 2)
    assert (speed.shape, speed.env_shape) == ((1,), ())
    for small, large in ((envs.reset(), whole.reset()), *_one_step(envs, whole)):
        np.testing.assert_array_equal(small[image.name], reduced(large[image.name], image))
        assert small[image.name].any()
    kwargs = PlainTable({"layout": "CHW", "size": 40})
    vector = make_envs("offbeat/Pixels-v0", 2, seed=1, settings=EnvConfig(**settings, kwargs=kwargs))
    assert vector.reset()["observation"].shape == (2, 16, 20)


def _one_step(*both: Any) -> list[tuple[Any, ...]]:
    for envs in both:
        envs.send(np.zeros(2, np.int64))
    return [tuple(envs.recv().observation for envs in both)]


def test_an_image_of_another_shape_than_its_space_is_an_error():
    space = spaces.Box(0, 255, (48, 64, 3), np.uint8)
    (leaf,) = leaves_of(space, image_size=(16,))
    write = observation_writer(space, [leaf], [np.zeros(leaf.shape, np.uint8)])
    with pytest.raises(ValueError, match=re.escape("shape (48, 64) where its space declares (48, 64, 3)")):
        write(np.zeros((48, 64), np.uint8))


def test_a_frame_stack_of_small_images_is_refused_with_the_smallest_size_of_images():
    spec = EnvSpec("Test-v0", leaves_of(spaces.Box(0, 255, (12, 12, 3), np.uint8)), ActionSpec("discrete", (), (2,)), 1)
    with pytest.raises(
        ConfigError, match=r"it has no images of bytes \(np.uint8, 16 pixels a side or more\): omit it, or"
    ):
        stacked(spec, 2)


@pytest.mark.parametrize("settings", [{"image_size": (84, 84)}, {"grayscale": True}])
def test_settings_of_images_are_refused_where_there_are_none(settings):
    (key,) = settings
    with pytest.raises(ConfigError, match=f"{key} is .*, which is not supported by Test-v0 because it has no images"):
        leaves_of(NUMBER, **settings)
    with pytest.raises(ConfigError, match="Its float images must be returned as bytes from 0 to 255"):
        leaves_of(spaces.Box(0, 1, (64, 64, 3), np.float32), **settings)


@pytest.mark.parametrize("shape", [(64, 64), (64, 64, 1), (4, 64, 64)])
def test_grey_images_alone_are_refused_where_no_image_has_three_colours(shape):
    images = spaces.Box(0, 255, shape, np.uint8)
    with pytest.raises(ConfigError, match="grayscale is true, but none of the images of Test-v0 has three colours"):
        leaves_of(images, grayscale=True)
    assert leaves_of(images, grayscale=True, image_size=(32,))[0].sides == (32, 32)
    coloured = spaces.Box(0, 255, (64, 64, 3), np.uint8)
    assert [leaf.shape for leaf in leaves_of(spaces.Dict(a=images, b=coloured), grayscale=True)] == [shape, (64, 64)]


@pytest.mark.parametrize("size", [(84, 84, 3), (8,), (0, 84)])
def test_an_image_size_is_one_or_two_numbers_of_pixels(size):
    with pytest.raises(ConfigError, match="image_size is"):
        resolve("ppo", "offbeat/Pixels-v0", flags={"image_size": size})


def test_one_number_is_both_height_and_width():
    assert EnvConfig(image_size=(84,)).image_sides == (84, 84)
    assert EnvConfig(image_size=(60, 80)).image_sides == (60, 80)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((96, 96, 3), np.float32, "in float32: they go through no encoder, and take four times the memory of bytes"),
        ((3, 64, 64), np.float64, "in float32"),
        ((240, 320, 3), np.uint8, "240 x 320 pixels"),
        ((96, 96, 3), np.uint8, ""),
        ((64, 16), np.float32, ""),
        ((20, 20, 8), np.float32, ""),
        ((7,), np.float32, ""),
    ],
)
def test_float_images_and_large_images_give_a_note_with_a_remedy(shape, dtype, expected):
    notes = list(image_notes(leaves_of(spaces.Box(0, 1, shape, dtype))))
    assert len(notes) == bool(expected)
    for problem, remedy in notes:
        assert expected in problem
        assert (
            "np.uint8" if dtype != np.uint8 else "image_size=84 grayscale=true makes them 32 times smaller"
        ) in remedy


def test_check_accepts_an_env_whose_text_is_left_out():
    settings = EnvConfig(ignore_observations=("mission",), image_size=(24,), grayscale=True)
    assert check_env(DESCRIBED, columns=2, steps=30, settings=settings) == []
