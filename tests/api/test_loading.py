"""What a loaded policy makes of observations as envs give them, and what it hands back."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tests.sample_envs.env_zoo import MASKED, SOUND, zoo_id
from tests.support.loaded_policies import loaded, recurrent
from tests.support.models import policy_spec, random_vector
from tests.support.registries import registries_kept
from torch import nn

import offbeat
from offbeat.algorithms.ppo import PPOConfig
from offbeat.api.playing.loaded_policy import FEW_ROWS, LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.config import registry
from offbeat.core.types import Array, Leaf
from offbeat.envs.adapters.gymnasium.mask_method import with_masks_in_infos
from offbeat.envs.checking.preflight import preflight
from offbeat.envs.spaces import action_spec
from offbeat.models.acting import make_policy
from offbeat.models.stacks import Stacks


def of_images(stack: int = 1) -> LoadedPolicy:
    """A policy that sees 36 x 36 bytes, with random weights."""
    leaf = Leaf("observation", (36, 36), "uint8", stack=stack)
    spec = replace(policy_spec("discrete"), observation=(leaf,), encoder="nature_cnn", hidden_sizes=(), normalize=False)
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(0)))
    return LoadedPolicy(policy, Trained("test", "ppo", 0, 0, 0))


def unpickled(policy: LoadedPolicy) -> LoadedPolicy:
    """A copy through pickle."""
    copy: LoadedPolicy = pickle.loads(pickle.dumps(policy))
    return copy


@pytest.mark.parametrize("env_id", [*map(zoo_id, SOUND), "Taxi-v4", "Blackjack-v1"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_loaded_policy_returns_valid_actions_for_every_kind_of_env(env_id: str, sampled: bool) -> None:
    policy, env = unpickled(loaded(env_id)), with_masks_in_infos(gym.make(env_id, disable_env_checker=True))
    random = np.random.default_rng(0) if sampled else None
    observation, info = env.reset(seed=0)
    for _ in range(20):
        action = policy(observation, action_mask=info.get("action_mask"), random=random)
        assert env.action_space.contains(action)
        observation, _, terminated, truncated, info = env.step(action)  # masked envs refuse what is not allowed
        if terminated or truncated:
            observation, info = env.reset()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_action_for_a_box_with_one_number_has_its_dtype(kind: Any) -> None:
    env = preflight("Pendulum-v1")
    spec = PPOConfig(hidden_sizes=(4,)).policy_spec(
        replace(env, action=action_spec(gym.spaces.Box(-1, 1, (), kind), "test"))
    )
    assert type(LoadedPolicy(make_policy(spec), Trained("test", "ppo", 0, 0, 0))(np.zeros(3, np.float32))) is kind


def batched(space: gym.Space[Any], observations: list[Any]) -> Any:
    batch: Any = gym.vector.utils.create_empty_array(space, len(observations))
    return gym.vector.utils.concatenate(space, observations, batch)


@pytest.mark.parametrize("kind", SOUND)
def test_a_batch_of_observations_gives_a_batch_of_the_same_actions(kind: Any) -> None:
    policy, env = loaded(zoo_id(kind)), with_masks_in_infos(gym.make(zoo_id(kind), disable_env_checker=True))
    given = [env.reset(seed=seed) for seed in range(5)]
    masks: list[Any] = [info.get("action_mask") for _, info in given]
    many = policy(
        batched(env.observation_space, [observation for observation, _ in given]),
        action_mask=None if masks[0] is None else np.stack(masks),
    )
    one_by_one = [policy(observation, action_mask=mask) for (observation, _), mask in zip(given, masks, strict=True)]
    for column, alone in enumerate(gym.vector.utils.iterate(gym.vector.utils.batch_space(env.action_space, 5), many)):
        assert gym.spaces.utils.flatten(env.action_space, alone) == pytest.approx(
            gym.spaces.utils.flatten(env.action_space, one_by_one[column]), abs=1e-5
        )


def test_a_policy_trained_with_masks_of_infos_requires_an_action_mask() -> None:
    policy = loaded("zoo/MaskInInfo-v0")
    with pytest.raises(ValueError, match=r"pass action_mask=info\['action_mask'\]"):
        policy(np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("env_id", "trained"),
    [("CartPole-v1", "without masks"), ("zoo/Masked-v0", "with masks in its observations")],
)
def test_an_action_mask_that_a_policy_cannot_use_is_refused(env_id: str, trained: str) -> None:
    env: Any = gym.make(env_id)
    with pytest.raises(ValueError, match=f"this policy was trained {trained}: leave action_mask out"):
        loaded(env_id)(env.reset(seed=0)[0], action_mask=np.ones(env.action_space.n))


def test_masks_of_a_wrong_size_and_unknown_discrete_values_are_refused() -> None:
    assert MASKED
    with pytest.raises(ValueError, match=r"action_mask has shape \(4,\)"):
        loaded("zoo/MaskInInfo-v0")(np.zeros(3, np.float32), action_mask=np.ones(4))
    observation = gym.make("zoo/TreeObservations-v0").reset(seed=0)[0]
    with pytest.raises(ValueError, match=r"card is \[3\], which is not one of the choices .* from -2 to 2 "):
        loaded("zoo/TreeObservations-v0")({**observation, "card": 3})


@pytest.mark.parametrize("pixels", [np.full((36, 36), 0.7, np.float32), np.full((36, 36), 300), np.full((36, 36), -1)])
def test_image_observations_that_uint8_cannot_represent_are_refused(pixels: Any) -> None:
    policy = of_images()
    policy(np.full((36, 36), 200))  # of another dtype, and the same
    with pytest.raises(ValueError, match=r"integers from 0 to 255 are expected.*pass them as uint8"):
        policy(pixels)


def test_a_custom_encoder_receives_the_dtypes_that_it_was_trained_on():
    """The env observes a place in float64, and training keeps it in float32."""
    with registries_kept():
        offbeat.register_encoder("summing", Summing)
        spec = PPOConfig(encoder="summing").policy_spec(preflight("zoo/DictObservations-v0"))
        policy = LoadedPolicy(make_policy(spec), Trained("test", "ppo", 0, 0, 0))
        assert policy(gym.make("zoo/DictObservations-v0").reset(seed=0)[0]) in (0, 1)


@pytest.mark.parametrize("name", ["summing", "summing#1"])
def test_a_policy_with_a_registered_or_a_passed_encoder_is_unpickled_where_the_encoder_is_not_known(name):
    encoders = registry.GIVEN_ENCODERS if "#" in name else registry.ENCODERS
    with registries_kept():
        encoders[name] = Summing
        spec = PPOConfig(encoder=name).policy_spec(preflight("zoo/DictObservations-v0"))
        pickled = pickle.dumps(LoadedPolicy(make_policy(spec), Trained("test", "ppo", 0, 0, 0)))
    with registries_kept():
        copy = pickle.loads(pickled)
    assert copy(gym.make("zoo/DictObservations-v0").reset(seed=0)[0]) in (0, 1)


class Summing(nn.Module):
    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(observation["place"].size, 4)

    def forward(self, observations: Any) -> Any:
        features: Any = self.layer(observations["place"]) + observations["image"].flatten(1).sum(1, keepdim=True)
        return features


def answers(policy: LoadedPolicy, observations: Array, envs: slice = slice(None)) -> list[Any]:
    return [policy(rows[envs]).tolist() for rows in observations]


def test_a_policy_with_a_core_keeps_its_state_until_reset() -> None:
    policy = recurrent()
    observations = np.random.default_rng(1).normal(size=(30, 4, 3)).astype(np.float32)
    first = answers(policy, observations)
    copy = unpickled(policy)
    assert (second := answers(policy, observations)) != first  # it remembers the first time
    assert answers(copy, observations) == second
    policy.reset()
    assert answers(policy, observations) == first
    policy.reset(np.array([True, False, True, True]))
    third = np.array(answers(policy, observations))
    np.testing.assert_array_equal(third[:, [0, 2, 3]], np.array(first)[:, [0, 2, 3]])
    assert (third[:, 1] != np.array(first)[:, 1]).any()


def test_a_policy_with_a_core_refuses_a_changed_number_of_envs_within_an_episode() -> None:
    policy = recurrent()
    policy(np.zeros((4, 3), np.float32))
    with pytest.raises(
        ValueError, match=r"3 observations are given, but the policy has the memory of 4 envs: call reset\(\)"
    ):
        policy(np.zeros((3, 3), np.float32))


def test_the_flags_of_a_reset_are_those_of_the_envs_that_the_policy_remembers() -> None:
    policy = recurrent()
    policy(np.zeros((3, 3), np.float32))
    for ended in ([True, False], True, [[True, False, False]]):
        with pytest.raises(ValueError, match=r"ended has shape \(.*\), but \(3,\) is expected: one value for each env"):
            policy.reset(ended)
    policy.reset()
    first = policy(np.ones(3, np.float32))
    policy.reset(True)  # of one env
    assert policy(np.ones(3, np.float32)) == first


def test_a_policy_with_stacked_frames_takes_single_frames() -> None:
    called = of_images(stack=3)
    policy, stacks = called.acting_policy, Stacks(called.acting_policy.spec.observation, 2)
    random = np.random.default_rng(1)
    for step in range(12):
        frames = {"observation": random.integers(256, size=(2, 36, 36), dtype=np.uint8)}
        ended = np.array([step == 0, step in (0, 5)])
        if step == 5:
            called.reset(ended)
        stacks.push(frames, ended)
        np.testing.assert_array_equal(called(frames["observation"]), policy.greedy(stacks.with_stacks(frames)))
    assert called.remembers


@pytest.mark.parametrize(("envs", "expected"), [(FEW_ROWS, 1), (FEW_ROWS + 1, 3)])
def test_only_many_observations_at_once_are_computed_with_all_threads_of_torch(
    monkeypatch: pytest.MonkeyPatch, envs: int, expected: int
) -> None:
    policy, before = of_images(), torch.get_num_threads()
    seen, network = [], policy.acting_policy.network
    assert network is not None
    forward = network.forward

    def watched(*arguments: Any) -> Array:
        seen.append(torch.get_num_threads())
        return forward(*arguments)

    monkeypatch.setattr(network, "forward", watched)
    torch.set_num_threads(3)
    try:
        policy(np.zeros((envs, 36, 36), np.uint8))
        assert (seen, torch.get_num_threads()) == ([expected], 3)
    finally:
        torch.set_num_threads(before)
