"""The table of seconds to scores has what the committed results say, all of which have today's settings."""

from __future__ import annotations

import re

import pytest
from benchmarks.common import RESULTS, read_section, spread_reached
from benchmarks.records import read_records
from benchmarks.seconds_to_score.page import END, PAGE, START, content, is_of, row_of
from benchmarks.seconds_to_score.works import OURS, WORKS, Work
from benchmarks.time_to_return import earlier_runs
from tests.support.pages import ROOT

RECORDS = read_records(RESULTS / "seconds-to-score.jsonl")


def test_the_table_of_the_page_is_that_of_the_results():
    assert read_section(PAGE, START, END).strip() == content(RECORDS), (
        "run: python -m benchmarks.seconds_to_score --only-page"
    )


def test_every_record_is_of_a_work_as_it_is_today():
    others = [record for record in RECORDS if not any(is_of(work, record) for work in WORKS)]
    assert not others


def seeds_of_choice(work: Work) -> set[int]:
    """Return the seeds on which the settings of a work's preset were chosen, as its first lines say."""
    text = (ROOT / f"src/offbeat/config/presets/{work.preset}.toml").read_text()
    found = re.search(r"on seeds? (\d+)(?: (?:to|and) (\d+))?", text)
    return set(range(int(found[1]), int(found[2] or found[1]) + 1)) if found else set()


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_work_knows_the_seeds_on_which_its_preset_was_chosen(work):
    assert set(work.chosen_on) == seeds_of_choice(work)
    assert not seeds_of_choice(work) & set(work.seeds)


@pytest.mark.parametrize(("name", "counts"), [("cartpole", {9, 10, 101, 103, 104}), ("hopper", {8, 9, 10, 104})])
def test_a_record_of_a_seed_on_which_the_preset_was_chosen_does_not_count(name, counts):
    work = next(work for work in WORKS if work.name == name)
    record = {"work": name, "side": OURS, "settings": work.digest(OURS)}
    assert {seed for seed in (8, 9, 10, 101, 103, 104) if is_of(work, {**record, "seed": seed})} == counts


def test_a_seed_that_does_not_reach_the_score_is_later_than_all_others():
    assert spread_reached([41.9, None, 24.4, 50.2], ".1f") == "46.0 (24.4 to 50.2)"
    assert spread_reached([41.9, None], ".1f") == "- (41.9 to 41.9)"
    assert spread_reached([None], ".1f") == "-"


def test_the_ratio_of_two_sides_counts_the_seeds_that_do_not_reach_the_score():
    ours = [(100, 10.0), (200, 20.0), None]
    ratios = [row_of(WORKS[0], "475", "sb3", theirs, ours)[-1] for theirs in ([(1, 40.0)] * 3, [(1, 40.0), None, None])]
    assert ratios == ["2.0", "-"]


def test_the_returns_over_time_are_of_the_work_as_it_is_today():
    assert earlier_runs(RESULTS)
