"""Runs with inference workers: their metrics, and batches in the order of arrival."""

from __future__ import annotations

from typing import Any

from tests.support.runs import lines_of, small_run

SERVED: dict[str, Any] = {"runtime": "processes", "actors": 2, "max_lag": 1, "inference": "worker", "env_groups": 2}


def test_a_run_with_batches_in_the_order_of_arrival_keeps_its_bound_and_has_the_metrics_of_inference(tmp_path):
    arrival: dict[str, Any] = {"inference_batching": "arrival", "inference_timeout_ms": 5, "inference_max_requests": 3}
    run = small_run(tmp_path / "run", **SERVED, **arrival, log_every=512)
    assert run.state == "finished"
    assert run.metrics["policy_lag_max"] <= 1
    for line in lines_of(run.path):
        assert 1 <= line["inference_batch_requests"] <= 3
        assert 0 < line["time_infer"] <= 1
        assert line["memory/inference_worker-0_mb"] > 0
    assert run.metrics["inference_wait_s"] > 0
