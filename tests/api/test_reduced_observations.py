"""Runs whose policies do not get the env's text, and get its images smaller, grey and stacked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sample_envs.described_images import Described
from tests.support.runs import offbeat, small_run, weights_of
from tests.support.thorough import thorough

import offbeat as package
from offbeat.core.errors import ConfigError
from offbeat.core.images import reduced
from offbeat.exporting.export import export

SETTINGS: dict[str, Any] = {
    "imports": (Described.__module__,),
    "image_size": (16, 20),
    "grayscale": True,
    "frame_stack": 2,
    "ignore_observations": ("mission",),
    "previous_action": True,
    "encoder": "impala_resnet",
    "steps": 128,
    "envs_per_actor": 2,
    "actors": 1,
    "max_lag": 0,
    "lag": "exact",
    "normalize_observations": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return small_run(tmp_path_factory.mktemp("reduced") / "run", f"{Described.__module__}:Described", **SETTINGS).path


def test_processes_give_the_same_bits_as_serial(run, tmp_path):
    env = f"{Described.__module__}:Described"
    assert weights_of(small_run(tmp_path / "run", env, runtime="processes", **SETTINGS).path) == weights_of(run)


def test_a_resumed_run_has_the_same_bits_as_one_that_was_not_stopped(run, tmp_path):
    env = f"{Described.__module__}:Described"
    half = small_run(tmp_path / "run", env, **SETTINGS, stop_at=64)
    assert half.state == "interrupted"
    package.resume(half.path, progress="none")
    assert weights_of(half.path) == weights_of(run)


def test_a_loaded_policy_is_given_whole_observations_and_reduces_them_itself(run):
    policy, env = package.load(run, trust_code=True), Described()
    (image,) = [leaf for leaf in policy.acting_policy.spec.observation if leaf.env_shape]
    observation, _ = env.reset(seed=3)
    leaves, single = policy.leaves(observation)
    assert single
    assert leaves[image.name].shape == (1, 16, 20)
    np.testing.assert_array_equal(leaves[image.name][0], reduced(observation["image"], image))
    without_text = {key: part for key, part in observation.items() if key != "mission"}
    for _ in range(3):
        policy.reset()
        action = policy(observation)
        policy.reset()
        assert action == policy(without_text)
        observation, *_ = env.step(np.int64(action))
    policy.reset()
    batch = {"image": np.stack([observation["image"]] * 3), "speed": np.stack([observation["speed"]] * 3)}
    assert policy({**batch, "mission": ["a", "b", "c"]}).shape == (3,)
    policy.reset()
    with pytest.raises(ValueError, match=r"\(48, 64, 3\) or \(N, 48, 64, 3\) is expected"):
        policy({**observation, "image": observation["image"][:16, :20, 0]})


def test_it_is_evaluated_and_watched(run, tmp_path):
    assert offbeat("eval", run, "--episodes", 2, "--trust-code").code == 0
    video = tmp_path / "episode.gif"
    assert offbeat("watch", run, "--video", video, "--trust-code").code == 0
    assert video.stat().st_size


@pytest.mark.parametrize("made_as", ["torchscript", *thorough("onnx")])
def test_an_exported_file_takes_the_images_of_the_env(run, tmp_path, made_as):
    exported = export(run, tmp_path / "policy", format=made_as, trust_code=True)  # compares the file with the policy
    (image,) = [port for port in exported.inputs if port.name == "observation/image"]
    assert (image.shape, image.dtype) == ((2, 48, 64, 3), "uint8")


def test_a_checkpoint_with_an_impossible_shape_of_images_is_refused(run):
    from offbeat.models.spec_file import read_spec

    data = package.load(run, trust_code=True).acting_policy.spec.to_json()
    assert read_spec(data).to_json() == data
    for wrong in ([5], [48, 64, 4], [48, 64, 30_000, 30_000], [4, 4, 3]):
        changed = [leaf | {"env_shape": wrong} if leaf["env_shape"] else leaf for leaf in data["observation"]]
        with pytest.raises(ConfigError, match="which is not made from"):
            read_spec(data | {"observation": changed})
