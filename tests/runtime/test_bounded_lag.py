"""With `lag = "bounded"` no row is older than max_lag, in any runtime."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.matrix import CARTS, TEAMS
from tests.support.runs import lines_of, offbeat, small_arguments, small_run, weights_of
from tests.support.thorough import thorough

ENVS = "tests.sample_envs.run_envs"


@pytest.mark.parametrize(
    ("runtime", "max_lag"),
    [
        ("threads", 3),
        ("processes", 1),
        *thorough(("threads", 0), ("threads", 1), ("processes", 0), ("processes", 3)),
    ],
)
def test_no_row_exceeds_max_lag_with_envs_of_irregular_speed(tmp_path, runtime, max_lag):
    layout: dict[str, Any] = {"max_lag": max_lag, "actors": 2, "unrolls_per_batch": 1, "clip_reference": "proximal"}
    run = small_run(tmp_path / "run", "runs/Irregular-v0", imports=(ENVS,), steps=640, runtime=runtime, **layout)
    lines = lines_of(run.path)
    assert len(lines) >= 640 // (4 * 16)
    for line in lines:
        assert 0 <= line["policy_lag_min"] <= line["policy_lag_mean"] <= line["policy_lag_max"] <= max_lag
        assert line["ratio_max_deviation_first"] < 1e-5


@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_no_row_of_any_policy_exceeds_max_lag(tmp_path, runtime):
    layout: dict[str, Any] = {"max_lag": 2, "actors": 3, "unrolls_per_batch": 1, "policies": TEAMS}
    run = small_run(tmp_path / "run", CARTS, steps=512, runtime=runtime, **layout)
    for line in lines_of(run.path):
        for policy in TEAMS:
            lag = [line[f"policies/{policy}/policy_lag_{kind}"] for kind in ("min", "mean", "max")]
            assert 0 <= lag[0] <= lag[1] <= lag[2] <= 2


@pytest.mark.parametrize("runtime", ["threads", *thorough("processes")])
def test_max_lag_0_is_strictly_on_policy_in_every_runtime(tmp_path, runtime):
    layout: dict[str, Any] = {"max_lag": 0, "actors": 2, "steps": 512}
    run = small_run(tmp_path / "run", **layout, runtime=runtime)
    serial = small_run(tmp_path / "serial", **layout)
    for line in lines_of(run.path):
        assert line["policy_lag_max"] == 0
        assert line["ratio_max_deviation_first"] < 1e-5
    assert weights_of(run.path) == weights_of(serial.path), "there is only one version that may act: it is exact too"


@pytest.mark.parametrize(
    ("runtime", "max_lag"), [("threads", 2), *thorough(("processes", 2), ("threads", 0), ("processes", 0))]
)
def test_a_run_ends_after_the_batch_that_reaches_steps(tmp_path, runtime, max_lag):
    rows = 2 * 4 * 16
    layout: dict[str, Any] = {"max_lag": max_lag, "actors": 2, "steps": 5 * rows}
    run = small_run(tmp_path / "run", "Pendulum-v1", runtime=runtime, **layout)  # 80 rows: no episode ends in them
    assert (run.state, run.metrics["env_steps"]) == ("finished", 5 * rows)


@pytest.mark.parametrize("runtime", ["processes", *thorough("threads")])
def test_a_bounded_run_is_resumed_with_its_episodes_and_reports_waits(tmp_path, runtime):
    path = tmp_path / "run"
    layout: dict[str, Any] = {"max_lag": 1, "actors": 2, "runtime": runtime, "steps": 640}
    said = offbeat(*small_arguments(path, stop_at=250, **layout))
    assert said.out.startswith("interrupted: stopped at --stop-at 250")
    assert 250 <= lines_of(path)[-1]["env_steps"] <= 250 + 2 * 128
    said = offbeat("resume", path, "--progress", "lines")
    assert said.code == 0
    assert "unfinished episodes continue" in said.err
    lines = lines_of(path)
    for line in lines:
        assert line["policy_lag_max"] <= 1
        assert 0 <= line["actor_wait_fraction"] <= 1
        assert 0 <= line["learner_wait_fraction"] <= 1
        assert 0.5 <= line["slots_filled"] <= 1
    for name in ("time_act", "time_env", "time_learn"):
        assert max(line[name] for line in lines) > 0, name
    for name in ("publish_s", "env_stall_max_s", "actor_wait_s", "learner_wait_s"):
        assert lines[-1][name] > 0, name
