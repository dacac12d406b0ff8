"""The table of seconds to scores has what the committed results say, all of which have today's settings."""

from __future__ import annotations

from benchmarks.common import RESULTS, read_section
from benchmarks.records import read_records
from benchmarks.seconds_to_score.page import END, PAGE, START, content, is_of
from benchmarks.seconds_to_score.works import WORKS
from benchmarks.time_to_return import earlier_runs

RECORDS = read_records(RESULTS / "seconds-to-score.jsonl")


def test_the_table_of_the_page_is_that_of_the_results():
    assert read_section(PAGE, START, END).strip() == content(RECORDS), (
        "run: python -m benchmarks.seconds_to_score --only-page"
    )


def test_every_record_is_of_a_work_as_it_is_today():
    others = [record for record in RECORDS if not any(is_of(work, record) for work in WORKS)]
    assert not others


def test_the_returns_over_time_are_of_the_work_as_it_is_today():
    assert earlier_runs(RESULTS)
