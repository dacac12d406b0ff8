from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from tests.support.progress import Clock

from offbeat.core.errors import ConfigError
from offbeat.experiments.progress import JobCounts, JobLines, JobProgress, JobsDashboard, JobsView, make_jobs_view

LINE: dict[str, Any] = {
    "env_steps": 25_000, "sps": 500.0, "episode_return_mean": 31.4, "eval_return_mean": 62.8,
    "best_eval_return_mean": 99.0,
}  # fmt: skip
ROWS = [
    JobProgress("trial-000/seed-1", 100_000, LINE),
    JobProgress("trial-000/seed-2", 100_000, {}, state="starting"),
    JobProgress("t/s", 10, LINE, state="stopping"),
]


def test_a_row_shows_the_progress_and_the_return_of_a_session():
    told = ROWS[0].cells()
    assert told == [" 25%", "25k/100k env steps", "return 31.4", "eval 62.8 (best 99.0)", "ETA 2:30", "SPS 500", ""]
    assert ROWS[1].cells()[-3:] == ["ETA -", "SPS -", "starting"]
    assert ROWS[2].cells()[0] == "100%"
    assert ROWS[2].cells()[-1] == "stopping"


def test_the_time_left_of_a_session_is_at_most_that_of_its_limit():
    line = {**LINE, "wall_time_s": 50.0}
    assert JobProgress("a", 100_000, line, time_s=110.0).eta_s == 60.0
    assert JobProgress("a", 100_000, line, time_s=900.0).eta_s == 150.0
    assert JobProgress("a", 100_000, {}, time_s=110.0).eta_s is None
    assert JobProgress("a", 100_000, {}).eta_s is None


def test_lines_are_printed_every_few_seconds_and_rows_are_read_no_more_often():
    stream, clock, asked = io.StringIO(), Clock(), []
    view = JobLines(stream, every_s=10, clock=clock)

    def rows() -> list[JobProgress]:
        asked.append(clock.now)
        return ROWS

    for clock.now in (100, 105, 111, 115, 122):
        view.update(rows, JobCounts(6, 2, 1, what="trainings"))
    assert asked == [111, 122]
    assert stream.getvalue().count("2 of 6 trainings finished, 1 failed\n") == 2
    assert stream.getvalue().count("trial-000/seed-1") == 2


def test_the_dashboard_has_a_line_per_session_below_the_messages():
    stream, clock = io.StringIO(), Clock()
    view = JobsDashboard(Console(file=stream, width=140, force_terminal=True, color_system=None), clock=clock)
    view.start()
    view.message("trial-000/seed-0 finished")
    view.update(lambda: ROWS, JobCounts(6, 1))
    before = len(stream.getvalue())
    view.clear(JobCounts(6, 1))
    assert "trial-000" not in stream.getvalue()[before:]
    view.close()
    told = stream.getvalue()
    assert [row.name for row in ROWS if row.name not in told] == []
    assert "25k/100k env steps" in told
    assert told.index("seed-0 finished") < told.index("1 of 6 sessions finished")


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_terminal_of_any_width_shows_return_evaluation_and_time_left(width):
    stream = io.StringIO()
    view = JobsDashboard(Console(file=stream, width=width, force_terminal=True, color_system=None))
    view.start()
    far = {**LINE, "episode_return_mean": -12_345.0, "eval_return_mean": -12_345.0, "env_steps": 1, "sps": 1.0}
    view.update(lambda: [*ROWS, JobProgress("trial-001/seed-3", 90_000, far)], JobCounts(6, 1))
    (row,) = (line for line in stream.getvalue().splitlines() if "trial-000/seed-1" in line)
    for text in (" 25%", "return 31.4", "eval 62.8", "ETA 2:30"):
        assert text in row
    (row,) = (line for line in stream.getvalue().splitlines() if "trial-001/seed-3" in line)
    for text in ("return -12,345", "eval -12,345", "ETA 1d 00:59:59"):
        assert text in row
    view.close()


def test_the_progress_view_depends_on_the_output_stream():
    assert isinstance(make_jobs_view(None, io.StringIO()), JobLines)
    assert type(make_jobs_view("none", io.StringIO())) is JobsView
    assert isinstance(make_jobs_view("dashboard", io.StringIO()), JobsDashboard)
    with pytest.raises(ConfigError, match="'dashbord'"):
        make_jobs_view("dashbord", io.StringIO())  # type: ignore[arg-type]
