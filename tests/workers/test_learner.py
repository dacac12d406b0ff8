from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.update_rows import COLUMNS, UNROLL_LENGTH, Bench, bench

from offbeat.algorithms.base import Batch
from offbeat.algorithms.on_policy import ACTOR_CRITIC
from offbeat.algorithms.ppo import PPOConfig
from offbeat.core.errors import RunFailed
from offbeat.core.types import NOT_ENDED
from offbeat.metrics.timings import Timings
from offbeat.models.published import published_layout
from offbeat.workers.learner import Learned, UnrollLearner
from offbeat.workers.updates import REFUSED_IN_A_ROW

WHOLE = PPOConfig(
    hidden_sizes=(6,),
    epochs=2,
    minibatch_size=99,
    learning_rate=0.01,
    learning_rate_schedule="linear",
    normalize_observations=False,
    normalize_returns=False,
)
"""One minibatch is the whole batch. Without statistics, which every batch with finite rows changes."""
ACTIONS = ["discrete", "box", "multidiscrete"]
"""The last is trained with autograd, the others with analytic gradients."""


def spoil(side: Bench, step: int, value: float, rows: slice = slice(None)) -> None:
    """Put a value that no env may give where a reward stands."""
    batch = side.fill(step, seed=11)
    batch["reward"][rows, :1][batch["valid"][rows, :1]] = value


# --- refused updates ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_non_finite_update_changes_nothing_and_republishes_the_previous_weights(action, value):
    side = bench(WHOLE, action)
    side.fill(0, seed=11)
    side.learner.learn(0, 0.0)
    before, published = side.parameters, side.weights.read(1).copy()
    moments = {name: array.copy() for name, array in side.learner.state()["adam"][ACTOR_CRITIC].items()}
    spoil(side, 1, value)
    learned = side.learner.learn(1, 0.0)
    assert (learned.updates, learned.refused) == (2, 2)
    np.testing.assert_array_equal(side.parameters, before)
    np.testing.assert_array_equal(side.weights.read(2), published)
    for name, array in side.learner.state()["adam"][ACTOR_CRITIC].items():
        np.testing.assert_array_equal(array, moments[name])


@pytest.mark.parametrize("action", ACTIONS)
def test_only_non_finite_minibatches_are_refused(action):
    side = bench(replace(WHOLE, minibatch_size=4), action)
    spoil(side, 0, np.nan, slice(0, 1))
    before = side.parameters
    learned = side.learner.learn(0, 0.0)
    assert 0 < learned.refused < learned.updates
    assert np.isfinite(side.parameters).all()
    assert (side.parameters != before).any()
    assert np.isfinite(learned.metrics["grad_norm"])


@pytest.mark.parametrize("action", ACTIONS)
def test_a_non_finite_batch_does_not_change_normalizers_and_learning_continues(action):
    side = bench(replace(WHOLE, normalize_observations=True, normalize_returns=True), action)
    spoil(side, 0, np.nan)
    assert side.learner.learn(0, 0.0).refused == 2
    side.fill(1, seed=12)
    before = side.parameters
    assert side.learner.learn(1, 0.0).refused == 0
    assert (side.parameters != before).any()
    assert np.isfinite(side.weights.read(2)).all()
    assert all(np.isfinite(array).all() for array in side.algorithm.weights().values())


def test_a_non_finite_observation_never_reaches_the_published_weights():
    side = bench(replace(WHOLE, normalize_observations=True))
    batch = side.fill(0, seed=11)
    batch["observation"][2, 1] = np.nan
    assert side.learner.learn(0, 0.0).refused == 2
    assert np.isfinite(side.weights.read(1)).all()


def test_too_many_refused_updates_in_a_row_end_the_run():
    side = bench(WHOLE)
    spoil(side, 0, np.nan)
    for _ in range(REFUSED_IN_A_ROW // 2 - 1):
        side.learner.learn(0, 0.0)
    with pytest.raises(RunFailed, match=rf"last {REFUSED_IN_A_ROW} updates.*learning_rate.*offbeat check"):
        side.learner.learn(0, 0.0)
    assert np.isfinite(side.parameters).all()


def test_one_accepted_update_resets_the_count_of_refused_ones():
    side = bench(WHOLE)
    for step in range(REFUSED_IN_A_ROW + 1):
        good = step % (REFUSED_IN_A_ROW // 2) == REFUSED_IN_A_ROW // 2 - 1
        side.fill(step, seed=11) if good else spoil(side, step, np.nan)
        assert side.learner.learn(step, 0.0).refused == (0 if good else 2)


# --- an update ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("max_grad_norm", [0.01, 1e6])
def test_gradients_are_clipped_to_max_grad_norm_and_never_scaled_up(action, max_grad_norm):
    side = bench(replace(WHOLE, epochs=1, max_grad_norm=max_grad_norm), action)
    side.fill(0, seed=11)
    norm = side.learner.learn(0, 0.0).metrics["grad_norm"]
    applied = float(np.linalg.norm(side.algorithm.groups[ACTOR_CRITIC].parameters.gradients.numpy()))
    assert norm > 0.05, "what is reported is the norm before it was scaled"
    assert applied == pytest.approx(min(norm, max_grad_norm), rel=1e-3)


def test_the_learning_rate_depends_on_the_progress():
    side = bench(WHOLE)
    side.fill(0, seed=11)
    before = side.parameters
    assert side.learner.learn(0, 1.0).metrics["learning_rate"] == 0
    np.testing.assert_array_equal(side.parameters, before)
    assert side.learner.learn(0, 0.75).metrics["learning_rate"] == pytest.approx(0.0025)
    assert np.abs(side.parameters - before).max() == pytest.approx(2 * 0.0025, rel=0.1)


def test_a_learning_step_is_reproducible_and_its_shuffle_depends_on_the_step():
    config = replace(WHOLE, minibatch_size=7)
    left, right, later = bench(config), bench(config), bench(config)
    for side, step in ((left, 0), (right, 0), (later, 5)):
        side.fill(0, seed=11)
        side.weights.open(0)
        side.learner.learn(step, 0.0)
    np.testing.assert_array_equal(left.parameters, right.parameters)
    assert (left.parameters != later.parameters).any()


def test_policies_shuffle_the_rows_of_a_learning_step_differently():
    parameters = []
    for index in (0, 1):
        side = bench(replace(WHOLE, minibatch_size=7))
        side.fill(0, seed=11)
        feed = side.learner.feed
        UnrollLearner(side.algorithm, feed, side.weights, seed=5, timings=Timings(), policy_index=index).learn(0, 0.0)
        parameters.append(side.parameters)
    assert (parameters[0] != parameters[1]).any()


# --- what is published and reported -------------------------------------------------------------------------


@pytest.mark.parametrize("max_lag", [0, 2])
def test_each_learning_step_publishes_its_weights_as_the_next_version(max_lag):
    side = bench(replace(WHOLE, normalize_observations=True), max_lag=max_lag)
    for step in range(max_lag + 1):
        side.fill(step, seed=11)
    for step in range(max_lag + 1):
        side.learner.learn(step, 0.0)
        expected = np.zeros_like(side.weights.read(step + 1))
        side.algorithm.write_published(expected)
        np.testing.assert_array_equal(side.weights.read(step + 1), expected)
    assert len({vector.tobytes() for vector in side.weights.versions().values()}) == max_lag + 1


def test_reported_counts_episodes_and_lags_are_those_of_the_batch():
    side = bench(WHOLE, max_lag=2)
    batch = {step: side.fill(step, seed=11) for step in range(3)}[2]
    batch["episode_return"][...] = np.arange(batch["episode_return"].size).reshape(batch["episode_return"].shape)
    ends = (batch["terminated"] | batch["truncated"]) & batch["valid"]
    batch["episode_length"][...] = np.where(ends, 2 * batch["episode_return"], NOT_ENDED)
    batch["behavior_version"][0] = 2
    batch["terminated"][-1] = batch["valid"][-1] = True  # row T says nothing
    places = [(t, b) for t in range(UNROLL_LENGTH) for b in range(2 * COLUMNS)]
    valid = [where for where in places if batch["valid"][where]]
    ended = [where for where in valid if batch["terminated"][where] or batch["truncated"][where]]
    assert side.learner.feed.env_steps(2) == len(valid)
    learned = side.learner.learn(2, 0.0)
    assert learned.env_steps == len(valid)
    assert sorted(learned.episode_returns.tolist()) == [float(batch["episode_return"][where]) for where in ended]
    np.testing.assert_array_equal(learned.episode_lengths, 2 * learned.episode_returns)
    assert learned.metrics["policy_lag_min"] == 0
    assert learned.metrics["policy_lag_max"] == 2
    assert learned.metrics["policy_lag_mean"] == pytest.approx(2 * 5 / 6)


def test_a_batch_that_is_used_again_counts_no_rows_again_and_gets_new_targets():
    normalized = replace(WHOLE, normalize_observations=True, normalize_returns=True)
    twice = replace(normalized, resident_batches=2, passes=2, clip_reference="proximal")
    side = bench(twice, max_lag=1)
    for step in (0, 1):
        side.fill(step, seed=11 + step)["episode_length"][0] = 3
    prepared: list[Any] = []
    statistics: list[bytes] = []
    learned: list[Learned] = []
    original = side.algorithm.prepare

    def prepare(batch: Batch) -> Batch:
        published = published_layout(side.spec).views(side.weights.read(len(learned)))
        statistics.append(published["observation_mean"].tobytes())
        prepared.append(original(batch))
        return prepared[-1]

    side.algorithm.prepare = prepare  # type: ignore[method-assign]
    rows = [int(side.unrolls.arrays_of(step)["valid"][:-1].sum()) for step in (0, 1)]
    for step in range(4):
        assert side.learner.feed.env_steps(step) == [*rows, 0, 0][step]
        learned.append(side.learner.learn(step, 0.0))
    assert [bool(step.env_steps) for step in learned] == [True, True, False, False]
    assert [len(step.episode_returns) > 0 for step in learned] == [True, True, False, False]
    assert ["policy_lag_max" in step.metrics for step in learned] == [True, True, False, False]
    assert [step.metrics["resident_share"] for step in learned] == [0, 0, 1, 1]
    assert [step.metrics["batch_uses"] for step in learned] == [1, 1, 1.5, 2]
    for first, second in ((0, 2), (1, 3)):
        assert torch.equal(prepared[first]["raw_observation"], prepared[second]["raw_observation"])
        assert not torch.equal(prepared[first]["advantage"], prepared[second]["advantage"])
        assert not torch.equal(prepared[first]["reference_log_prob"], prepared[second]["reference_log_prob"])
    assert len(set(statistics)) == 3
    assert statistics[2] == statistics[3]


def test_only_publishing_counts_as_publishing(monkeypatch):
    side, now = bench(WHOLE), [0.0]
    for part, seconds in (("finish", 1.0), ("update_statistics", 2.0), ("write_published", 4.0)):
        monkeypatch.setattr(side.algorithm, part, taking(seconds, getattr(side.algorithm, part), now))
    monkeypatch.setattr("offbeat.workers.learner.clock", lambda: now[0])
    side.learner.timings.seconds.clear()
    side.fill(0, seed=11)
    side.learner.learn(0, 0.0)
    assert side.learner.timings.seconds["learn/publish"] == 4.0
    assert side.learner.timings.seconds["learn"] == 7.0


def taking(seconds: float, function: Callable[..., Any], now: list[float]) -> Callable[..., Any]:
    """Return a function that takes as many seconds, on the clock that `now` shows."""

    def slow(*arguments: Any) -> Any:
        now[0] += seconds
        return function(*arguments)

    return slow


def test_episodes_are_counted_at_recorded_lengths_and_not_at_lost_lives():
    side = bench(WHOLE)
    batch = side.fill(0, seed=11)
    batch["terminated"][1, 0] = batch["valid"][1, 0] = True  # a lost life
    batch["valid"][3, 1] = False  # the game ended while the next life began
    batch["episode_length"][...] = NOT_ENDED
    batch["episode_length"][3, 1], batch["episode_return"][3, 1] = 7, 2.5
    batch["episode_length"][4, 0], batch["episode_return"][4, 0] = 0, -1.0  # the agent made no decision
    learned = side.learner.learn(0, 0.0)
    assert (learned.episode_lengths.tolist(), learned.episode_returns.tolist()) == ([7, 0], [2.5, -1.0])
