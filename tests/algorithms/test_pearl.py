"""PEARL: what its stages learn from, that actors infer with the same numbers, and what it refuses."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.sac import BOUNDED, perturb, random_samples
from torch import Tensor

from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.pearl import PEARL
from offbeat.algorithms.pearl_config import PEARLConfig
from offbeat.cli.listed_settings import table_settings
from offbeat.config.env import EnvConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import PlainTable
from offbeat.core.seeding import stream
from offbeat.core.types import ActionSpec, EnvSpec, Leaf
from offbeat.losses.pearl import kl_to_prior
from offbeat.memory.replay.tasks import CONTEXT
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import TASK_VARIABLE
from offbeat.models.task_inference import TaskInference
from offbeat.workers.gradients import differentiate
from offbeat.workers.updates import UpdateMetrics, Updates

SMALL = PEARLConfig(
    hidden_sizes=(6, 5),
    context_hidden_sizes=(7,),
    latent_size=3,
    train_tasks=4,
    meta_batch=3,
    batch_size=12,
    context_size=5,
    kl_weight=0.1,
)
LEAVES = (Leaf("observation", (4,), "float32"),)


def new_pearl(action: str = "box", **changes: Any) -> PEARL:
    config = replace(SMALL, **changes)
    algorithm = PEARL(config, config.policy_spec(EnvSpec("Test-v0", LEAVES, BOUNDED[action], 4)), seed=0)
    perturb(algorithm, 0.1)
    return algorithm


def random_sampled(algorithm: PEARL, seed: int = 0) -> dict[str, Tensor]:
    config = algorithm.config
    context = random_samples(algorithm.spec, config.meta_batch * config.context_size, seed + 100)
    return random_samples(algorithm.spec, config.batch_size, seed) | {CONTEXT + name: a for name, a in context.items()}


def prepared(algorithm: PEARL, seed: int = 0) -> Minibatch:
    return algorithm.minibatch(random_sampled(algorithm, seed), stream(seed, "learn", 0))


def acting(algorithm: PEARL) -> ActingPolicy:
    vector = np.zeros(published_layout(algorithm.spec).size, np.float32)
    algorithm.write_published(vector)
    policy = make_policy(algorithm.spec)
    policy.load(vector)
    return policy


def encoder_gradients(algorithm: PEARL) -> Tensor:
    views = algorithm.critics.layout.views(algorithm.critics.gradients)
    return torch.cat([view.flatten() for name, view in views.items() if name.startswith("context_encoder")])


# --- the same numbers in actors ------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["box", "discrete", "matrix"])
@pytest.mark.parametrize("next_observation", [False, True])
def test_an_actor_infers_the_posterior_that_the_learner_infers(action: str, next_observation: bool) -> None:
    algorithm = new_pearl(action, context_next_observation=next_observation)
    sampled, tasks = random_sampled(algorithm), algorithm.config.meta_batch
    context = {
        name.removeprefix(CONTEXT): array.numpy().reshape(tasks, -1, *array.shape[1:])
        for name, array in sampled.items()
        if name.startswith(CONTEXT)
    }
    inference = TaskInference(acting(algorithm), tasks)
    for row in range(algorithm.config.context_size):
        now = {name: array[:, row] for name, array in context.items()}
        observation, following = {"observation": now["observation"]}, {"observation": now["next/observation"]}
        inference.observe(observation, now["action"], now["reward"], following, np.ones(tasks, np.bool_))
    with torch.no_grad():
        learned = algorithm.infer(prepared(algorithm))
    acted = inference.posterior()
    np.testing.assert_allclose(acted.mean, learned.mean.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(acted.variance, learned.variance.numpy(), rtol=1e-4)


def test_an_actor_acts_with_the_task_variable_as_the_learner_does() -> None:
    algorithm = new_pearl()
    observation, z = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    leaves = {"observation": observation, TASK_VARIABLE: z[:, :3]}
    with torch.no_grad():
        expected = algorithm.policy_network(torch.from_numpy(np.concatenate((observation, z[:, :3]), axis=1)), {})[0]
    np.testing.assert_allclose(acting(algorithm).parameters(leaves), expected.numpy(), rtol=1e-4, atol=1e-6)


# --- stages ---------------------------------------------------------------------------------------------------


def test_the_critic_loss_is_that_of_sac_with_the_task_variable_and_the_weighted_kl_of_all_tasks() -> None:
    algorithm = new_pearl()
    minibatch = prepared(algorithm)
    with torch.no_grad():
        mean, variance = algorithm.infer(minibatch)
        rows = []
        for task in range(3):
            z = mean[task] + variance[task].sqrt() * minibatch["task_noise"][task]
            own = slice(4 * task, 4 * task + 4)
            part = {name: minibatch[name][own] for name in ("action", "reward", "discount", "noise", "next_noise")}
            for name in ("observation", "next_observation"):
                part[name] = torch.cat((minibatch[name][own], z.expand(4, 3)), dim=1)
            errors = algorithm.values(part) - algorithm.targets(part)
            rows.append(0.5 * errors.square().sum(dim=0))
        prior = torch.distributions.Normal(torch.zeros(3, 3), torch.ones(3, 3))
        kl = torch.distributions.kl_divergence(torch.distributions.Normal(mean, variance.sqrt()), prior).sum(dim=1)
        result = algorithm.critic_loss(minibatch)
    assert float(result.loss) == pytest.approx(float(torch.cat(rows).mean() + 0.1 * kl.sum()), rel=1e-5)
    assert float(result.metrics["kl"]) == pytest.approx(float(kl.mean()), rel=1e-5)
    assert float(result.metrics["posterior_std"]) == pytest.approx(float(variance.sqrt().mean()), rel=1e-5)


def test_the_context_encoder_learns_from_the_critics_and_from_the_kl_but_not_from_the_policy() -> None:
    algorithm = new_pearl(kl_weight=0.0)
    critic, policy = algorithm.stages
    minibatch = prepared(algorithm)
    result = differentiate(critic, minibatch, algorithm.critics.gradients)
    from_critics = encoder_gradients(algorithm).clone()
    assert from_critics.abs().sum() > 0

    weighted = new_pearl(kl_weight=0.5)
    differentiate(weighted.stages[0], minibatch, weighted.critics.gradients)
    assert not torch.allclose(encoder_gradients(weighted), from_critics)

    assert critic.pass_on is not None
    critic.pass_on(result)
    algorithm.critics.gradients.zero_()
    differentiate(policy, minibatch, algorithm.policy.gradients)
    assert algorithm.policy.gradients.abs().sum() > 0
    assert not algorithm.critics.gradients.any()


def test_the_targets_give_the_context_encoder_no_gradient() -> None:
    algorithm = new_pearl(kl_weight=0.0)
    minibatch = prepared(algorithm)
    differentiate(algorithm.stages[0], minibatch, algorithm.critics.gradients)
    expected = encoder_gradients(algorithm).clone()
    algorithm.critics.gradients.zero_()
    posterior = algorithm.infer(minibatch)
    z = posterior.sample(minibatch["task_noise"]).repeat_interleave(4, dim=0)
    rows = {**minibatch, "observation": torch.cat((minibatch["observation"], z), dim=1)}
    rows["next_observation"] = torch.cat((minibatch["next_observation"], z.detach()), dim=1)
    targets = algorithm.targets(rows)
    assert not targets.requires_grad
    (0.5 * (algorithm.values(rows) - targets).square().sum(dim=0).mean()).backward()
    torch.testing.assert_close(encoder_gradients(algorithm), expected)


def test_the_policy_stage_uses_the_task_variable_of_the_critic_stage_of_the_same_update() -> None:
    algorithm = new_pearl()
    minibatch = prepared(algorithm)
    with torch.no_grad():
        z = algorithm.infer(minibatch).sample(minibatch["task_noise"]).repeat_interleave(4, dim=0)
    losses = []
    policy = algorithm.stages[1]
    original = policy.loss
    algorithm.stages = (
        algorithm.stages[0],
        replace(policy, loss=lambda batch: losses.append(original(batch)) or losses[-1]),  # type: ignore[func-returns-value]
    )
    Updates(algorithm).apply(0, minibatch, {"critic": 0.5, "policy": 0.0}, UpdateMetrics())
    with torch.no_grad():
        rows = {**minibatch, "observation": torch.cat((minibatch["observation"], z), dim=1)}
        expected = super(PEARL, algorithm).policy_loss(rows)
    assert float(losses[0].metrics["policy_loss"]) == pytest.approx(float(expected.loss), rel=1e-5)


def test_the_kl_divergence_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="must be"):
        kl_to_prior(torch.zeros(2, 3), torch.ones(3, 2))


def test_updates_lower_the_loss_on_a_minibatch() -> None:
    algorithm = new_pearl(kl_weight=0.001)
    minibatch, updates, rates = prepared(algorithm), Updates(algorithm), {"critic": 1e-2, "policy": 1e-2}
    with torch.no_grad():
        first = float(algorithm.critic_loss(minibatch).loss)
    for number in range(50):
        assert updates.apply(number, minibatch, rates, UpdateMetrics())
    with torch.no_grad():
        assert float(algorithm.critic_loss(minibatch).loss) < first / 2


def test_a_checkpoint_has_the_context_encoder_once_and_restores_what_actors_get() -> None:
    algorithm, other = new_pearl(), PEARL(SMALL, new_pearl().spec, seed=5)
    weights = algorithm.weights()
    assert sum(array.size for name, array in weights.items() if "context_encoder" in name) == (7 * 7 + 7) + (6 * 7 + 6)
    other.load_weights({name: array.copy() for name, array in weights.items()})
    assert acting(other).vector.tobytes() == acting(algorithm).vector.tobytes()
    minibatch = prepared(algorithm)
    with torch.no_grad():
        assert float(other.critic_loss(minibatch).loss) == float(algorithm.critic_loss(minibatch).loss)


# --- what is refused -------------------------------------------------------------------------------------------

RUNTIME = RuntimeConfig(actors=2, envs_per_actor=1)
FITTING = PEARLConfig(
    train_tasks=10,
    meta_batch=4,
    batch_size=64,
    context_size=20,
    prior_steps=21,
    extra_steps=21,
    warmup=500,
    max_ahead=1,
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"meta_batch": 16}, r"meta_batch is 16 tasks, but there are only train_tasks = 10.*train_tasks=16 or more"),
        ({"batch_size": 66}, r"batch_size is 66 transitions, but each of meta_batch = 4 tasks.*batch_size=68, 17 of"),
        (
            {"context_size": 21},
            r"context_size is 21 rows, but a visit brings at most \(prior_steps - 1\) x.* 20 x 1 = 20",
        ),
        ({"context_size": 21}, r"context_size=20 or less, or --set prior_steps=22 or more"),
        ({"chunk_length": 10}, r"chunk_length is 10 env steps, which does not divide.*21 \+ 21 = 42"),
        ({"capacity": 1000}, r"capacity is 1000 .* 2 x \(train_tasks \+ actors\) = 24 visits of 42 x 1.*capacity=1008"),
        ({"warmup": 167}, r"warmup is 167 transitions, but the first sample needs 168"),
        ({"chunk_length": 21, "warmup": 251}, r"the first sample needs 252"),
        ({"core": "gru"}, "core is gru, which is not supported by PEARL"),
        ({"n_step": 3}, "n_step is 3, which is not supported by PEARL"),
        ({"prioritized": True}, "prioritized is true, which is not supported by PEARL"),
        ({"normalize_observations": True}, "normalize_observations is true, which is not supported by PEARL"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_arithmetic(
    changes: dict[str, Any], says: str
) -> None:
    FITTING.check(RUNTIME)
    with pytest.raises(ConfigError, match=says):
        replace(FITTING, **changes).check(RUNTIME)


def test_the_options_say_which_settings_of_sac_are_not_supported() -> None:
    given: dict[str, Any] = dict.fromkeys(("priority_exponent", "importance_exponent", "priority_delay"), 1)
    given |= {"core": "gru", "core_size": 64, "burn_in": 0, "n_step": 3, "prioritized": True, "precision": "bf16"}
    given |= {"normalize_observations": True, "encoder": "flat", "encoder_kwargs": PlainTable({"units": 8})}
    listed = {setting.key.removesuffix(".NAME"): setting.meaning for setting in table_settings("pearl", PEARLConfig)}
    assert {name for name, meaning in listed.items() if meaning.startswith("Not supported")} == given.keys()
    for key, value in given.items():
        with pytest.raises(ConfigError, match=f"{key} is .* not supported by PEARL.*: leave it out$"):
            replace(FITTING, **{key: value})


def test_the_first_sample_of_a_run_that_is_resumed_without_its_replay_has_the_contexts_of_a_meta_batch() -> None:
    config, runtime = replace(FITTING, chunk_length=6, meta_batch=2, save_replay=False), replace(RUNTIME, actors=3)
    visits, tickets = config.visits(runtime.actors), -(-config.sample_needs(runtime) // 6)
    for origin in range(3 * visits.tickets):
        parts = Counter(visits.of(ticket).number for ticket in range(origin, origin + tickets))
        assert sum(count == visits.tickets for count in parts.values()) >= config.meta_batch


def test_inference_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match="an actor of PEARL infers the task itself"):
        FITTING.check(replace(RUNTIME, inference="worker"))


@pytest.mark.parametrize("env", [EnvConfig(reward_scale=5.0), EnvConfig(clip_rewards=True)])
def test_rewards_that_are_not_those_of_the_env_are_refused(env: EnvConfig) -> None:
    FITTING.check_env(EnvConfig())
    with pytest.raises(ConfigError, match="PEARL infers tasks from the rewards of the env"):
        FITTING.check_env(env)


@pytest.mark.parametrize("env", [EnvConfig(previous_action=True), EnvConfig(previous_reward=True)])
def test_previous_actions_and_rewards_are_refused_because_the_context_has_them(env: EnvConfig) -> None:
    with pytest.raises(ConfigError, match="not supported by PEARL, whose context has actions and rewards"):
        FITTING.check_env(env)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"observation": (Leaf("observation", (64, 64, 3), "uint8"),)}, "has images"),
        ({"agents": ("one", "other")}, "has several agents"),
        ({"no_decision": True}, "has rows without a decision"),
        ({"action": ActionSpec("multidiscrete", (), (2, 3))}, "but PEARL expects a bounded box"),
    ],
)
def test_envs_that_pearl_does_not_support_are_refused(changes: dict[str, Any], says: str) -> None:
    env = replace(EnvSpec("Test-v0", LEAVES, BOUNDED["box"], 4), **changes)
    with pytest.raises(ConfigError, match=says):
        SMALL.policy_spec(env)


def test_another_precision_is_refused_with_the_name_of_the_algorithm() -> None:
    with pytest.raises(ConfigError, match="precision is bf16, which is not supported by PEARL"):
        replace(SMALL, precision="bf16")


def test_warmup_and_capacity_follow_from_the_tasks_and_the_columns() -> None:
    table = PEARLConfig.with_defaults({"train_tasks": 10}, {"train_tasks"}, RuntimeConfig(actors=1, envs_per_actor=8))
    assert table["warmup"] == 10 * 1000 * 8
    assert table["capacity"] == 1_000_000
    table = PEARLConfig.with_defaults({}, set(), RuntimeConfig(actors=1, envs_per_actor=8))
    assert table["capacity"] == 2 * 101 * 1000 * 8
    PEARLConfig(**table).check(RuntimeConfig(actors=1, envs_per_actor=8))  # type: ignore[arg-type]
