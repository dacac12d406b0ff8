"""The simulator of clusters agrees with closed forms, and the speed model with the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchmarks.cluster_events import RECEIVING, SENDING, Cluster, Curve, MessageCosts
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.core.pace import OnPolicyPace

FREE = Curve((0.0, 1.0), (0.0, 0.0))


def constant(cost: float) -> Curve:
    return Curve((0.0, 1e9), (cost, cost))


def costs(**changes: Curve) -> MessageCosts:
    """Return costs of messages and weights, which cost nothing unless they are given."""
    return replace(MessageCosts(FREE, FREE, FREE, FREE), **changes)


def cluster(**changes: Any) -> Cluster:
    """Return two nodes with two actors, whose tickets take a second, and a learner that takes two for four of them."""
    usual: dict[str, Any] = {
        "pace": OnPolicyPace(4, 1), "nodes": 2, "actors_per_node": 2, "env_steps": 100, "acting_us": 10_000.0,
        "learning_us": 5000.0, "row_bytes": 10.0, "weights_bytes": 0.0, "costs": costs(), "bytes_per_s": 1e9,
        "spread": 0.0,
    }  # fmt: skip
    return Cluster(**{**usual, **changes})


def sps(run: Cluster) -> float:
    return run.run(steps=60, warm_up=20).sps


def test_the_learner_limits_actors_that_are_faster():
    run = cluster()
    result = run.run(60, 20)
    assert result.sps == pytest.approx(200, rel=1e-4)
    assert result.bound_by == run.speed_model().bound_by == "learner"
    assert run.speed_model().actors_fed == pytest.approx(2.0)


def test_actors_limit_a_learner_that_is_faster():
    run = cluster(learning_us=1000.0)
    result = run.run(60, 20)
    assert result.sps == pytest.approx(400, rel=1e-4)
    assert result.bound_by == run.speed_model().bound_by == "actors"


def test_without_lag_a_ticket_its_messages_and_the_learning_step_follow_each_other():
    run = cluster(pace=OnPolicyPace(4, 0), costs=costs(round_trip=constant(0.5), put=constant(0.25)))
    assert sps(run) == pytest.approx(400 / (1 + 0.5 + 2 + 0.25), rel=1e-3)


@pytest.mark.parametrize(("max_lag", "seconds"), [(0, 2.75), (1, 2.75 / 2), (2, 1.0)])
def test_an_actor_does_not_wait_for_messages_where_max_lag_allows_to_hand_it_its_next_ticket(max_lag, seconds):
    """From handing out a batch to its last update 2.75 seconds pass, and max_lag + 1 batches are under way."""
    run = cluster(pace=OnPolicyPace(4, max_lag), learning_us=1875.0, costs=costs(round_trip=constant(1.0)))
    assert sps(run) == pytest.approx(400 / seconds, rel=1e-3)


def test_one_thread_receives_the_tickets_of_all_actors():
    run = cluster(learning_us=100.0, costs=costs(thread=Curve((0.0, 1000.0), (0.0, 0.5))))
    result = run.run(60, 20)
    assert result.sps == pytest.approx(200, rel=1e-3)
    assert result.bound_by == run.speed_model().bound_by == "messages"
    assert run.speed_model().actors_fed == pytest.approx(2.0)


def test_each_actor_is_asked_every_second_whether_it_makes_progress():
    run = cluster(costs=costs(thread=Curve((0.0, 1000.0), (0.1, 0.0))))
    assert run.run(60, 20).busy["messages"] == pytest.approx(4 * 0.1, rel=0.02)


def test_rows_of_all_actors_pass_the_network_connection_of_the_learner():
    run = cluster(learning_us=100.0, bytes_per_s=2000.0)
    result = run.run(60, 20)
    assert result.sps == pytest.approx(200, rel=1e-3)
    assert result.bound_by == RECEIVING
    assert run.speed_model().bound_by == "network"


def test_each_node_fetches_each_version_once():
    run = cluster(learning_us=100.0, weights_bytes=1e8)
    result = run.run(60, 20)
    seconds_of_a_version = 400 / result.sps
    assert result.busy[SENDING] == pytest.approx(2 * 0.1 / seconds_of_a_version, rel=1e-2)


def test_actors_beyond_the_tickets_that_the_pace_allows_do_nothing():
    few, many = (cluster(pace=OnPolicyPace(4, 1), nodes=nodes, learning_us=100.0) for nodes in (4, 40))
    assert sps(many) == pytest.approx(sps(few))
    assert many.run(60, 20).bound_by == "pace"


small = st.integers(1, 20)


@examples(50)
@given(nodes=st.integers(1, 6), max_lag=st.integers(0, 3), learn=small, thread=small, weights=small, row=small)
def test_no_simulated_run_is_faster_than_the_limit_of_the_speed_model(nodes, max_lag, learn, thread, weights, row):
    run = cluster(
        pace=OnPolicyPace(nodes * 2, max_lag), nodes=nodes, learning_us=1000.0 * learn, row_bytes=1e3 * row,
        weights_bytes=1e5 * weights, bytes_per_s=1e6, spread=0.1,
        costs=costs(thread=constant(thread / 20), round_trip=constant(0.1)),
    )  # fmt: skip
    assert sps(run) <= 1.02 * run.speed_model().limit_sps


def test_measured_costs_are_interpolated_and_grow_in_proportion_above_the_largest():
    curve = Curve((1e3, 1e5, 1e6), (1.0, 2.0, 11.0))
    assert [curve.at(size) for size in (0, 1e3, 5.05e4, 5.5e5, 2e6)] == pytest.approx([1, 1, 1.5, 6.5, 22])
