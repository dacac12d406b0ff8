from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.update import Network, PPOTwin, observation_of
from tests.support.models import ACTIONS, OBSERVATIONS, policy_spec
from tests.support.thorough import examples, thorough
from tests.support.update_rows import bench, random_minibatch

from offbeat.algorithms.minibatch_types import RowRange
from offbeat.algorithms.on_policy import ACTOR_CRITIC, OnPolicy
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.algorithms.rows import minibatch_of_rows
from offbeat.config.resolve import resolve
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.seeding import stream
from offbeat.core.types import ActionSpec, EnvSpec
from offbeat.models.published import published_layout
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import build
from offbeat.runtime.serial import SerialActing

SMALL = PPOConfig(
    hidden_sizes=(6, 5),
    epochs=2,
    minibatch_size=13,
    learning_rate=0.01,
    learning_rate_schedule="constant",
    normalize_observations=False,
    normalize_returns=False,
)


# --- a whole learning step, against a slow twin -------------------------------------------------------------

NORMALIZED: dict[str, Any] = {"normalize_observations": True, "normalize_returns": True}
CORRECTED: dict[str, Any] = {"clip_reference": "proximal"}
SETTINGS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "discrete, normalised": ("discrete", 0, {**NORMALIZED, "max_grad_norm": 0.05, "entropy_coef": 0.01}),
    "discrete, recomputed": ("discrete", 0, {**NORMALIZED, "recompute_advantages": True, "epochs": 3}),
    "discrete, lagging": ("discrete", 1, NORMALIZED),
    "discrete, corrected": ("discrete", 1, {**NORMALIZED, **CORRECTED, "rho_clip": 1.2, "c_clip": 0.9}),
    "discrete, shared, symmetric KL": (
        "discrete",
        0,
        {"shared_trunk": True, "exploration": "symmetric_kl", "entropy_coef": 0.1, "activation": "relu"},
    ),
    "Gaussian": ("matrix", 0, {"value_clip": 0.2, "entropy_coef": 0.05, "normalize_advantages": False}),
    "Gaussian, lagging, recomputed": ("box", 1, {"clip": 0.05, "recompute_advantages": True, "value_clip": 0.01}),
    "Gaussian, corrected": (
        "box",
        1,
        {**NORMALIZED, **CORRECTED, "value_clip": 0.1, "activation": "relu", "clip": 0.05},
    ),
    "squashed, normalised": ("box", 0, {**NORMALIZED, "action_distribution": "squashed"}),
    "squashed, corrected, recomputed": (
        "box",
        1,
        {**CORRECTED, "action_distribution": "squashed", "recompute_advantages": True, "value_coef": 2.0},
    ),
    "several components, corrected": ("multidiscrete", 1, {**CORRECTED, "entropy_coef": 0.01, "hidden_sizes": ()}),
    "masked, observed choices, symmetric KL": (
        "multidiscrete",
        0,
        {**NORMALIZED, "exploration": "symmetric_kl", "entropy_coef": 0.1},
    ),
    "masked, one choice, corrected": ("discrete", 1, {**CORRECTED, "entropy_coef": 0.05}),
    "a tree, masked, corrected": ("tree", 1, {**NORMALIZED, **CORRECTED, "entropy_coef": 0.05}),
    "a tree, squashed": ("tree", 0, {"action_distribution": "squashed", "entropy_coef": 0.05}),
    "a tree of choices": ("choice tree", 0, {"entropy_coef": 0.05}),
    "switches": ("switches", 0, {"entropy_coef": 0.05}),
}
MORE_SPACES = ("a tree, squashed", "a tree of choices", "switches")


@pytest.mark.parametrize("name", [*(name for name in SETTINGS if name not in MORE_SPACES), *thorough(*MORE_SPACES)])
def test_two_learning_steps_equal_those_of_a_plain_loop_over_rows(name):
    action, max_lag, changes = SETTINGS[name]
    config = replace(SMALL, **changes)
    side = bench(config, action, max_lag=max_lag, observation=observation_of(name, action))
    weights = {key: array.copy() for key, array in side.algorithm.weights().items()}
    network = Network(side.spec, weights, shared=config.shared_trunk is True)
    corrected = config.clip_reference == "proximal" and max_lag > 0
    twin = PPOTwin(config, network, corrected=corrected, weighs=corrected)
    for step in range(max_lag + 2):  # the last step learns from rows that other weights acted
        batch = side.fill(step, seed=11)
        assert not batch["valid"][:-1].all(), "no reset row to go wrong"
        learned = side.learner.learn(step, progress=0.0)
        norms = twin.learn(batch, config.learning_rate, stream(5, "learn", step))
        assert learned.updates == len(norms)
        assert learned.metrics["grad_norm"] == pytest.approx(np.mean(norms), rel=1e-3)
    for key, array in side.algorithm.weights().items():
        if key in ("observation_mean", "observation_scale", "return_unit"):
            continue
        moved = np.abs(array - weights[key]).max()
        assert moved > config.learning_rate / 4, f"{key} did not learn"
        np.testing.assert_allclose(
            array, twin.network.array(key), rtol=0, atol=0.02 * config.learning_rate, err_msg=key
        )
    assert side.algorithm.weights().get("return_unit", [1.0])[0] == pytest.approx(twin.return_unit, rel=1e-4)


def test_only_the_observation_of_the_last_row_is_used_for_bootstrapping():
    left, right = bench(replace(SMALL, **NORMALIZED)), bench(replace(SMALL, **NORMALIZED))
    for side in (left, right):
        batch = side.fill(0, seed=11)
        if side is right:
            for name in ("reward", "behavior_log_prob", "terminated", "truncated", "valid", "action"):
                batch[name][-1] = 0
        side.learner.learn(0, 0.0)
    np.testing.assert_array_equal(left.parameters, right.parameters)
    batch = right.fill(1, seed=12)
    left.fill(1, seed=12)
    batch["observation"][-1] += 1
    for side in (left, right):
        side.learner.learn(1, 0.0)
    assert (left.parameters != right.parameters).any()


# --- statistics ---------------------------------------------------------------------------------------------


def test_normalizer_statistics_are_updated_after_the_step_from_valid_rows_alone():
    side = bench(replace(SMALL, **NORMALIZED))
    before = side.weights.read(0).copy()
    batch = side.fill(0, seed=11)
    side.algorithm.start(0.0)
    prepared = side.algorithm.prepare({name: torch.from_numpy(array) for name, array in batch.items()})
    for _ in side.algorithm.minibatches(prepared, stream(0, "test")):
        pass
    now = np.zeros_like(before)
    side.algorithm.write_published(now)
    np.testing.assert_array_equal(now, before)
    np.testing.assert_allclose(prepared["observation"], np.clip(batch["observation"], -10, 10), rtol=1e-6)
    side.algorithm.update_statistics(prepared)
    side.algorithm.write_published(now)
    rows = batch["observation"][:-1][batch["valid"][:-1]].astype(np.float64)
    published = published_layout(side.spec).views(now)
    np.testing.assert_allclose(published["observation_mean"], rows.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(published["observation_scale"], 1 / rows.std(axis=0), rtol=1e-5)


def test_without_normalization_no_statistics_are_computed_or_published():
    side = bench(SMALL)
    side.fill(0, seed=11)
    side.learner.learn(0, 0.0)
    assert not {"observation_mean", "observation_scale", "return_unit"} & side.algorithm.weights().keys()
    assert side.algorithm.state()["observations"]["count"] == side.algorithm.state()["returns"]["count"] == 0


# --- the policy that acted is the policy that learns ---------------------------------------------------------


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_without_lag_the_first_ratio_is_1(env):
    assignments = {"normalize_observations": "true", "minibatch_size": "64", "learning_rate": "0.01"}
    parts = build(resolve("ppo", env, flags={"envs_per_actor": 4, "unroll_length": 32}, assignments=assignments))
    parts.policy.learner.publish(0)
    acting = SerialActing(parts, 0, Reporting(print, print))
    acting.start([None])
    for step in range(4):
        acting.finish(step)
        acting.wait(step + 1)
        metrics = parts.policy.learner.learn(step, 0.0).metrics
        assert metrics["ratio_max_deviation_first"] < 1e-5
        assert metrics["approx_kl"] > 1e-6, "the policy has not moved: nothing was put to the test"
    acting.close()
    parts.close()


def test_with_lag_the_first_ratio_is_that_to_the_policy_that_acted():
    side = bench(replace(SMALL, learning_rate=0.1), max_lag=1)
    for step in range(2):
        side.fill(step, seed=11)
    first, second = (side.learner.learn(step, 0.0).metrics for step in range(2))
    assert first["ratio_max_deviation_first"] < 1e-5
    assert second["ratio_max_deviation_first"] > 0.01, "the first learning step has moved the policy"
    assert "effective_sample_size" not in second, "nothing is weighted"


@pytest.mark.parametrize("reference", ["behavior", "proximal"])
def test_at_its_second_use_the_age_of_a_batch_counts_as_a_lag(reference):
    side = bench(replace(SMALL, passes=2, clip_reference=reference, learning_rate=0.1))
    side.fill(0, seed=11)
    first, second = (side.learner.learn(step, 0.0).metrics for step in range(2))
    assert first["ratio_max_deviation_first"] < 1e-5
    assert (second["ratio_max_deviation_first"] > 0.01) == (reference == "behavior")
    assert (second.get("effective_sample_size", 1) < 0.99) == (reference == "proximal")


def test_with_lag_the_proximal_policy_is_the_policy_at_the_start_of_the_step():
    side = bench(replace(SMALL, **CORRECTED, learning_rate=0.1), max_lag=1)
    for step in range(2):
        side.fill(step, seed=11)
    first, second = (side.learner.learn(step, 0.0).metrics for step in range(2))
    assert first["effective_sample_size"] == pytest.approx(1, abs=1e-5)
    assert second["effective_sample_size"] < 0.99, "the policy that acted is another by now"
    assert max(first["ratio_max_deviation_first"], second["ratio_max_deviation_first"]) < 1e-5


# --- minibatches --------------------------------------------------------------------------------------------


def numbered_batch(length: int, columns: int, random: np.random.Generator) -> dict[str, torch.Tensor]:
    """A prepared batch in which every row's arrays say which row it is."""
    numbers = torch.arange(length * columns, dtype=torch.float32).reshape(length, columns)
    rows = {
        name: numbers.clone()
        for name in ("action", "reference_log_prob", "advantage", "value_target", "proximal_value", "reward")
    }
    observation = torch.cat([numbers, numbers[-1:] + columns])[..., None]
    valid = torch.from_numpy(random.random((length, columns)) < 0.8)
    return {**rows, "observation": observation, "valid": valid, "no_decision": torch.zeros_like(valid)}


@examples(60)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_each_epoch_cuts_the_valid_rows_into_even_minibatches(length, columns, size, epochs, seed):
    config = PPOConfig(minibatch_size=size, epochs=epochs, hidden_sizes=())
    ppo = PPO(config, policy_spec("discrete"), seed=0, corrected=False)
    batch = numbered_batch(length, columns, np.random.default_rng(seed))
    valid = batch["reward"][batch["valid"]].tolist()
    minibatches = list(ppo.minibatches(batch, stream(seed, "test")))
    parts = -(-len(valid) // size)
    assert len(minibatches) == epochs * parts
    sizes = [len(minibatch["advantage"]) for minibatch in minibatches]
    assert all(0 < rows <= size for rows in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    for epoch in range(epochs):
        drawn = [row for part in minibatches[epoch * parts : (epoch + 1) * parts] for row in part["advantage"].tolist()]
        assert sorted(drawn) == valid
    for minibatch in minibatches:
        assert minibatch["rows"] is None
        assert all(
            torch.equal(array.flatten(), minibatch["advantage"]) for array in minibatch.values() if array is not None
        )


def test_minibatches_on_the_host_are_those_of_minibatch_of_rows():
    spec = policy_spec("box")
    ppo = PPO(PPOConfig(minibatch_size=13, epochs=1, hidden_sizes=()), spec, seed=0, corrected=False)
    random = np.random.default_rng(0)
    batch = numbered_batch(8, 5, random)
    batch |= {
        name: torch.from_numpy(random.normal(size=array.shape).astype(np.float32))
        for name, array in batch.items()
        if array.dtype == torch.float32
    }
    valid = batch["valid"].flatten().nonzero().squeeze(1)
    order = torch.from_numpy(stream(0, "test").permutation(len(valid)))
    parts = valid[order].tensor_split(3)
    minibatches = list(ppo.minibatches(batch, stream(0, "test")))
    for part, minibatch in zip(parts, minibatches, strict=True):
        expected = minibatch_of_rows(spec, batch, part, None)
        assert isinstance(minibatch, RowRange)
        assert minibatch.keys() == expected.keys()
        assert minibatch["rows"] is None
        for name in minibatch.keys() - {"rows"}:
            assert torch.equal(minibatch[name], expected[name]), name
            np.testing.assert_array_equal(minibatch.arrays()[name], expected[name])


def test_a_minibatch_on_the_host_can_be_joined_with_other_arrays_as_a_dict_can():
    minibatch = RowRange({"advantage": np.arange(3.0)}, slice(1, 3))
    assert minibatch | {"advantage": "other", "more": 1} == {"advantage": "other", "rows": None, "more": 1}


def test_every_epoch_shuffles_rows_differently():
    ppo = PPO(PPOConfig(minibatch_size=40, epochs=3), policy_spec("discrete"), seed=0, corrected=False)
    batch = numbered_batch(8, 5, np.random.default_rng(0))
    orders = [tuple(part["advantage"].tolist()) for part in ppo.minibatches(batch, stream(0, "test"))]
    assert len(set(orders)) == 3
    assert all(list(order) != sorted(order) for order in orders)


# --- schedules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kl_target", "rate", "expected"),
    [
        (0.1, 0.003, 0.002),  # the KL is above twice the target
        (9.0, 0.003, 0.0045),  # below half of it
        (1.0, 0.003, 0.003),  # near it
        (0.6, 0.003, 0.003),
        (1.9, 0.003, 0.003),
        (0.1, 1.2e-6, 1e-6),  # the rate stays within its range
        (9.0, 0.009, 0.01),
        (9.0, 0.05, 0.05),  # one that starts outside of it does not go further away, and does not jump
        (0.1, 0.06, 0.04),
        (0.1, 1e-7, 1e-7),
        (9.0, 1e-7, 1.5e-7),
    ],
)
def test_the_learning_rate_adapts_to_the_kl_of_the_last_epoch(kl_target, rate, expected):
    side = bench(
        replace(SMALL, learning_rate_schedule="kl", kl_target=kl_target, learning_rate=rate, minibatch_size=99)
    )
    side.fill(0, seed=11)
    ppo = side.algorithm
    assert ppo.start(0.9)[ACTOR_CRITIC] == pytest.approx(rate)
    batch = ppo.prepare({name: torch.from_numpy(array) for name, array in side.unrolls.arrays_of(0).items()})
    for kl, _ in zip([50.0, 1.0], ppo.minibatches(batch, stream(0, "test")), strict=True):
        _report_kl(ppo, kl)
    ppo.finish(batch)
    assert ppo.start(0.9)[ACTOR_CRITIC] == pytest.approx(expected)


def test_the_learning_rate_does_not_change_while_updates_are_refused():
    side = bench(replace(SMALL, learning_rate_schedule="kl", kl_target=0.01, learning_rate=0.003))
    side.fill(0, seed=11)["reward"][...] = 1e30
    learned = side.learner.learn(0, 0.0)
    assert learned.refused == learned.updates > 0
    assert side.algorithm.start(0.0)[ACTOR_CRITIC] == pytest.approx(0.003)


def _report_kl(ppo: OnPolicy[Any], kl: float) -> None:
    """Let the algorithm see one row whose probability has fallen so far that the KL is estimated so."""
    minibatch = random_minibatch(ppo, policy_spec("discrete"), 1, 0, drift=0.0)
    minibatch["reference_log_prob"] = minibatch["reference_log_prob"] + _fall_of_kl(kl)
    result = ppo.loss(minibatch)
    assert float(result.metrics["approx_kl"]) == pytest.approx(kl, rel=1e-3)
    ppo.after_update(result)


def _fall_of_kl(kl: float) -> float:
    """Solve exp(-x) - 1 + x = kl for x > 0 by bisection."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.expm1(-middle) + middle < kl else (low, middle)
    return low


@pytest.mark.parametrize(("schedule", "clip"), [("constant", 0.2), ("linear", 0.05), ("0:1 0.5:0.5", 0.1)])
def test_the_clip_range_follows_its_schedule(schedule, clip):
    ppo = bench(replace(SMALL, clip_schedule=schedule, normalize_advantages=False)).algorithm
    minibatch = random_minibatch(ppo, policy_spec("discrete"), 200, 0)
    ppo.start(0.75)
    loss = ppo.stages[0].loss(minibatch).metrics["policy_loss"]
    ratio = torch.distributions.Categorical(logits=ppo.network(minibatch["observation"])[0])
    ratio = (ratio.log_prob(minibatch["action"]) - minibatch["reference_log_prob"]).exp().detach()
    gain = torch.minimum(ratio * minibatch["advantage"], ratio.clamp(1 - clip, 1 + clip) * minibatch["advantage"])
    assert float(loss) == pytest.approx(-gain.mean().item(), rel=1e-5)


@pytest.mark.parametrize(("kl_target", "epochs"), [(1e-7, 1), (1e3, 6), (None, 6)])
def test_training_stops_early_once_the_kl_exceeds_its_target(kl_target, epochs):
    side = bench(replace(SMALL, learning_rate=0.05, epochs=6, kl_target=kl_target))
    batch = side.fill(0, seed=11)
    parts = -(-int(batch["valid"][:-1].sum()) // SMALL.minibatch_size)
    assert side.learner.learn(0, 0.0).updates == epochs * parts


def test_epochs_continue_while_the_kl_is_below_one_and_a_half_times_its_target():
    ppo = bench(replace(SMALL, epochs=9, kl_target=1.0, minibatch_size=99)).algorithm
    batch = numbered_batch(6, 6, np.random.default_rng(0))
    drifts = iter([0.1, 1.4, 1.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    for _ in ppo.minibatches(batch, stream(0, "test")):
        _report_kl(ppo, next(drifts))
    assert len(list(drifts)) == 6, "epochs before the last do not count"


# --- what is refused ----------------------------------------------------------------------------------------

UNBOUNDED = ActionSpec("box", (2,), low=(-1.0, -np.inf), high=(1.0, 1.0))


@pytest.mark.parametrize(
    ("action", "changes", "words"),
    [
        (ACTIONS["discrete"], {"action_distribution": "squashed"}, "has Discrete actions"),
        (UNBOUNDED, {"action_distribution": "squashed"}, "actions without bounds"),
        (ACTIONS["box"], {"exploration": "symmetric_kl"}, "has Box actions: .*--set exploration=entropy"),
        (ACTIONS["tree"], {"exploration": "symmetric_kl"}, "has Dict or Tuple actions with a Box: .*=entropy"),
        (ACTIONS["choice tree"], {"action_distribution": "squashed"}, "has Dict or Tuple actions"),
    ],
)
def test_action_spaces_that_do_not_match_the_settings_are_refused(action, changes, words):
    env = EnvSpec("Test-v0", OBSERVATIONS["vector"], action, 4)
    with pytest.raises(ConfigError, match=words):
        PPOConfig(**changes).policy_spec(env)


@pytest.mark.parametrize(
    ("changes", "columns", "length", "remedy"),
    [
        ({}, 4, 8, "--set minibatch_size=2"),
        ({}, 1, 1, "--set unroll_length=2"),
        ({"core": "gru"}, 4, 1, "--set minibatch_size=2"),
    ],
)
def test_minibatches_of_one_row_are_refused_if_advantages_are_normalised(changes, columns, length, remedy):
    config, runtime = PPOConfig(minibatch_size=1, **changes), RuntimeConfig(unroll_length=length)
    with pytest.raises(ConfigError, match=f"only 1 row, whose advantage would always be 0: pass {remedy} or more"):
        config.check_columns(replace(runtime, envs_per_actor=columns), columns)


ONE_UPDATE = PPOConfig(learning_rate_schedule="kl", kl_target=0.01, epochs=1, minibatch_size=32)
"""Of a batch of 32 rows."""


@pytest.mark.parametrize(
    ("changes", "max_lag", "columns"),
    [({}, 0, 4), ({"clip_reference": "proximal"}, 1, 4), ({"core": "gru", "minibatch_size": 8}, 0, 1)],
)
def test_a_learning_rate_that_adapts_to_a_kl_that_is_always_0_is_refused(changes, max_lag, columns):
    runtime = RuntimeConfig(unroll_length=32 // columns, envs_per_actor=columns, max_lag=max_lag)
    with pytest.raises(ConfigError, match="has only one, whose KL is always 0: pass --set epochs=2 or more"):
        replace(ONE_UPDATE, **changes).check_columns(runtime, columns)


@pytest.mark.parametrize(
    ("changes", "runtime"),
    [({"epochs": 2}, {}), ({"minibatch_size": 16}, {}), ({"passes": 2}, {}), ({}, {"max_lag": 1})],
)
def test_a_learning_rate_may_adapt_to_the_kl_if_some_update_has_one(changes, runtime):
    config = RuntimeConfig(unroll_length=8, envs_per_actor=4, **runtime)
    replace(ONE_UPDATE, **changes).check_columns(config, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"minibatch_size": 2},  # 3 rows are divided into 2 and 1
        {"minibatch_size": 1, "normalize_advantages": False},
        {"minibatch_size": 1, "core": "gru"},  # a minibatch has whole columns
    ],
)
def test_minibatches_of_one_row_are_allowed_if_others_have_more_or_advantages_are_not_normalised(changes):
    length = 8 if "core" in changes else 1
    PPOConfig(**changes).check_columns(RuntimeConfig(envs_per_actor=3, unroll_length=length), 3)


@pytest.mark.parametrize(
    ("action", "distribution", "expected"),
    [
        ("discrete", "auto", "categorical"),
        ("multidiscrete", "auto", "categorical"),
        ("box", "auto", "gaussian"),
        ("box", "squashed", "squashed"),
        ("choice tree", "auto", "categorical"),
        ("tree", "auto", "gaussian"),
        ("tree", "squashed", "squashed"),
    ],
)
def test_the_distribution_matches_the_action_space(action, distribution, expected):
    env = EnvSpec("Test-v0", OBSERVATIONS["dict"], ACTIONS[action], 4)
    spec = PPOConfig(action_distribution=distribution, normalize_observations=True).policy_spec(env)
    assert (spec.distribution, spec.normalize, spec.observation) == (expected, True, OBSERVATIONS["dict"])
