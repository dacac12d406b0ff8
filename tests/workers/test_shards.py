"""Updates with shards: those of the whole minibatch within rounding, with the same bits for any number of learners."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.support.collectives import Meeting, together
from tests.support.shard_cases import SHARD_CASES, SMALL, ShardCase, transitions
from tests.support.thorough import thorough
from tests.support.update_cases import learned_by, stages_on_a_device
from tests.support.update_rows import bench
from torch import Tensor

from offbeat.algorithms.base import Batch, LossResult, Minibatch, Shard
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.algorithms.ppo import PPOConfig
from offbeat.core.errors import RunFailed
from offbeat.core.types import Array
from offbeat.models.collective import ALONE, AllShards, Collective
from offbeat.models.storage import Storage
from offbeat.workers.gradients import Gradients
from offbeat.workers.shard_vectors import VectorLayout
from offbeat.workers.updates import UpdateMetrics, Updates

SEVERAL = ["ppo", "ppo, rows without a decision", "ppo, gru", "sac, prioritized, fast path", "dqn, gru, prioritized"]
"""Minibatches of every kind: of rows, some without a decision, of columns, of transitions and of sequences."""


@pytest.fixture(params=["decided on the host", "decided on the device"])
def decided(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take one of the two ways to decide whether an update is applied."""
    with stages_on_a_device() if "device" in request.param else nullcontext():
        yield


# --- the same result as without shards ----------------------------------------------------------------------


class Computed(NamedTuple):
    """What was computed for a stage."""

    result: LossResult
    gradients: Tensor


def computed(case: ShardCase, collective: Collective) -> list[Computed]:
    """Return what is computed for each stage and minibatch, while nothing is learned."""
    algorithm, minibatches = case(collective)
    everything = []
    for minibatch in minibatches:
        differentiate = Gradients(algorithm).of(minibatch)
        for stage in algorithm.stages:
            result = differentiate(stage)
            everything.append(Computed(result, algorithm.groups[stage.group].parameters.gradients.clone()))
            if stage.pass_on is not None:
                stage.pass_on(result)
    return everything


def assert_close(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(np.asarray(other[name]), np.asarray(value), rtol=1e-4, atol=1e-5, err_msg=name)


@cache
def computed_whole(case: str) -> list[Computed]:
    """Return what is computed for each stage and minibatch of a case without shards."""
    return computed(SHARD_CASES[case], AllShards(1))


@pytest.mark.parametrize(
    ("case", "shards"),
    [
        *((case, 13 if case in SEVERAL else 3) for case in SHARD_CASES),
        *thorough(*((case, 3 if case in SEVERAL else 13) for case in SHARD_CASES)),
    ],
)
def test_gradients_and_results_of_shards_are_those_of_the_whole_minibatch(case, shards):
    """Most minibatches have fewer rows, columns or sequences than 13."""
    whole, cut = computed_whole(case), computed(SHARD_CASES[case], AllShards(shards))
    for (expected, of_whole), (result, of_shards) in zip(whole, cut, strict=True):
        largest = float(of_whole.abs().max())
        assert largest > 1e-4
        np.testing.assert_allclose(of_shards, of_whole, rtol=1e-4, atol=1e-5 * largest)
        assert float(result.loss) == pytest.approx(float(expected.loss), rel=1e-4, abs=1e-5)
        assert_close(expected.metrics, result.metrics)
        assert_close(expected.outputs, result.outputs)


def test_shards_are_added_up_in_the_order_of_a_binary_tree():
    vectors, gradients = torch.randn(5, 101, generator=torch.Generator().manual_seed(0)), torch.empty(100)
    shards = [Shard(slice(k, k + 1), 1, dict) for k in range(5)]
    result = VectorLayout("loss", 100, (), (), (), ()).combined(vectors, gradients, shards)
    sums = ((vectors[0] + vectors[1]) + (vectors[2] + vectors[3])) + vectors[4]
    assert torch.equal(gradients, sums[:100] / 5)
    assert float(result.loss) == float(sums[100] / 5)


TARGETS = ("advantage", "value_target", "proximal_value", "reference_log_prob")


@pytest.mark.parametrize("case", [case for case in SHARD_CASES if not case.startswith(("sac", "td3", "dqn"))])
def test_targets_that_are_computed_by_columns_are_those_of_the_whole_batch(case):
    """A batch has 6 columns."""
    shards = 13 if case in SEVERAL else 3
    whole, cut = (SHARD_CASES[case](AllShards(count)).minibatches for count in (1, shards))
    for expected, minibatch in zip(whole, cut, strict=True):
        assert_close({name: expected[name] for name in TARGETS}, {name: minibatch[name] for name in TARGETS})


def test_without_shards_a_minibatch_is_not_cut(monkeypatch):
    monkeypatch.setattr(DQN, "cut", None)
    assert computed(SHARD_CASES["dqn"], ALONE)


# --- the same bits for any number of learners ---------------------------------------------------------------


class Learner:
    """One of the learners of an algorithm, with its own replica."""

    def __init__(self, case: ShardCase, collective: Collective) -> None:
        self.algorithm, self.minibatches = case(collective)
        self.updates, self.metrics = Updates(self.algorithm), UpdateMetrics()
        self.applied: list[bool] = []
        self.priorities: list[Array] = []

    def learn(self) -> None:
        rates = self.algorithm.start(0.3)
        for number, minibatch in enumerate(self.minibatches):
            self.applied.append(self.updates.apply(number, minibatch, rates, self.metrics))
            if isinstance(self.algorithm, OffPolicy) and self.algorithm.config.prioritized:
                self.priorities.append(self.algorithm.priorities(minibatch))

    def arrays(self) -> dict[str, Array]:
        """Return all that updates change."""
        priorities = {f"priorities/{number}": array for number, array in enumerate(self.priorities)}
        return {**learned_by(self.algorithm, self.updates), **priorities}


def learned(case: ShardCase, shards: int, learners: int) -> list[Learner]:
    """Let learners compute all updates of a case together; return them."""
    meeting = Meeting(shards, learners)

    def learner(rank: int) -> Learner:
        """Make a learner in its own thread, because learners prepare batches together too."""
        side = Learner(case, meeting.of(rank))
        side.learn()
        return side

    sides = together([partial(learner, rank) for rank in range(learners)])
    assert len(set(meeting.calls)) == 1
    return sides


@cache
def learned_alone(case: str, shards: int) -> Learner:
    """Return the one learner that has computed all updates of a case, which changed what it learns."""
    alone = Learner(SHARD_CASES[case], AllShards(shards))
    before = alone.arrays()
    alone.learn()
    assert all(alone.applied)
    assert any((array != before.get(name)).any() for name, array in alone.arrays().items())
    return alone


def assert_same(one: Learner, other: Learner) -> None:
    assert one.applied == other.applied
    assert one.metrics.summary() == other.metrics.summary()
    arrays, others = one.arrays(), other.arrays()
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


TOGETHER = ["ppo, recomputed advantages", "ppo, lag, images", "ppo, gru, rows without a decision", "a2c"]
TOGETHER += ["impala, lstm, rows without a decision", "sac, gru", "td3, fast path", "dqn, images, prioritized"]
"""More of what learners compute together: targets and advantages of each kind, and each algorithm."""


@pytest.mark.parametrize(
    ("case", "shards", "learners"),
    [
        *((case, 13, 3) for case in SEVERAL),
        *((case, 3, 2) for case in TOGETHER),
        *thorough(*((case, 3, 2) for case in SHARD_CASES if case not in TOGETHER)),
    ],
)
def test_several_learners_have_the_bits_of_one_that_computes_all_shards(case, shards, learners):
    alone = learned_alone(case, shards)
    for side in learned(SHARD_CASES[case], shards, learners):
        assert_same(side, alone)


@pytest.mark.parametrize("case", ["ppo", "a2c, fast path", *SEVERAL[1:]])
def test_updates_with_shards_that_are_decided_on_the_device_have_the_bits_of_those_decided_on_the_host(case):
    with stages_on_a_device():
        device = Learner(SHARD_CASES[case], AllShards(3))
    device.learn()
    assert_same(learned_alone(case, 3), device)


@pytest.mark.parametrize("schedule", ["constant", "kl"])
def test_all_learners_stop_at_the_same_kl_and_adapt_the_same_rate(schedule):
    config = PPOConfig(
        **SMALL,
        epochs=6,
        minibatch_size=12,
        kl_target=1e-3,
        learning_rate=0.02,
        learning_rate_schedule=schedule,
        normalize_observations=True,
        normalize_returns=True,
    )
    meeting = Meeting(3, 2)
    sides = [bench(config) for _ in range(4)]
    collectives: list[Collective] = [meeting.of(0), meeting.of(1), AllShards(3), ALONE]
    for side, collective in zip(sides, collectives, strict=True):
        side.algorithm.collective = collective
    for step in range(3):
        for side in sides:
            side.fill(step, seed=8)
        both = together([partial(side.learner.learn, step, 0.1 * step) for side in sides[:2]])
        alone, whole = (side.learner.learn(step, 0.1 * step) for side in sides[2:])
        assert both[0].metrics == both[1].metrics == alone.metrics
        assert both[0].updates == both[1].updates == alone.updates == whole.updates
        for side in sides[:2]:
            np.testing.assert_array_equal(side.weights.read(step + 1), sides[2].weights.read(step + 1))
        assert alone.metrics["ratio_max_deviation_first"] == pytest.approx(0, abs=1e-5)
    assert (alone.updates < 6 * 3) == (schedule == "constant")
    assert (alone.metrics["learning_rate"] != 0.02) == (schedule == "kl")


# --- what is not finite -------------------------------------------------------------------------------------

SPOILED_ROW = 5
"""With 3 shards of 8 rows, a row of the second one."""


def spoiled(case: ShardCase, how: str) -> ShardCase:
    """Let the loss of one row of the first minibatch, or its loss alone, not be finite."""

    def make(collective: Collective) -> Any:
        algorithm, minibatches = case(collective)
        name = "reward" if "reward" in minibatches[0] else "advantage"
        if how == "gradients":
            minibatches[0][name][SPOILED_ROW] = math.nan
            return algorithm, minibatches
        stage, mark = algorithm.stages[0], minibatches[0][name][SPOILED_ROW].clone()

        def loss(minibatch: Minibatch) -> LossResult:
            result = stage.loss(minibatch)
            return result._replace(loss=result.loss + math.inf) if (minibatch[name] == mark).any() else result

        algorithm.stages = (replace(stage, loss=loss, gradients=None), *algorithm.stages[1:])
        return algorithm, minibatches

    return make


@pytest.mark.usefixtures("decided")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("ppo, advantages as they are", "loss alone"),
        ("sac, fast path", "gradients"),
        ("sac", "loss alone"),
        ("dqn", "gradients"),
    ],
)
def test_a_shard_that_is_not_finite_refuses_the_update_in_all_learners(case, how):
    sides = learned(spoiled(SHARD_CASES[case], how), 3, 3)
    for side in sides:
        assert side.applied == [False, True]
        assert side.metrics.refused == 1
        assert all(np.isfinite(array).all() for array in side.arrays().values())
        assert_same(side, sides[0])


# --- algorithms of one's own --------------------------------------------------------------------------------


class WeightedDQN(DQN):
    """Has arrays of its own in each minibatch: a weight for each row, and numbers that all rows share."""

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        super().build(generator, storage)
        self.stages = (replace(self.stages[0], maxima=frozenset({"largest"})),)

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        own = torch.from_numpy(random.uniform(0, 3, len(sampled["reward"])).astype(np.float32))
        return {**super().minibatch(sampled, random), "own": own, "scale": 2.0, "shift": torch.tensor(0.5)}

    def loss(self, minibatch: Minibatch) -> LossResult:
        values = self.values(self.network, minibatch, "observation").amax(dim=1)
        losses = minibatch["scale"] * minibatch["own"] * values + minibatch["shift"]
        rows = losses.detach()
        return LossResult(losses.mean(), {"own": rows.mean()}, {"largest": rows.max(), "rows": rows})


def test_arrays_and_outputs_that_a_subclass_adds_are_cut_and_combined_like_the_others():
    case = transitions(WeightedDQN, DQNConfig(**SMALL))
    for whole, cut in zip(computed(case, ALONE), computed(case, AllShards(3)), strict=True):
        np.testing.assert_allclose(cut.gradients, whole.gradients, rtol=1e-4, atol=1e-6)
        assert_close(whole.result.metrics, cut.result.metrics)
        assert_close(whole.result.outputs, cut.result.outputs)


class EmptyFirstDQN(WeightedDQN):
    """The first of many shards has no rows. Its loss needs rows."""

    def cut(self, minibatch: Minibatch, shards: int) -> Sequence[Shard]:
        return super().cut(minibatch, shards)[::-1]


def test_a_shard_without_rows_may_be_the_first():
    case = transitions(EmptyFirstDQN, DQNConfig(**SMALL))
    for whole, cut in zip(computed(case, ALONE), computed(case, AllShards(13)), strict=True):
        np.testing.assert_allclose(cut.gradients, whole.gradients, rtol=1e-4, atol=1e-6)
        assert_close(whole.result.outputs, cut.result.outputs)


class ScalarsDQN(DQN):
    """Returns scalars of many kinds."""

    def build(self, generator: torch.Generator, storage: Storage) -> None:
        super().build(generator, storage)
        self.stages = (replace(self.stages[0], maxima=frozenset({"largest"})),)

    def loss(self, minibatch: Minibatch) -> LossResult:
        rows = self.values(self.network, minibatch, "observation").amax(dim=1)
        mean, largest = rows.detach().mean(), rows.detach().max()
        numpy: Any = {"32-bit": np.float32(mean), "64-bit": np.float64(mean), "array": np.array(float(mean))}
        metrics = {**numpy, "tensor": mean, "row": mean[None], "float": float(mean), "integer": 2}
        return LossResult(rows.mean()[None], metrics, {**numpy, "largest": np.float32(largest)})


def test_scalars_may_be_numbers_arrays_and_tensors_as_without_shards():
    case = transitions(ScalarsDQN, DQNConfig(**SMALL))
    for whole, cut in zip(computed(case, ALONE), computed(case, AllShards(3)), strict=True):
        np.testing.assert_allclose(float(cut.result.loss), float(whole.result.loss), rtol=1e-4)
        assert_close(whole.result.metrics, cut.result.metrics)
        assert_close(whole.result.outputs, cut.result.outputs)


class TableDQN(DQN):
    """Has an array in its minibatches whose rows are not those of the minibatch."""

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        return {**super().minibatch(sampled, random), "table": torch.zeros(5, 2)}


class ArrayDQN(DQN):
    """Has an array of NumPy in its minibatches."""

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        return {**super().minibatch(sampled, random), "noise": random.random(len(sampled["reward"]))}


class UnequalDQN(DQN):
    """Reports other metrics for the shard with the largest reward."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        own = {"own": 1.0} if minibatch["reward"].max() > 1 else {}
        return result._replace(metrics={**result.metrics, **own})


class PairsDQN(DQN):
    """Returns an output that is neither a scalar nor a value for each row."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        result = super().loss(minibatch)
        return result._replace(outputs={"pairs": torch.zeros(len(minibatch["reward"]), 2)})


class TwoNumbersDQN(DQN):
    """Reports a metric that is not a scalar."""

    def loss(self, minibatch: Minibatch) -> LossResult:
        return super().loss(minibatch)._replace(metrics={"two": torch.zeros(2)})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (TableDQN, "the array table of a minibatch has 5 rows, but 8 are expected: override `cut`"),
        (ArrayDQN, "noise of a minibatch is of type ndarray, which is not cut into shards: pass a tensor"),
        (UnequalDQN, "the stage q returns critic_loss, q_mean, epsilon, errors for a shard, but critic_loss, q_mean, "),
        (PairsDQN, r"the output pairs of the stage q is \[4, 2\] for a shard of 4 rows, but .* shards=1"),
        (TwoNumbersDQN, r"the metric 'two' with the shape \(2,\), but a number is expected"),
    ],
)
def test_what_cannot_be_cut_or_combined_is_refused_with_the_remedy(kind, message):
    case = transitions(kind, DQNConfig(**SMALL))
    assert computed(case, ALONE)
    with pytest.raises(RunFailed, match=message):
        computed(case, AllShards(2))
