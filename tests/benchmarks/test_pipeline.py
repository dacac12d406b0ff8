"""The simulator of the pipeline agrees with closed forms, and the speed model with the simulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks.pipeline_simulation import Pipeline
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.config.runtimes import RUNTIMES
from offbeat.core.pace import OnPolicyPace
from offbeat.metrics.speed_model import SpeedModel, Topology

PERMUTED = [(5.0, 3.0, 7.0), (7.0, 3.0, 5.0), (3.0, 7.0, 5.0), (5.0, 7.0, 3.0)]
"""Seconds of acting a batch, of loading it, and of a learning step."""


def pipeline(
    max_lag: int, ahead: int, act: float, load: float, learn: float, batches: int = 1, passes: int = 1
) -> Pipeline:
    """Return a pipeline with one actor and one ticket per batch."""
    return Pipeline(OnPolicyPace(1, max_lag, batches, passes), 1, ahead, act, load, learn)


# --- closed forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_lag", "ahead", "closed_form"),
    [
        (0, 0, lambda act, load, learn: act + load + learn),
        (0, 1, lambda act, load, learn: act + load + learn),
        (1, 0, lambda act, load, learn: max(act, load + learn)),
        (1, 1, lambda act, load, learn: max(act, load, learn, (act + load + learn) / 2)),
        (2, 0, lambda act, load, learn: max(act, load + learn)),
        (2, 1, max),
        (3, 2, max),
    ],
)
def test_the_time_per_batch_is_that_of_the_stages_that_cannot_overlap(max_lag, ahead, closed_form):
    form: Callable[..., float] = closed_form
    for times in PERMUTED:
        assert pipeline(max_lag, ahead, *times).seconds_per_batch() == pytest.approx(form(*times))


@pytest.mark.parametrize("passes", [2, 3])
@pytest.mark.parametrize("max_lag", [0, 1, 2, 3])
@pytest.mark.parametrize("act", [1.0, 5.0, 20.0])
def test_a_batch_that_is_used_again_overlaps_with_max_lag_of_its_learning_steps(act, max_lag, passes):
    learn = 3.0
    times = pipeline(max_lag, 0, act, 0.0, learn, passes=passes)
    expected = max(passes * learn, act + max(0, passes - max_lag) * learn)
    assert times.seconds_per_batch() == pytest.approx(expected)


def test_actors_divide_the_tickets_of_a_batch_and_wait_for_each_other_only_at_its_end():
    times = Pipeline(OnPolicyPace(4, 1), 2, 0, ticket_s=3.0, load_s=0.0, learn_s=1.0)
    assert times.batch_s == 6.0
    assert times.seconds_per_batch() == pytest.approx(6.0)
    assert times.in_turns() == pytest.approx(7.0)
    assert times.finished(2) == [7.0, 13.0]


# --- the speed model ----------------------------------------------------------------------------------------

cost = st.integers(1, 40)


@examples(300)
@given(act=cost, learn=cost, max_lag=st.integers(0, 12), batches=st.integers(1, 4), passes=st.integers(1, 4))
def test_the_expected_speed_is_that_of_the_simulated_pipeline(act, learn, max_lag, batches, passes):
    batches = batches if passes > 1 else 1
    topology = Topology(RUNTIMES["processes"], 1, 1, cores=8, max_lag=max_lag, passes=passes, resident_batches=batches)
    model = SpeedModel.from_wall_times(topology, acting=act, learning=learn * passes)
    simulated = pipeline(max_lag, 0, act, 0.0, learn, batches, passes).seconds_per_batch()
    assert 1e6 / model.attainable_sps == pytest.approx(simulated)
    assert (model.bound_by == "lag") == (max_lag == 0 or simulated > max(act, learn * passes) * 1.000001)
