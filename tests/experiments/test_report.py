"""The tables of experiments and populations."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import NoReturn

from offbeat.experiments import report
from offbeat.experiments.report import as_markdown
from offbeat.run_directory.directory import RunDirectory


def test_a_vertical_bar_in_a_cell_does_not_begin_another_one():
    header, _, row = as_markdown([{"member": 0, "failed": "expected serial | threads", "score": 1.0}]).splitlines()
    assert header == "| member | failed | score |"
    assert row == r"| 0 | expected serial \| threads | 1.00 |"


def trials_in(experiment: Path, count: int) -> list[Path]:
    """Create an experiment with trials of one session that has metrics, and return their paths."""
    trials = [experiment / f"trial-{number:03d}" for number in range(count)]
    for trial in trials:
        run = trial / "seed-1"
        run.mkdir(parents=True)
        (trial / "trial.toml").touch()
        (run / "config.toml").write_text("[run]\nseed = 1\n")
        (run / "metrics.jsonl").write_text('{"env_steps": 1, "episode_return_mean": 2.0}\n')
    (experiment / "experiment.json").touch()
    return trials


def test_graphs_are_drawn_again_only_after_new_metrics(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw_runs", lambda *_arguments, **_more: None)
    monkeypatch.setattr(report, "write_figure", lambda _figure, file, _notify: file.touch())
    trials = trials_in(tmp_path, 2)

    def plotted() -> list[str]:
        said: list[str] = []
        time.sleep(0.02)  # files that are written at the same time are drawn again
        report.plot_experiment(tmp_path, trials, said.append)
        return [text.removeprefix("plotting ") for text in said]

    assert plotted() == ["trial-000", "trial-001", tmp_path.name]
    assert plotted() == []
    time.sleep(0.02)
    (trials[1] / "seed-1/metrics.jsonl").touch()
    assert plotted() == ["trial-001", tmp_path.name]
    (trials[0] / "return-time.png").unlink()
    assert plotted() == ["trial-000"]


def test_an_experiment_with_a_finished_session_without_its_metrics_is_not_plotted_and_says_why(tmp_path):
    run = RunDirectory(tmp_path / "trial-000/seed-1")
    run.path.mkdir(parents=True)
    run.config_file.write_text("[run]\nseed = 1\n")
    for file in (run.path.parent / "trial.toml", tmp_path / "experiment.json"):
        file.touch()
    said: list[str] = []
    report.plot_experiment(tmp_path, [run.path.parent], said.append)
    assert said == []  # it has no returns yet
    run.write_status("finished")
    report.plot_experiment(tmp_path, [run.path.parent], said.append)
    assert [text.partition(":")[0] for text in said] == [f"trial-000 and {tmp_path.name} are not plotted"]
    assert "metrics.jsonl is missing, but the run has finished" in said[0]


def test_a_message_on_the_font_is_told_once_for_all_graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw_runs", lambda *_arguments, **_more: None)
    monkeypatch.setattr(report, "write_figure", lambda _figure, _file, notify: notify("the font lacks 学"))
    said: list[str] = []
    report.plot_experiment(tmp_path, trials_in(tmp_path, 2), said.append)
    assert said.count("the font lacks 学") == 1


def test_of_many_graphs_that_cannot_be_written_three_are_named(tmp_path, monkeypatch):
    def fail(*_arguments: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(report, "draw_runs", lambda *_arguments, **_more: None)
    monkeypatch.setattr(report, "write_figure", fail)
    said: list[str] = []
    report.plot_experiment(tmp_path, trials_in(tmp_path, 5), said.append)
    assert said[-1] == (
        "trial-000 and trial-001 and trial-002 and 3 more are not plotted: [Errno 28] No space left on device; to try "
        f"again, run `offbeat plot {tmp_path}`"
    )
