"""The end of a run says what auto layout expected, what was measured, and why they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offbeat.metrics.expectation import FACTOR, MIN_S, Expectation, comparison, measured

EXPECTED = Expectation(sps=50_000, acting=32.0, learning=5.0)
SPEEDS = "auto layout expected 50,000 env steps/s, and {} were measured"


def test_the_costs_of_a_run_leave_out_evaluations_checkpoints_and_waits():
    spent = {"act": 1.0, "env": 30.0, "infer": 1.0, "learn": 5.0, "wait": 9.0, "evaluate": 8.0, "checkpoint": 2.0}
    assert measured(spent, wall_s=30.0, env_steps=1_000_000) == EXPECTED


def test_short_runs_and_runs_without_env_steps_are_not_compared():
    assert measured({"evaluate": 8.0}, wall_s=8.0 + 0.99 * MIN_S, env_steps=1000) is None
    assert measured({}, wall_s=100.0, env_steps=0) is None


@pytest.mark.parametrize("factor", [1.0, 0.99 * FACTOR, 1.01 / FACTOR])
def test_a_speed_near_the_expected_one_needs_no_reason(factor):
    found = replace(EXPECTED, sps=factor * EXPECTED.sps)
    assert comparison(EXPECTED, found) == SPEEDS.format(f"{found.sps:,.0f}")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Expectation(26_000, 64.0, 5.1), "(0.52x): acting took 64.0 us per env step in place of 32.0"),
        (Expectation(26_000, 31.0, 36.0), "(0.52x): learning took 36.0 us per env step in place of 5.0"),
        (
            Expectation(26_000, 64.0, 10.0),
            (
                "(0.52x): acting took 64.0 us per env step in place of 32.0 and learning took 10.0 us per env step in "
                "place of 5.0, as beside other programs: `offbeat bench` measures how many cores these use"
            ),
        ),
        (
            Expectation(26_000, 32.0, 3.0),
            "(0.52x): acting and learning took as long as expected, but waited for each other",
        ),
        (Expectation(90_000, 16.0, 9.0), "(1.80x): acting took 16.0 us per env step in place of 32.0"),
        (
            Expectation(90_000, 32.0, 5.0),
            "(1.80x): acting and learning took as long as expected, and overlapped more",
        ),
    ],
)
def test_a_speed_far_from_the_expected_one_is_explained_by_the_costs_that_changed(found, reason):
    assert comparison(EXPECTED, found) == f"{SPEEDS.format(f'{found.sps:,.0f}')} {reason}"
