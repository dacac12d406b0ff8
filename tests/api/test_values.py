"""Values of observations and probabilities of actions, from a loaded policy."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tests.sample_envs.env_zoo import SOUND, zoo_id
from tests.support.models import random_vector
from tests.support.trials import ROBOT, TRIALS, policy_for

import offbeat
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.network_config import NetworkConfig
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3_config import TD3Config
from offbeat.api.playing.critic import Critic
from offbeat.api.playing.load import policy_of
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.core.previous_inputs import previous_leaves
from offbeat.core.types import ActionSpec, Leaf, Tree
from offbeat.envs.adapters.gymnasium.mask_method import with_masks_in_infos
from offbeat.envs.checking.preflight import preflight
from offbeat.models.acting import make_policy
from offbeat.models.policy_network import CoreState
from offbeat.models.spec import PolicySpec

UNIT = 2.5
"""Units of reward in a unit of the normalised return."""


def ppo(spec: PolicySpec, config: PPOConfig) -> tuple[PPO, LoadedPolicy]:
    """Return a new algorithm with random weights and normalised returns, and its policy as loaded from a checkpoint."""
    algorithm = PPO(config, spec, seed=1, corrected=False)
    with torch.no_grad():
        for parameter in algorithm.network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) * 0.3)
    weights = algorithm.weights() | {"return_unit": np.array([UNIT], np.float32)}
    policy = policy_of(spec, weights)
    return algorithm, LoadedPolicy(policy, Trained("test", "ppo", 0, 0, 0), Critic(policy, weights))


def in_env(env_id: str, **settings: Any) -> tuple[PPO, LoadedPolicy]:
    config = PPOConfig(**{"hidden_sizes": (5,), **settings})
    return ppo(config.policy_spec(preflight(env_id)), config)


def network_inputs(policy: LoadedPolicy, inputs: Tree) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The arguments of the algorithm's network."""
    acting = policy.acting_policy
    encoded = {leaf.name: torch.from_numpy(inputs[leaf.name]) for leaf in acting.spec.encoded}
    return torch.from_numpy(acting.inputs(inputs)), encoded


@pytest.mark.parametrize("settings", [{}, {"shared_trunk": True, "layer_norm": True}], ids=["mlp", "shared"])
@pytest.mark.parametrize("env_id", [*map(zoo_id, SOUND), "Taxi-v4", "Pendulum-v1"])
def test_values_and_distributions_are_those_of_the_algorithm_for_every_kind_of_env(env_id, settings):
    algorithm, policy = in_env(env_id, **settings)
    policy, env = pickle.loads(pickle.dumps(policy)), with_masks_in_infos(gym.make(env_id, disable_env_checker=True))
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        mask = info.get("action_mask")
        leaves, _ = policy.leaves(observation, mask)
        allowed = torch.from_numpy(leaves[policy.acting_policy.spec.mask]) if policy.acting_policy.spec.mask else None
        with torch.no_grad():
            expected, values = algorithm.network.distribution_and_values(*network_inputs(policy, leaves), mask=allowed)
        assert policy.value(observation, action_mask=mask) == pytest.approx(float(values[0]) * UNIT, rel=1e-4, abs=1e-5)
        action = policy(observation, action_mask=mask)
        found = policy.distribution(observation, action_mask=mask)
        recorded = policy.acting_policy.greedy(leaves)
        log_prob = float(expected.log_prob(torch.from_numpy(recorded))[0].detach())
        assert log_prob_of(policy, found, recorded[0]) == pytest.approx(log_prob, abs=1e-4)
        assert env.action_space.contains(action)


def log_prob_of(policy: LoadedPolicy, found: offbeat.PolicyDistribution, action: Any) -> float:
    """Return the log-probability of the most likely action, as recorded, in the range of the policy."""
    spec, parts = policy.acting_policy.spec, np.ravel(action)
    total, start = 0.0, 0
    for component, count in enumerate(spec.action.nvec):
        probabilities = found.probabilities[start : start + count]
        assert probabilities.sum() == pytest.approx(1)
        total, start = total + float(np.log(probabilities[int(parts[component])])), start + count
    if found.std.size:
        std = np.ravel(found.std) / np.ravel(policy.acting_policy.to_env.half_width)
        total -= float(np.log(std * np.sqrt(2 * np.pi)).sum())
    return total


def test_the_mean_of_a_gaussian_is_in_the_units_of_the_env():
    _, policy = in_env("Pendulum-v1")
    observation = np.array([1.0, 0.0, 0.5], np.float32)
    found = policy.distribution(observation)
    random = np.random.default_rng(0)
    drawn = np.array([policy(observation, random=random) for _ in range(4000)])
    inside = np.abs(found.mean) + 3 * found.std < 2
    assert found.mean.shape == (1,)
    assert not found.is_before_tanh
    clipped = np.clip(found.mean + found.std * np.random.default_rng(1).standard_normal((4000, 1)), -2, 2)
    assert not inside.all(), "a test with clipped actions"
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [clipped.mean(), clipped.std()], atol=0.1)


@pytest.mark.parametrize("config", [PPOConfig(hidden_sizes=(5,), action_distribution="squashed"), SACConfig()])
def test_the_numbers_of_a_squashed_gaussian_are_those_before_the_tanh(config):
    spec = config.policy_spec(preflight("Pendulum-v1"))
    acting = make_policy(spec)
    acting.load(random_vector(spec, np.random.default_rng(0)))
    policy, observation = LoadedPolicy(acting, Trained("Pendulum-v1", "test", 0, 0, 0)), np.zeros(3, np.float32)
    found = policy.distribution(observation)
    assert found.is_before_tanh
    assert found.std.shape == (1,)
    np.testing.assert_allclose(2 * np.tanh(found.mean), policy(observation), rtol=1e-5)


def test_a_batch_of_observations_gives_a_batch_of_the_same_values_and_distributions():
    _, policy = in_env("zoo/MaskInInfo-v0")
    random = np.random.default_rng(0)
    observations, masks = random.normal(size=(4, 3)).astype(np.float32), random.random((4, 5)) < 0.5
    masks[:, [0, -1]] = True  # a choice of each component
    values, found = policy.value(observations, action_mask=masks), policy.distribution(observations, action_mask=masks)
    assert (values.shape, found.probabilities.shape, found.mean.shape) == ((4,), (4, 5), (4, 0))
    assert (found.probabilities[~masks] == 0).all()
    for row, (observation, mask) in enumerate(zip(observations, masks, strict=True)):
        assert type(value := policy.value(observation, action_mask=mask)) is float
        assert value == pytest.approx(values[row], rel=1e-5)
        alone = policy.distribution(observation, action_mask=mask).probabilities
        np.testing.assert_allclose(alone, found.probabilities[row], rtol=1e-5)


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_a_value_is_that_of_the_next_observation_and_changes_no_memory(core):
    algorithm, policy = in_env("CartPole-v1", core=core, core_size=6)
    twin, network = copy.deepcopy(policy), algorithm.network
    observations = np.random.default_rng(1).normal(size=(6, 2, 4)).astype(np.float32)
    state = torch.zeros(2, policy.acting_policy.state_size)
    for rows in observations:
        core_state = CoreState.of_one_row(state)
        inputs = network_inputs(policy, {"observation": rows})
        with torch.no_grad():
            values = network.value(*inputs, core_state) * UNIT
            _, state = network(*inputs, core_state)
        for _ in range(2):
            np.testing.assert_allclose(policy.value(rows), values, rtol=1e-4)
            policy.distribution(rows)
        np.testing.assert_array_equal(policy(rows), twin(rows))
    policy.reset()
    policy.value(observations[0][:1])  # of another number of envs than the next call
    policy(observations[0])


def test_values_see_stacked_frames_and_previous_inputs():
    image = Leaf("observation/image", (36, 36), "uint8", stack=2)
    config, action = PPOConfig(), ActionSpec("discrete", (), nvec=(3,))
    spec = replace(
        config.policy_spec(preflight("CartPole-v1")),
        observation=(image, *previous_leaves(action, action=True, reward=True)),
        action=action,
        encoder="nature_cnn",
        hidden_sizes=(),
        normalize=False,
    )
    algorithm, policy = ppo(spec, config)
    frames = np.random.default_rng(0).integers(256, size=(3, 36, 36), dtype=np.uint8)
    first, second = ({"image": frame} for frame in frames[:2])
    chosen = policy(first)
    inputs = {
        "observation/image": frames[None, :2],
        "previous_action": np.array([1 + chosen]),
        "previous_reward": np.array([7.0], np.float32),
    }
    with torch.no_grad():
        expected = algorithm.network.value(*network_inputs(policy, inputs)).numpy() * UNIT
    for _ in range(2):
        assert policy.value(second, reward=7.0) == pytest.approx(float(expected[0]), rel=1e-4)
    with pytest.raises(ValueError, match="pass reward="):
        policy.value(second)


def dqn() -> tuple[DQN, LoadedPolicy]:
    config = DQNConfig(hidden_sizes=(5,))
    env = preflight("zoo/MaskInInfo-v0")
    spec = config.policy_spec(replace(env, action=ActionSpec("discrete", (), nvec=(5,))))
    algorithm = DQN(config, spec, seed=1)
    policy = policy_of(spec, algorithm.weights())
    return algorithm, LoadedPolicy(policy, Trained("test", "dqn", 0, 0, 0), Critic(policy, algorithm.weights()))


def test_the_value_of_dqn_is_that_of_the_best_allowed_choice():
    algorithm, policy = dqn()
    observation, mask = np.ones(3, np.float32), np.array([0, 1, 0, 1, 1])
    with torch.no_grad():
        values = algorithm.network(torch.from_numpy(observation[None]))[0][0].numpy()
    assert policy.value(observation, action_mask=mask) == pytest.approx(values[mask > 0].max(), rel=1e-5)
    with pytest.raises(TypeError, match="this policy of dqn has no probabilities: it takes the best action"):
        policy.distribution(observation, action_mask=mask)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (SACConfig(), "its critics give values of actions"),
        (TD3Config(), "its critics give values of actions"),
        (PPOConfig(), "its weights have no critic of offbeat's"),
    ],
)
def test_a_policy_without_values_says_why(config: NetworkConfig, why: str):
    spec = config.policy_spec(preflight("Pendulum-v1"))
    assert isinstance(spec, PolicySpec)
    acting = make_policy(spec)
    policy = LoadedPolicy(acting, Trained("Pendulum-v1", "test", 0, 0, 0), Critic(acting, {}))
    with pytest.raises(TypeError, match=f"this policy of test has no values of observations, because {why}"):
        policy.value(np.zeros(3, np.float32))


def test_a_critic_with_other_layers_is_not_taken_for_that_of_offbeat():
    algorithm, policy = in_env("CartPole-v1")
    weights = algorithm.weights()
    weights["critic_body.extra.weight"] = weights["critic_body.0.weight"]
    changed = LoadedPolicy(policy.acting_policy, policy.trained, Critic(policy.acting_policy, weights))
    with pytest.raises(TypeError, match="no critic of offbeat's"):
        changed.value(np.zeros(4, np.float32))


def test_refused_observations_are_those_of_a_call():
    _, policy = in_env("CartPole-v1")
    asks: list[Any] = [policy.value, policy.distribution]
    for ask in asks:
        with pytest.raises(ValueError, match=r"observation has shape \(3,\)"):
            ask(np.zeros(3))


def test_a_distribution_given_a_task_is_that_of_the_task_variable_that_the_next_call_draws():
    policies = [LoadedPolicy(policy_for(ROBOT), Trained(ROBOT, "pearl", 0, 0, 0, trials=TRIALS)) for _ in range(2)]
    observations = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    for rows in observations:
        found = policies[0].distribution(rows)
        actions = [policy(rows) for policy in policies]
        np.testing.assert_array_equal(*actions)
        np.testing.assert_allclose(policies[0].acting_policy.to_env(np.tanh(found.mean)), actions[0], rtol=1e-5)
        for policy in policies:
            policy.reset()
