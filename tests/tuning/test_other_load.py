"""`offbeat bench` says if other programs keep the machine busy."""

from __future__ import annotations

import os
from dataclasses import asdict

import pytest

from offbeat.cli.bench import _table
from offbeat.tuning import other_load
from offbeat.tuning.layouts import MeasuredLayout
from offbeat.tuning.other_load import busy_cores, other_cores, warning

BEFORE = """\
cpu  1000 0 0 3000 0 0 0 0 0 0
cpu0 500 0 0 1500 0 0 0 0 0 0
cpu1 500 0 0 1500 0 0 0 0 0 0
cpu2 0 0 0 2000 0 0 0 0 0 0
intr 12345
"""
AFTER = """\
cpu  1170 10 20 3100 0 0 0 0 0 0
cpu0 550 10 20 1510 5 3 2 0 7 7
cpu1 500 0 0 1600 0 0 0 0 0 0
cpu2 100 0 0 2000 0 0 0 0 0 0
intr 99999
"""


@pytest.mark.parametrize(("cores", "busy"), [({0}, 0.85), ({1}, 0.0), ({2}, 1.0), ({0, 2}, 1.85), ({0, 1, 2}, 1.85)])
def test_the_busy_time_of_the_usable_cores_is_counted(cores, busy):
    assert busy_cores(BEFORE, AFTER, cores) == pytest.approx(busy)


@pytest.mark.parametrize("cores", [{3}, {0, 3}, set()])
def test_cores_that_are_not_listed_are_refused(cores):
    with pytest.raises(ValueError, match="all cores"):
        busy_cores(BEFORE, AFTER, cores)


def test_two_equal_texts_have_no_busy_core():
    assert busy_cores(BEFORE, BEFORE, {0, 1}) == 0.0


def test_a_system_that_tells_neither_usable_cores_nor_their_load_is_not_an_error(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(other_load, "STAT", tmp_path / "stat")
    assert other_cores() is None


def test_a_busy_machine_is_told_and_a_quiet_or_unknown_one_is_not():
    assert warning(1.7, 2).startswith("warning: other processes used 1.7 of 2 cores")
    assert warning(0.2, 2) == warning(None, 2) == ""


RESULT = {
    "cores": 2,
    "c_env_us": 4.0,
    "c_act_us": 3.0,
    "c_learn_us": 28.0,
    "env_wait_us": 0.0,
    "limit_sps": 5e4,
    "layout_limit_sps": 3e4,
    "serial_limit_sps": 3e4,
    "achieved_sps": 2.5e4,
    "fraction": 0.5,
    "layout_fraction": 0.8,
    "overlap_gain": None,
    "layouts": [asdict(MeasuredLayout("processes", 1, 8, 1, predicted_sps=2.9e4, achieved_sps=2.5e4))],
    "failed_layouts": [],
    "advice": "",
    "overlap_gain_max": 1.28,
    "bound_by": "learner",
    "policy_lag_mean": 1.0,
    "policy_lag_max": 1,
}


def test_bench_prints_the_warning_of_a_busy_machine_as_the_only_reason_for_a_low_speed():
    slow = asdict(MeasuredLayout("processes", 1, 8, 1, predicted_sps=2.9e4, achieved_sps=1e4))
    busy, quiet = (_table({**RESULT, "layouts": [slow], "other_cores": others}) for others in (1.7, 0.1))
    assert busy.endswith("when the machine is idle")
    assert "slower than predicted" not in busy
    assert "slower than predicted" in quiet
    assert "other processes" not in quiet
