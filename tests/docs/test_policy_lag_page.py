"""The tables of policy-lag.md have what the committed results say, and those are of the presets as they are today."""

from __future__ import annotations

import hashlib
import json

import pytest
from benchmarks.common import RESULTS, read_section
from benchmarks.policy_lag.page import END, PAGE, START, content, improvement_table, reached_table
from benchmarks.policy_lag.statistics import mean_probability_of_improvement, probability_of_improvement
from benchmarks.policy_lag.works import WORKS, Work
from benchmarks.records import Record, read_records

from offbeat.config.preset_files import preset_tables

RECORDS = read_records(RESULTS / "policy-lag.jsonl")
TRAINED = {
    "ppo-CartPole-v1": "f60d897798b951f6",
    "ppo-LunarLander-v3": "3e00951f1c56af40",
    "ppo-Hopper-v5": "70e167074e917106",
    "ppo-HalfCheetah-v5": "4a2ab47b3663bf6b",
    "sac-Pendulum-v1": "be7e007fe7bc770a",
    "sac-HalfCheetah-v5": "d3def9fab0d02b05",
}
"""Preset -> digest of its settings in the records. After a change of a preset its records are of another one: delete
them, and train again."""


def test_the_tables_of_the_page_are_those_of_the_results():
    assert read_section(PAGE, START, END) == content(RECORDS).strip(), (
        "run: python -m benchmarks.policy_lag --only-page"
    )


@pytest.mark.parametrize("work", [work for work in WORKS if not work.changes], ids=lambda work: work.preset)
def test_the_records_are_of_the_preset_as_it_is_today(work: Work):
    settings = json.dumps(preset_tables(work.algorithm, work.env, None), sort_keys=True)
    assert hashlib.sha256(settings.encode()).hexdigest()[:16] == TRAINED[work.preset]


def test_every_record_is_of_a_work_as_it_is_today():
    known = {(work.name_of(lag), lag, work.steps) for work in WORKS for lag in work.lags}
    assert {(record["name"], record["lag"], record["steps"]) for record in RECORDS} <= known


# --- the figures ------------------------------------------------------------------------------------------------

WORK = Work("ppo", "CartPole-v1", 200, 475, lags=(0, 10, 20))


def middle_of(*reached: int | None) -> str:
    """Return what the table says of seeds that reach the score after so many env steps, None for those that do not."""
    curves = [[[steps or 200, 1.0, 500.0 if steps else 10.0]] for steps in reached]
    runs: list[Record] = [{"curve": curve} for curve in curves]
    return reached_table({WORK: dict.fromkeys(WORK.lags, runs)}).splitlines()[-1].split(" | ")[3].strip(" |")


def test_the_median_to_a_score_is_that_of_all_seeds_also_of_those_that_do_not_get_there():
    assert middle_of(50, 60, 70) == "60 (50 to 70), 3 of 3"
    assert middle_of(50, 60, None) == "60 (50 to 60), 2 of 3"
    assert middle_of(50, None, None) == "- (50 to 50), 1 of 3"
    assert middle_of(None, None, None) == "-, 0 of 3"


def test_the_probability_of_improvement_of_three_seeds_has_no_interval():
    def row_of(seeds: int) -> str:
        runs: dict[int, list[Record]] = {lag: [{"score": lag + seed} for seed in range(seeds)] for lag in WORK.lags}
        return improvement_table({WORK: runs}).splitlines()[2]

    assert row_of(3).endswith("| 3 | 1.00 | 1.00 |")
    assert row_of(4).endswith("| 4 | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) |")


def test_the_probability_of_improvement_counts_pairs_and_a_tie_half():
    assert probability_of_improvement([2, 1], [1, 0]) == 0.875
    assert mean_probability_of_improvement([([2, 1], [1, 0]), ([0, 0], [1, 1])])[0] == 0.4375
    assert mean_probability_of_improvement([([2, 2], [1, 1])]) == (1.0, 1.0, 1.0)
