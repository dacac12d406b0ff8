"""`offbeat bench` measures policies that infer their task."""

from __future__ import annotations

import pytest
from tests.support.pearl_runs import ROBOT, SMALL_PEARL
from tests.support.thorough import thorough

from offbeat.config.resolve import resolve
from offbeat.tuning import bench


@pytest.mark.usefixtures("measured_briefly")
@pytest.mark.parametrize("runtime", ["processes", *thorough("serial")])
def test_bench_measures_a_policy_that_infers_its_task(runtime: str) -> None:
    config = resolve("pearl", ROBOT, flags={**SMALL_PEARL, "runtime": runtime, "chunk_length": 20})
    result = bench.report(config, 0.0, print)
    assert min(result[key] for key in ("c_env_us", "c_act_us", "c_learn_us", "achieved_sps")) > 0
