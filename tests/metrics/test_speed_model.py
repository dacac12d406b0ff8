"""The limits of the speed model agree with worked examples and with a slow twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import speed as slow

from offbeat.config.runtimes import RUNTIMES
from offbeat.metrics.speed_model import SpeedModel, Topology

ENV_HEAVY = (32.0, 8.0)
LEARN_HEAVY = (2.0, 8.0)


def topology(runtime: str = "processes", **changes: Any) -> Topology:
    usual = {"actors": 1, "learner_threads": 1, "cores": 2, "max_lag": 1}
    return Topology(**{"runtime": RUNTIMES[runtime], **usual, **changes})


def model(acting: float, learning: float, learning_wall: float | None = None, **changes: Any) -> SpeedModel:
    """Return a model with these CPU times; learning takes as long on the clock unless it is given."""
    wall = learning if learning_wall is None else learning_wall
    return SpeedModel(topology(**changes), acting, wall, acting_cpu=acting, learning_cpu=learning)


# --- worked examples ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "costs", "sps", "bound"),
    [
        ({"runtime": "serial", "max_lag": 0}, ENV_HEAVY, 25_000, "actors"),
        ({"runtime": "serial", "max_lag": 0}, LEARN_HEAVY, 100_000, "learner"),
        ({"actors": 1}, ENV_HEAVY, 31_250, "actors"),
        ({"actors": 2}, ENV_HEAVY, 50_000, "machine"),
        ({"actors": 1}, LEARN_HEAVY, 125_000, "learner"),
        ({"actors": 1, "learner_threads": 2}, LEARN_HEAVY, 200_000, "machine"),
        ({"actors": 1, "cores": 4, "learners": 2}, LEARN_HEAVY, 250_000, "learner"),
        ({"actors": 1, "max_lag": 0}, LEARN_HEAVY, 125_000, "lag"),
        ({"runtime": "hogwild", "max_lag": 0}, LEARN_HEAVY, 100_000, "workers"),
        ({"runtime": "hogwild", "max_lag": 0, "actors": 4}, LEARN_HEAVY, 200_000, "cores"),
    ],
)
def test_the_limit_of_a_topology_is_that_of_its_slowest_part(changes, costs, sps, bound):
    ideal = model(*costs, **changes).with_ideal_learner()
    assert ideal.limit_sps == pytest.approx(sps)
    assert ideal.bound_by == bound


@pytest.mark.parametrize(
    ("groups", "actors", "workers", "sps", "bound"),
    [
        (1, 4, 1, 1e6 * 4 / (60 + 4 * 10), "actors"),  # each waits for a batch with the columns of all four
        (1, 4, 2, 1e6 * 4 / (60 + 2 * 10), "actors"),
        (2, 4, 1, 1e6 * 4 / 60, "actors"),  # it steps the other group meanwhile
        (2, 8, 1, 1e6 / 10, "inference"),
        (2, 8, 2, 1e6 * 8 / 60, "actors"),
    ],
)
def test_actors_wait_for_inference_workers_unless_they_have_another_env_group(groups, actors, workers, sps, bound):
    layout = topology(actors=actors, cores=64, inference_workers=workers, env_groups=groups)
    served = SpeedModel(layout, 60.0, 1.0, acting_cpu=70.0, learning_cpu=1.0, inference=10.0)
    assert served.limit_sps == pytest.approx(sps)
    assert served.bound_by == bound
    assert served.serial_sps == pytest.approx(1e6 / 71)


@pytest.mark.parametrize(
    ("changes", "sps", "bound", "fed"),
    [
        ({"messages": 4.0}, 1e6 / 8, "learner", 4),
        ({"messages": 16.0}, 1e6 / 16, "messages", 2),
        ({"network": 10.0}, 1e6 / 10, "network", 3.2),
        ({"round_trip": 32.0}, 1e6 * 5 / 64, "actors", 8),
    ],
)
def test_messages_and_the_network_limit_the_actors_that_one_learner_can_feed(changes, sps, bound, fed):
    remote = replace(model(*ENV_HEAVY, actors=5, cores=8), **changes)
    assert remote.limit_sps == pytest.approx(sps)
    assert remote.bound_by == bound
    assert remote.actors_fed == pytest.approx(fed)


def test_bounds_are_named_after_the_limiting_part():
    bounds = {"machine": 50_000, "actors": 31_250, "learner": 125_000}
    assert model(*ENV_HEAVY).bounds == pytest.approx(bounds)
    assert model(*ENV_HEAVY, actors=4).bounds == pytest.approx({**bounds, "actors": 125_000})
    assert model(*ENV_HEAVY, runtime="serial").bounds.keys() == {"actors", "learner"}
    assert model(*ENV_HEAVY, runtime="hogwild").bounds.keys() == {"workers", "cores"}


def test_one_core_and_all_cores_are_limited_by_the_cpu_time_of_the_work():
    costs = model(*ENV_HEAVY, learning_wall=4.0, cores=3)
    assert costs.one_core_sps == pytest.approx(25_000)
    assert costs.machine_sps == pytest.approx(75_000)


def test_without_lag_acting_and_learning_take_turns_and_the_limit_is_not_attained():
    by_turns = model(*ENV_HEAVY, max_lag=0, actors=2)
    assert by_turns.attainable_sps == pytest.approx(1e6 / (32 / 2 + 8))
    assert by_turns.limit_sps == pytest.approx(50_000)


def test_an_ideal_learner_divides_its_cpu_time_over_its_threads_but_a_hogwild_worker_does_not():
    threads = {"learning_wall": 6.0, "learner_threads": 2}
    assert model(2.0, 8.0, **threads).with_ideal_learner().learning == 4.0
    assert model(2.0, 8.0, **threads, runtime="hogwild").with_ideal_learner().learning == 6.0


def test_what_a_loader_does_beside_the_learner_does_not_limit_it_until_it_takes_longer():
    learner = [replace(model(2.0, 8.0, cores=4), loading=loading).bounds["learner"] for loading in (0.0, 3.0, 6.0)]
    assert learner == pytest.approx([1e6 / 8, 1e6 / 5, 1e6 / 6])
    assert replace(model(2.0, 8.0, cores=4), loading=3.0).attainable_sps == pytest.approx(1e6 / 5)
    assert replace(model(2.0, 8.0, cores=4, max_lag=0), loading=3.0).attainable_sps == pytest.approx(1e6 / 10)


@pytest.mark.parametrize(
    ("changes", "gain"),
    [
        ({"actors": 1, "cores": 2}, 1.5),
        ({"actors": 2, "cores": 2}, 2.0),
        ({"actors": 2, "cores": 8}, 3.0),
        ({"actors": 4, "cores": 8}, 3.0),
        ({"actors": 4, "cores": 3}, 3.0),
        ({"actors": 4, "cores": 1}, 1.0),
        ({"actors": 4, "cores": 3, "learner_threads": 2}, 18 / 8),
        ({"runtime": "serial", "cores": 2}, 2.0),
        ({"runtime": "serial", "cores": 8}, 3.0),
        ({"runtime": "hogwild", "actors": 1, "cores": 4}, 1.0),
        ({"runtime": "hogwild", "actors": 3, "cores": 4}, 3.0),
        ({"runtime": "hogwild", "actors": 8, "cores": 4}, 4.0),
        ({"runtime": "hogwild", "actors": 8, "cores": 4, "learner_threads": 3}, 4 / 3),
    ],
)
def test_the_largest_gain_is_limited_by_actors_learner_and_cores(changes, gain):
    assert SpeedModel.from_wall_times(topology(**changes), acting=4.0, learning=2.0).gain_max == pytest.approx(gain)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_without_work_there_is_no_gain_and_no_core_is_used(runtime):
    nothing = SpeedModel.from_wall_times(topology(runtime), 0.0, 0.0)
    assert nothing.gain_max == 1.0
    assert nothing.cores_used(0.0) == 0.0


def test_each_thread_of_the_learner_uses_a_core_while_it_learns():
    assert SpeedModel.from_wall_times(topology(learner_threads=3), 4.0, 5.0).cores_used(10.0) == pytest.approx(1.9)


def test_lock_free_workers_never_use_more_cores_than_there_are():
    assert SpeedModel.from_wall_times(topology(), 30.0, 5.0).cores_used(10.0) == pytest.approx(3.5)
    assert SpeedModel.from_wall_times(topology("hogwild"), 30.0, 5.0).cores_used(10.0) == 2


# --- the slow twin ------------------------------------------------------------------------------------------

cost = st.floats(0.1, 1000.0)
small = st.integers(1, 64)
topologies = st.builds(
    Topology, st.sampled_from(list(RUNTIMES.values())), small, st.integers(1, 4), small, st.integers(0, 2)
)
models = st.builds(SpeedModel, topologies, cost, cost, cost, cost)


@given(models)
def test_the_limit_and_its_bound_equal_those_of_a_slow_reference(model):
    fastest = slow.limit_sps(model)
    assert model.limit_sps == pytest.approx(fastest)
    if model.bound_by != "lag" and not model.topology.runtime.runs_in_order:
        assert slow.busy_times(model, fastest)[model.bound_by] == pytest.approx(slow.SECOND)


@given(models)
def test_the_attainable_speed_is_the_limit_unless_acting_and_learning_take_turns(model):
    by_turns = model.topology.runtime.overlaps and model.topology.max_lag == 0
    expected = min(slow.turns_sps(model), slow.limit_sps(model)) if by_turns else slow.limit_sps(model)
    assert model.attainable_sps == pytest.approx(expected)


@given(topologies.filter(lambda topology: topology.runtime.overlaps), cost, cost)
def test_the_largest_gain_equals_that_of_a_slow_reference_over_one_thread(topology, acting, learning):
    model = SpeedModel.from_wall_times(topology, acting, learning)
    one_thread = 1e6 / (acting + learning)
    assert model.gain_max == pytest.approx(max(1.0, slow.limit_sps(model) / one_thread))
    assert 1.0 <= model.gain_max <= topology.cores * (1 + 1e-9)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), small, small)
def test_the_largest_gain_never_exceeds_the_speed_of_the_slowest_part(acting, learning, actors, cores):
    few = topology(actors=actors, cores=cores)
    fastest = (acting + learning) / SpeedModel.from_wall_times(few, acting, learning).gain_max
    slack = 1e-9 * (acting + learning)
    assert fastest + slack >= learning
    assert (fastest + slack) * actors >= acting
    assert (fastest + slack) * cores >= acting + learning


def test_several_learners_gain_over_serial_what_they_share():
    """Serial takes 2 + 2 x 4 us per env step, here the learners take 4 us; 3 threads are busy for 2 + 2 x 4 us."""
    shared = SpeedModel.from_wall_times(topology(cores=3, learners=2), acting=2.0, learning=4.0)
    assert shared.gain_max == pytest.approx(10 / 4)
    assert shared.serial_sps == pytest.approx(1e5)
    assert shared.cores_used(4.0) == pytest.approx(10 / 4)
    on_two_cores = SpeedModel.from_wall_times(topology(learners=2), acting=2.0, learning=4.0)
    assert on_two_cores.gain_max == pytest.approx(10 / 5)
