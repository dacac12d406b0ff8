from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.env_rows import assert_same
from tests.support.replay_runs import updates_due
from tests.support.thorough import examples

from offbeat.algorithms import replay_config
from offbeat.algorithms.replay_actor_critic import CRITIC
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.core.pace import ReplayPace
from offbeat.core.seeding import stream
from offbeat.core.types import NOT_ENDED, ActionSpec, Array, EnvSpec, Leaf, Tree, env_fields
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.timings import Timings
from offbeat.models.published import published_layout
from offbeat.workers.learner import Learned
from offbeat.workers.replay_feed import ReplayFeed
from offbeat.workers.replay_learner import ReplayLearner
from offbeat.workers.staging import Staging

COLUMNS, LENGTH = 3, 2
ENV = EnvSpec("Test-v0", (Leaf("observation", (4,), "float32"),), ActionSpec("discrete", (), nvec=(3,)), COLUMNS)
SMALL = SACConfig(hidden_sizes=(5,), batch_size=8, warmup=8, capacity=60, chunk_length=LENGTH, learning_rate=0.01)


class RecordingReplay(TransitionReplay):
    """Keeps which rows were sampled, and the errors that it was told of."""

    def __init__(self, rings: Rings, **settings: Any) -> None:
        super().__init__(rings, **settings)
        self.samples: list[Samples] = []
        self.errors: list[Array] = []

    def sample(self, random: np.random.Generator) -> Samples:
        samples = super().sample(random)
        self.samples.append(Samples(samples.arrays, *(part.copy() for part in samples[1:])))
        return samples

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        self.errors.append(errors.copy())
        super().update_priorities(samples, errors)


class Bench:
    """A learner with a replay that a test fills by hand."""

    def __init__(
        self,
        config: SACConfig,
        max_ahead: int = 2,
        ratio: Fraction = Fraction(1),
    ) -> None:
        self.config, self.max_ahead, self.ratio = config, max_ahead, ratio
        spec = config.policy_spec(ENV)
        self.algorithm, self.pace = SAC(config, spec, seed=3), ReplayPace(ratio, config.warmup, max_ahead)
        shape, fields = RingShape(self.pace, 1, COLUMNS, LENGTH, config.capacity), env_fields(ENV)
        slabs = [*shape.slabs(fields), *weight_slabs(published_layout(spec).size, self.pace.versions)]
        arrays = private_arena(slabs)
        self.rings, self.weights = Rings(shape, fields, arrays), Weights(arrays)
        with patch.object(replay_config, "TransitionReplay", RecordingReplay):
            replay = config.replay(self.rings)
        assert isinstance(replay, RecordingReplay)
        self.replay = replay
        feed = ReplayFeed(replay, self.pace, Staging("cpu"), saved=config.save_replay)
        self.learner = ReplayLearner(self.algorithm, feed, self.weights, seed=5, timings=Timings())
        self.learner.publish(0)

    def fill(self, ticket: int, *, lag: int = 0, valid: Array | bool = True, reward: float | None = None) -> Tree:
        """Write random rows that were acted by the version of `lag` steps before."""
        slot, random = self.rings.open(ticket), np.random.default_rng(ticket)
        slot["observation"][...] = random.normal(size=slot["observation"].shape)
        slot["action"][...] = random.integers(3, size=slot["action"].shape)
        slot["reward"][...] = random.normal(size=slot["reward"].shape) if reward is None else reward
        slot["valid"][:-1] = valid
        slot["terminated"][...] = slot["truncated"][...] = False
        slot["behavior_version"][...] = ticket - lag
        return slot

    def learn(self, ticket: int, **filling: Any) -> Learned:
        self.fill(ticket, **filling)
        return self.learner.learn(ticket, 0.0)

    def values(self) -> Tree:
        """Return a copy of all that is learned."""
        return {name: array.copy() for name, array in self.algorithm.weights().items()}

    def counted(self) -> Any:
        return self.learner.state()["counted"]


# --- the ratio ----------------------------------------------------------------------------------------------

RATIOS = [Fraction(1), Fraction(1, 4), Fraction("0.37"), Fraction(3), Fraction(7, 3)]


@examples(20)
@given(ratio=st.sampled_from(RATIOS), warmup=st.integers(8, 30), seed=st.integers(0, 99))
def test_each_ticket_triggers_the_updates_that_its_transitions_make_due(ratio, warmup, seed):
    config, random = replace(SMALL, warmup=warmup), np.random.default_rng(seed)
    bench, made, transitions = Bench(config, ratio=ratio), 0, 0
    for ticket in range(14):
        valid = random.random((LENGTH, COLUMNS)) < random.choice([0, 0.6, 1])
        learned = bench.learn(ticket, valid=valid)
        transitions += int(valid.sum())
        assert learned.env_steps == int(valid.sum()) == bench.learner.feed.env_steps(ticket)
        assert learned.updates == updates_due(ratio, warmup, transitions) - made
        made += learned.updates
        assert len(bench.replay.samples) == made, "an update is a sample"
        assert bench.replay.next_ticket == ticket + 1
        assert learned.metrics["replay_size"] == bench.replay.size
        if transitions > warmup:
            assert learned.metrics["utd_ratio"] == pytest.approx(made / (transitions - warmup))
            assert learned.metrics["samples_per_insert"] == pytest.approx(8 * made / (transitions - warmup))
        else:
            assert "utd_ratio" not in learned.metrics


def test_updates_sample_only_from_tickets_up_to_their_own():
    bench = Bench(SMALL)
    for ticket in range(4):
        bench.fill(ticket)
    for step in range(2):
        before = len(bench.replay.samples)
        bench.learner.learn(step, 0.0)
        for samples in bench.replay.samples[before:]:
            assert set(samples.tickets.tolist()) <= set(range(step + 1))
    assert bench.replay.samples


def test_each_learning_step_samples_from_its_own_random_stream():
    bench = Bench(SMALL)
    for ticket in range(6):
        before = len(bench.replay.samples)
        bench.learn(ticket)
        if ticket:
            first, again = bench.replay.samples[before], bench.replay.sample(stream(5, "learn", ticket))
            np.testing.assert_array_equal(first.cells, again.cells)


def test_update_numbers_continue_across_steps_and_resumes_for_a_delayed_policy():
    bench = Bench(replace(SMALL, policy_delay=3), ratio=Fraction(1, LENGTH * COLUMNS))
    made, changed = 0, []
    for ticket in range(16):
        if ticket == 9:
            bench, _ = restored(bench, with_replay=False, step=9)
        before = bench.values()["policy_head.weight"]
        made += bench.learn(ticket, lag=min(2, ticket)).updates
        if (bench.values()["policy_head.weight"] != before).any():
            changed.append(made - 1)
    assert changed == [0, 3, 6, 9]


def test_metrics_are_those_of_the_ticket_and_lags_count_learning_steps():
    bench = Bench(SMALL)
    bench.learn(0)
    bench.learn(1)
    slot = bench.fill(2, lag=1)
    slot["valid"][0, 0] = False
    slot["terminated"][0] = slot["truncated"][1, 2] = True
    slot["episode_return"][:-1] = np.arange(6).reshape(2, 3)
    ends = (slot["terminated"] | slot["truncated"])[:-1]
    slot["episode_length"][:-1] = np.where(ends, 10 * slot["episode_return"][:-1], NOT_ENDED)
    learned = bench.learner.learn(2, 0.0)
    assert learned.env_steps == 5
    np.testing.assert_array_equal(learned.episode_returns, [0, 1, 2, 5])
    np.testing.assert_array_equal(learned.episode_lengths, [0, 10, 20, 50])
    assert {learned.metrics[f"policy_lag_{name}"] for name in ("min", "mean", "max")} == {1}


def test_only_observations_of_valid_rows_enter_the_statistics():
    bench = Bench(replace(SMALL, normalize_observations=True))
    slot = bench.fill(0)
    slot["valid"][0, 0] = False
    seen = slot["observation"][:-1][slot["valid"][:-1]].copy()
    bench.learner.learn(0, 0.0)
    state = bench.algorithm.state()["observations"]
    assert state["count"] == len(seen) == 5
    np.testing.assert_allclose(state["mean"], seen.mean(axis=0, dtype=np.float64), rtol=1e-12)


# --- versions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_ahead", [0, 3])
def test_each_learning_step_publishes_a_version_and_keeps_those_that_actors_may_need(max_ahead):
    bench = Bench(SMALL, max_ahead)
    updates, uniform = [], []
    for ticket in range(5):
        learned = bench.learn(ticket)
        expected = np.zeros_like(bench.weights.read(ticket + 1))
        bench.algorithm.write_published(expected)
        np.testing.assert_array_equal(bench.weights.read(ticket + 1), expected)
        assert sorted(bench.weights.versions()) == list(range(max(0, ticket + 1 - max_ahead), ticket + 2))
        updates.append(learned.updates)
        uniform.append(float(bench.algorithm.weights()["uniform"][0]))
    assert updates == [0, 4, 6, 6, 6]
    assert uniform == [1, 0, 0, 0, 0]


@examples(15)
@given(max_ahead=st.integers(0, 3), lags=st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_sample_age_counts_updates_since_the_weights_that_acted_the_sample(max_ahead, lags):
    bench = Bench(SMALL, max_ahead, Fraction(2, 3))
    had, acted = {0: 0}, {}  # version -> updates it has had; ticket -> version that acted it
    for ticket, wanted in enumerate(lags):
        lag = min(wanted, max_ahead, ticket)
        acted[ticket], before = ticket - lag, len(bench.replay.samples)
        learned = bench.learn(ticket, lag=lag)
        had[ticket + 1] = len(bench.replay.samples)
        ages = [
            [made - had[acted[of]] for of in samples.tickets.tolist()]
            for made, samples in enumerate(bench.replay.samples[before:], before)
        ]
        if ages:
            assert learned.metrics["sample_age_min"] == min(map(min, ages))
            assert learned.metrics["sample_age_max"] == max(map(max, ages))
            assert learned.metrics["sample_age_mean"] == pytest.approx(np.mean(ages))
        else:
            assert "sample_age_mean" not in learned.metrics


# --- refused updates ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_refused_update_keeps_the_weights_and_counts_for_the_update_ratio(value, prioritized):
    bench = Bench(replace(SMALL, prioritized=prioritized))
    bench.learn(0, reward=value)
    before, published = bench.values(), bench.weights.read(1).copy()
    moments = {name: array.copy() for name, array in bench.learner.state()["adam"][CRITIC].items()}
    learned = bench.learn(1, reward=value)
    assert learned.updates == learned.refused == 12 - 8
    assert_same(bench.algorithm.weights(), before)
    assert_same(bench.learner.state()["adam"][CRITIC], moments)
    np.testing.assert_array_equal(bench.weights.read(2), published)
    assert learned.metrics["utd_ratio"] == 1
    assert len(bench.replay.errors) == 0
    assert bench.learn(2).updates == 6, "no update is made up for"
    assert bench.counted()["made"] == 10


def test_priorities_are_updated_once_for_each_applied_update():
    config = replace(SMALL, prioritized=True, batch_size=2)
    bench, refused, updates = Bench(config), 0, 0
    for ticket in range(8):
        bench.fill(ticket)["reward"][0] = np.nan if ticket == 0 else 0
        learned = bench.learner.learn(ticket, 0.0)
        refused, updates = refused + learned.refused, updates + learned.updates
    assert 0 < refused < updates == len(bench.replay.samples)
    assert len(bench.replay.errors) == updates - refused
    assert all(np.isfinite(errors).all() and errors.shape == (2,) for errors in bench.replay.errors)
    assert all(np.isfinite(array).all() for array in bench.algorithm.weights().values())


def test_a_row_with_a_larger_error_is_sampled_more_often():
    config = replace(SMALL, prioritized=True, priority_exponent=1.0, critic_learning_rate=1e-9)
    bench = Bench(config, ratio=Fraction(4))
    bench.learn(0)
    bench.fill(1)["reward"][0, 0] = 500
    bench.learner.learn(1, 0.0)
    before = len(bench.replay.samples)
    bench.learn(2)
    place = np.concatenate([samples.cells for samples in bench.replay.samples[before:]])
    erring = LENGTH * COLUMNS
    assert np.mean(place == erring) > 0.5, "one row of eighteen"


def test_a_replay_without_priorities_gets_no_priority_updates():
    bench = Bench(SMALL)
    for ticket in range(4):
        bench.learn(ticket)
    assert bench.replay.samples
    assert not bench.replay.errors


# --- going on -----------------------------------------------------------------------------------------------


def restored(bench: Bench, *, with_replay: bool, step: int) -> tuple[Bench, str]:
    """Return another that goes on from where this one is, as a resumed run does."""
    other = Bench(bench.config, bench.max_ahead, bench.ratio)
    kept = bench.learner.feed.checkpoint_arrays()
    other.algorithm.load_weights(bench.algorithm.weights())
    other.learner.restore(bench.learner.state())
    said = other.learner.feed.load_checkpoint(kept if with_replay else None, step)
    for version, vector in bench.weights.versions().items():
        other.weights.open(version)[:] = vector
        other.weights.commit(version)
    return other, said


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_restored_learner_makes_the_same_updates(prioritized):
    bench = Bench(replace(SMALL, prioritized=prioritized, n_step=2, policy_delay=2))
    for ticket in range(12):
        bench.learn(ticket, lag=min(2, ticket))
    other, said = restored(bench, with_replay=True, step=12)
    assert said == f"the replay of {bench.replay.size} transitions restored"
    for ticket in range(12, 20):
        one, same = (side.learn(ticket, lag=2) for side in (bench, other))
        assert one.metrics == same.metrics
    assert_same(other.algorithm.weights(), bench.algorithm.weights())


def test_a_learner_restored_without_its_replay_warms_up_again_and_continues_its_counters():
    bench = Bench(SMALL)
    made = sum(bench.learn(ticket).updates for ticket in range(10))
    other, said = restored(bench, with_replay=False, step=10)
    assert "warms up again" in said
    taken = [other.learn(ticket, lag=2) for ticket in range(10, 14)]
    assert [learned.updates for learned in taken] == [0, 12 - 8, 6, 6]
    assert [learned.metrics["replay_size"] for learned in taken] == [6, 12, 18, 24]
    assert other.counted()["made"] == made + 16
    assert {ticket for samples in other.replay.samples for ticket in samples.tickets.tolist()} == {10, 11, 12, 13}
    at_versions = other.counted()["updates_at_version"]
    assert sorted(at_versions.tolist()) == [made + 4, made + 10, made + 16], "of the versions that may still act"
    oldest_that_acted = bench.counted()["updates_at_version"].min()
    assert taken[1].metrics["sample_age_max"] == made + 3 - oldest_that_acted


def test_save_replay_false_leaves_the_replay_out_of_checkpoints():
    for saved in (True, False):
        bench = Bench(replace(SMALL, save_replay=saved))
        bench.learn(0)
        assert (bench.learner.feed.checkpoint_arrays() is not None) == saved


def test_a_rehearsed_update_counts_the_env_steps_that_make_one_update_due():
    bench = Bench(SMALL, ratio=Fraction(1, 4))
    for ticket in range(3):
        bench.learn(ticket)
    before = len(bench.replay.samples)
    assert bench.learner.rehearse(3) == 4
    assert len(bench.replay.samples) == before + 1
    assert bench.counted()["due"] == updates_due(Fraction(1, 4), 8, 18), "it counts for nothing"


def test_the_replay_takes_in_one_ticket_at_a_time():
    bench = Bench(SMALL)
    bench.fill(1)
    with pytest.raises(ValueError, match="got ticket 1, but the next ticket to take in is 0"):
        bench.learner.learn(1, 0.0)


def test_gradients_are_enabled_while_it_learns_and_then_as_the_env_has_set_them():
    bench = Bench(SMALL)
    with torch.no_grad():
        for ticket in range(3):
            bench.learn(ticket)
        bench.learner.rehearse(3)
        assert not torch.is_grad_enabled()
    assert bench.counted()["due"] > 0
