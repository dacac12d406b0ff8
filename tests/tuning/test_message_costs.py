"""What messages cost follows from what a run has sent, and the advice from the speed model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offbeat.config.runtimes import runtime_entry
from offbeat.metrics.speed_model import SpeedModel, Topology
from offbeat.runtime.message_traffic import MessageTraffic, Network
from offbeat.tuning.message_costs import MessageCosts, feeding_text, one_machine_text

TRAFFIC = MessageTraffic(env_steps=1000, row_bytes=100_000, weight_bytes=20_000, thread_s=0.002, waited_s=0.005)
NETWORK = Network(cores=64, bytes_per_s=1e8)
COSTS = MessageCosts.from_traffic(TRAFFIC, NETWORK)
ALONE = Network(cores=64, bytes_per_s=None)


def run(actors: int, cores: int = 2, learning: float = 5.0) -> SpeedModel:
    """Return the model of a run without messages."""
    topology = Topology(runtime_entry("ray"), actors, 1, cores, max_lag=1)
    return SpeedModel(topology, acting=95.0, learning=learning, acting_cpu=95.0, learning_cpu=learning)


def test_costs_are_those_of_an_env_step():
    assert MessageCosts(100.0, 20.0, 2.0, 5.0, NETWORK) == COSTS
    assert COSTS.transmission == pytest.approx(1.0)
    assert replace(COSTS, weight_bytes=300.0).transmission == pytest.approx(3.0), "it sends and receives at once"
    assert replace(COSTS, network=ALONE).transmission == 0.0, "there is no other node"


def test_the_traffic_of_a_period_is_a_difference():
    assert TRAFFIC.since(MessageTraffic(600, 60_000, 20_000, 0.001, 0.0)) == pytest.approx(
        (400, 40_000, 0, 0.001, 0.005)
    )


def test_a_run_on_a_cluster_has_its_cores_and_its_messages():
    cluster = COSTS.on_cluster(run(actors=10))
    assert cluster.limit_sps == pytest.approx(10 / 100e-6)
    assert cluster.bound_by == "actors"
    assert cluster.actors_fed == pytest.approx(20.0)


def test_the_text_shows_the_arithmetic_of_the_slowest_part():
    text = feeding_text(COSTS.on_cluster(run(actors=10)), COSTS)
    assert "100 bytes of rows and 20 of weights per env step" in text
    assert "an actor takes 100.0 us per env step, of which it waits 5.0 us for messages" in text
    assert "the learner 5.0, messages 2.0, the network 1.00 (100 MB/s)" in text
    assert text.endswith("one learner can feed 100.0 / 5.0 = 20.0 actors")
    alone = replace(COSTS, network=ALONE, thread=25.0)
    text = feeding_text(alone.on_cluster(run(actors=10)), alone)
    assert text.endswith("messages 25.0: one learner can feed 100.0 / 25.0 = 4.0 actors")


@pytest.mark.parametrize(
    ("actors", "cores", "advice"),
    [
        (1, 2, ": take --runtime processes"),
        (10, 16, ": take --runtime processes"),
        (10, 2, "; it would be as fast as the cluster on a machine with 10 cores"),
    ],
)
def test_processes_are_advised_where_one_machine_is_as_fast_as_the_cluster(actors, cores, advice):
    without = run(actors, cores)
    text = one_machine_text(COSTS.on_cluster(without), without)
    assert text.endswith(advice)
    assert f"each of the {cores} cores of this machine" in text


def test_no_machine_is_as_fast_as_a_cluster_with_more_actors_than_it_could_have_cores():
    large = MessageCosts(100.0, 20.0, 0.01, 0.0, Network(10_000, None))
    without = run(actors=5000, learning=0.01)
    text = one_machine_text(large.on_cluster(without), without)
    assert text.endswith("no machine with up to 1,024 cores would be as fast as the cluster")
