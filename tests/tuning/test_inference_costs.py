"""The comparison of inference in actors and in inference workers follows from measured costs and measured speeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.registries import registries_kept
from tests.support.runs import SMALL
from tests.support.thorough import thorough
from torch import nn

from offbeat import register_encoder
from offbeat.config.resolve import resolve
from offbeat.config.runtimes import RUNTIMES
from offbeat.core.process.threads import usable_cores
from offbeat.core.types import Leaf
from offbeat.metrics.speed_model import SpeedModel, Topology
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import build
from offbeat.tuning import bench
from offbeat.tuning.costs import Cost
from offbeat.tuning.inference_costs import (
    InferenceCosts,
    gain_text,
    inference_costs,
    with_workers,
    without_workers,
)

COSTS = InferenceCosts(
    in_actor=Cost(40.0, 40.0), request=Cost(4.0, 4.0), batch=Cost(10.0, 10.0), rows=32, env_groups=2, workers=1
)
SERVED: dict[str, Any] = {"runtime": "processes", "actors": 2, "max_lag": 1}


def small(**settings: Any) -> Any:
    return resolve("ppo", settings.pop("env", "CartPole-v1"), flags={**SMALL, **SERVED, **settings})


def test_a_worker_takes_the_network_from_the_actors_and_adds_requests_and_batches():
    actor = SpeedModel(Topology(RUNTIMES["processes"], 4, 1, 8, 1), 100.0, 5.0, acting_cpu=60.0, learning_cpu=5.0)
    comparison = COSTS.compare(actor)
    assert comparison.actor == actor
    assert comparison.worker.acting == 100.0 - 40.0 + 4.0
    assert comparison.worker.acting_cpu == 60.0 - 40.0 + 4.0 + 10.0
    assert comparison.worker.inference == 10.0
    assert (comparison.worker.topology.inference_workers, comparison.worker.topology.env_groups) == (1, 2)
    assert comparison.gain == pytest.approx((1e6 * 4 / 64) / (1e6 * 4 / 100))
    assert "62,500 in workers (bound by the actors)" in comparison.why


def test_the_text_of_a_gain_names_the_ratio_of_the_speeds():
    assert gain_text(1.5) == "inference workers pay, 1.50x"
    assert gain_text(0.5) == "inference workers do not pay, 0.50x"
    assert gain_text(1.04) == gain_text(0.97) == "inference workers make no difference"


def test_the_compared_run_has_the_same_envs_and_only_other_inference():
    plain = small().runtime
    served = with_workers(plain)
    assert served == replace(plain, inference="worker", env_groups=2)
    assert without_workers(served) == replace(plain, env_groups=2)
    given = small(inference="worker", inference_workers=2, inference_batching="arrival", inference_timeout_ms=1).runtime
    assert with_workers(given) == given
    assert without_workers(given) == plain


@pytest.mark.parametrize("settings", [{}, {"inference": "worker", "env_groups": 4}, {"env": "offbeat/PixelsGoal-v0"}])
def test_networks_are_measured_in_actors_and_in_full_batches(settings):
    parts: PacedParts = build(small(**settings))
    try:
        weights = [np.zeros(policy.layout.size, np.float32) for policy in parts.plan.policies]
        costs = inference_costs(parts.plan, weights, 0.01)
    finally:
        parts.close()
    assert min(costs.in_actor.cpu, costs.request.cpu, costs.batch.cpu) > 0
    assert costs.env_groups == settings.get("env_groups", 2)
    assert costs.rows == 2 * 4 // costs.env_groups


class LookUp(nn.Module):
    """Looks its features up in a table with a row for each choice."""

    def __init__(self, observation: Leaf) -> None:
        super().__init__()
        self.table = nn.Embedding(observation.choices[0], 8)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.table(observations)
        return features


def test_a_network_that_looks_choices_up_in_a_table_is_measured():
    with registries_kept():
        register_encoder("table", LookUp)
        parts: PacedParts = build(small(env="FrozenLake-v1", encoder="table"))
        try:
            weights = [np.zeros(policy.layout.size, np.float32) for policy in parts.plan.policies]
            assert inference_costs(parts.plan, weights, 0.01).in_actor.cpu > 0
        finally:
            parts.close()


@pytest.mark.usefixtures("measured_briefly")
@pytest.mark.parametrize("inference", ["actor", *thorough("worker")])
def test_bench_compares_the_speeds_of_both_kinds_of_inference(inference, monkeypatch):
    monkeypatch.setattr(bench, "other_cores", lambda: 0.0)
    result = bench.report(small(inference=inference, env_groups=2), 0.0, print)
    assert result[f"inference_{inference}_sps"] == result["achieved_sps"]
    assert min(result["inference_actor_sps"], result["inference_worker_sps"]) > 0
    # The cost of measuring is subtracted: on a busy machine it may be more than that of so small a network.
    assert min(result["c_network_us"], result["c_request_us"], result["c_infer_us"]) >= 0
    assert result["inference"].startswith("inference workers ")


@pytest.mark.usefixtures("measured_briefly")
def test_bench_does_not_say_on_a_busy_machine_whether_inference_workers_pay(monkeypatch):
    monkeypatch.setattr(bench, "other_cores", lambda: float(usable_cores()))
    result = bench.report(small(), 0.0, print)
    assert result["inference"].startswith("the machine is too busy to say whether inference workers pay: ")
    assert result["advice"] == "the machine is too busy to say which layout is faster"
