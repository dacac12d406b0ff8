"""`bench` on a Ray cluster of two nodes says what its messages cost, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import ray_clusters
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.core.process.threads import usable_cores
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.ray.messages import RowMessage
from offbeat.runtime.ray.network import bytes_per_s
from offbeat.runtime.runtimes import build
from offbeat.tuning import bench

pytestmark = pytest.mark.usefixtures("connected")


def small() -> Any:
    return resolve("ppo", "CartPole-v1", flags={**SMALL, "runtime": "ray", "actors": 2, "envs_per_actor": 4})


@pytest.fixture(scope="module")
def result(nodes: Any) -> dict[str, Any]:  # noqa: ARG001
    ray_clusters.shared_connection()
    seconds, fraction = bench.SECONDS, bench.MAX_FRACTION
    bench.SECONDS, bench.MAX_FRACTION = 0.1, 1000.0  # so short a measurement may well be wrong
    try:
        return bench.report(small(), 0.5, print)
    finally:
        bench.SECONDS, bench.MAX_FRACTION = seconds, fraction


def bytes_of_a_row() -> float:
    """Return the bytes of the message with a ticket, divided by its rows."""
    parts: PacedParts = build(small())
    try:
        plan = parts.plan.policies[0]
        message = RowMessage(plan)
        arrays = message.arrays(message.new_slot(), 0)
        return sum(array.nbytes for array in arrays.values()) / (plan.memory_shape.length * plan.env_spec.columns)
    finally:
        parts.close()


def test_bytes_of_rows_are_those_of_the_messages_and_rows_of_resets_are_sent_too(result):
    assert bytes_of_a_row() <= result["row_bytes_per_env_step"] <= 1.2 * bytes_of_a_row()


def test_each_version_is_fetched_by_both_nodes(result):
    env_steps_of_a_version = 2 * 4 * SMALL["unroll_length"]
    parts: PacedParts = build(small())
    size = 4 * parts.plan.policies[0].layout.size
    parts.close()
    assert result["weight_bytes_per_env_step"] == pytest.approx(2 * size / env_steps_of_a_version, rel=0.3)


def test_messages_cost_time_and_limit_the_actors_that_one_learner_can_feed(result):
    assert result["c_message_us"] > 0
    assert result["message_wait_us"] >= 0
    assert np.isfinite(result["actors_fed"])
    assert "one learner can feed" in result["messages"]
    assert "--runtime processes" in result["one_machine"]


def test_the_cores_are_those_of_this_machine_and_the_cpus_of_the_other_node(result):
    assert result["cores"] == usable_cores() + 1
    assert result["network_bytes_per_s"] > 0


def test_a_node_that_does_not_answer_has_no_known_network():
    assert bytes_per_s("0" * 56) is None
