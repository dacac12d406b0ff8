"""Learners that train one algorithm on data of their own decide alike: all decisions go through their collective."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.reference.collectives import Meeting, ThreadCollective, together
from tests.reference.update_cases import stages_on_a_device
from tests.reference.update_rows import Bench, bench

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.algorithms.ppo import PPOConfig
from offbeat.models.normalize import RunningStatistics
from offbeat.workers.learner import Learned

WHOLE = PPOConfig(
    hidden_sizes=(6,),
    epochs=4,
    minibatch_size=99,
    learning_rate=0.01,
    normalize_observations=True,
    normalize_returns=True,
)
"""One minibatch is the whole batch."""


@pytest.fixture(params=["decided on the host", "decided on the device"])
def decided(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take one of the two ways to decide whether an update is applied."""
    with stages_on_a_device() if "device" in request.param else nullcontext():
        yield


def pair(config: PPOConfig) -> tuple[list[Bench], Meeting]:
    """Return two learners of the same parameters in one collective."""
    sides, meeting = [bench(config, "discrete"), bench(config, "discrete")], Meeting(2)
    for rank, side in enumerate(sides):
        side.algorithm.collective = ThreadCollective(meeting, rank)
    return sides, meeting


def learned_by(sides: list[Bench], step: int, progress: float = 0.0) -> list[Learned]:
    """Let all learn from batches of their own."""
    for rank, side in enumerate(sides):
        side.fill(step, seed=20 + rank)
    return together([partial(side.learner.learn, step, progress) for side in sides])


@pytest.mark.usefixtures("decided")
def test_learners_with_different_data_have_the_same_parameters_and_statistics():
    sides, _ = pair(WHOLE)
    for step in range(3):
        learned_by(sides, step)
    first, second = sides
    np.testing.assert_array_equal(first.parameters, second.parameters)
    np.testing.assert_array_equal(first.weights.read(3), second.weights.read(3))
    alone = bench(WHOLE, "discrete")
    for step in range(3):
        alone.fill(step, seed=20)
        alone.learner.learn(step, 0.0)
    assert (alone.parameters != first.parameters).any()


@pytest.mark.usefixtures("decided")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_non_finite_update_of_one_learner_is_refused_by_all(rank):
    sides, _ = pair(WHOLE)
    before = sides[0].parameters
    for place, side in enumerate(sides):
        batch = side.fill(0, seed=20 + place)
        if place == rank:
            batch["reward"][:, :1][batch["valid"][:, :1]] = np.nan
    learned = together([partial(side.learner.learn, 0, 0.0) for side in sides])
    assert [each.refused for each in learned] == [each.updates for each in learned] == [4, 4]
    for side in sides:
        np.testing.assert_array_equal(side.parameters, before)


@pytest.mark.usefixtures("decided")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_non_finite_loss_of_one_learner_is_refused_by_all_though_its_gradients_are_finite(rank):
    sides, _ = pair(WHOLE)
    before, stage = sides[0].parameters, sides[rank].algorithm.stages[0]

    def gradients(minibatch: Minibatch) -> LossResult:
        assert stage.gradients is not None
        return stage.gradients(minibatch)._replace(loss=math.inf)

    sides[rank].algorithm.stages = (replace(stage, gradients=gradients),)
    assert [each.refused for each in learned_by(sides, 0)] == [4, 4]
    for side in sides:
        np.testing.assert_array_equal(side.parameters, before)


@pytest.mark.usefixtures("decided")
def test_learners_stop_their_epochs_together_at_the_mean_kl_of_all():
    config = replace(WHOLE, kl_target=1e-4, learning_rate=0.05)
    sides, meeting = pair(config)
    first, second = learned_by(sides, 0)
    assert first.updates == second.updates < 4
    assert meeting.calls[0] == meeting.calls[1]


def test_the_statistics_of_every_learner_include_the_rows_of_all():
    rows = np.random.default_rng(0).normal(3, 2, (40, 3))
    meeting, parts = Meeting(2), (rows[:13], rows[13:])
    statistics = [RunningStatistics(3), RunningStatistics(3)]

    def update(rank: int) -> None:
        statistics[rank].update(parts[rank], ThreadCollective(meeting, rank))

    together([partial(update, rank) for rank in range(2)])
    for each in statistics:
        assert each.count == 40
        np.testing.assert_allclose(each.mean, rows.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(each.variance, rows.var(axis=0), rtol=1e-12)
