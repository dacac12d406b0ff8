"""Whole experiments, in processes of their own: killed, stopped and gone on with; what they leave is recomputed."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import statistics
import tomllib
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from tests.reference import statistics as slow
from tests.support.pages import directory_at, directory_on
from tests.support.runs import (
    CommandResult,
    Started,
    contents,
    has_saved,
    is_alive,
    lines_of,
    offbeat,
    process_of,
    small_run,
    status_of,
    weights_of,
)
from tests.support.specs import TINY, grid, run_spec, write_spec
from tests.support.thorough import thorough
from tests.support.warm import REPOSITORY

from offbeat.cli.run import RunSpec
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.process import stop_signals
from offbeat.experiments import experiment as experiment_module
from offbeat.experiments import optuna_search
from offbeat.experiments.experiment import Experiment
from offbeat.experiments.launching import LocalLauncher
from offbeat.experiments.running import Pool
from offbeat.experiments.trials import Trial, trial_of
from offbeat.plots.runs import runs_of

HELD, ENVS = "runs/Held-v0", ["tests.sample_envs.run_envs"]
"""An env that waits for a file GO."""
LONG: dict[str, Any] = {**TINY, "steps": 1600, "checkpoint_every": 300, "eval_every": 400, "eval_episodes": 3}
RATES = (0.001, 0.003)
SEEDS = (1, 2)
TARGET = 19.2
"""A mean return that some evaluations reach, and others do not."""


@pytest.fixture
def without_pictures(monkeypatch) -> None:
    """Draw no pictures: those of the scenario are looked at."""
    monkeypatch.setattr(experiment_module, "plot_experiment", lambda *_: None)


class Scenario(NamedTuple):
    """Two trials of two sessions: killed, stopped, and gone on with."""

    folder: Path
    experiment: Path
    orphans: list[int]
    """Processes of sessions that ran when `offbeat run` was killed."""
    finished_before: dict[Path, dict[str, str]]
    """What was in the sessions that had finished then."""
    stopped: CommandResult
    resumed: list[Path]
    """Sessions that had a checkpoint when the last run began, and had not finished."""
    ended: CommandResult


def session(experiment: Path, number: int) -> Path:
    """Return the number-th session, in the order in which they are started."""
    return experiment / f"trial-{number // 2:03}" / f"seed-{SEEDS[number % 2]}"


def is_under_way(run: Path) -> bool:
    """Whether a process trains in a run, and there is a checkpoint to go on from."""
    return has_saved(run) and is_alive(process_of(run))


def is_finished(run: Path) -> bool:
    return (run / "status.json").is_file() and status_of(run)["state"] == "finished"


@pytest.fixture(scope="module")
def scenario(tmp_path_factory) -> Scenario:
    folder = tmp_path_factory.mktemp("scenario")
    write_spec(
        folder / "spec.toml", env=HELD, imports=ENVS, seeds=list(SEEDS), target_return=TARGET, settings=LONG,
        search=grid(learning_rate=list(RATES)),
    )  # fmt: skip
    experiment = folder / "experiments/spec"
    runs, go = [session(experiment, number) for number in range(4)], folder / "GO"

    go.touch()
    started = Started(["run", "spec.toml", "--jobs", "1", "--trust-code"], folder)
    started.wait_until(lambda: is_finished(runs[0]))
    go.unlink()
    started.wait_until(lambda: is_under_way(runs[1]))
    orphans = [process_of(run) for run in runs if is_under_way(run)]
    before = {run: contents(run) for run in runs[:1] if is_finished(run)}
    started.end(signal.SIGKILL)

    go.touch()
    started = Started(["run", "spec.toml", "--jobs", "1", "--trust-code"], folder)
    started.wait_for_text("trial-001/seed-1 ")  # from here on, whoever trains in it is a child of this one
    go.unlink()
    started.wait_until(lambda: is_under_way(runs[2]))
    stopped = started.end(signal.SIGINT)
    go.touch()

    resumed = [run for run in runs if has_saved(run) and not is_finished(run)]
    return Scenario(
        folder, experiment, orphans, before, stopped, resumed, run_spec(folder, "--jobs", "2", "--trust-code")
    )


# --- stopping and going on ----------------------------------------------------------------------------------


def test_no_session_outlives_a_killed_experiment(scenario):
    assert scenario.orphans
    assert not any(is_alive(pid) for pid in scenario.orphans)
    log = (scenario.experiment / "trial-000/seed-2.log").read_text()
    assert "offbeat train" in log
    assert "offbeat resume" in log  # it had saved, though nobody was left to ask it to


def test_a_stop_saves_running_sessions_and_starts_no_more(scenario):
    assert scenario.stopped.code == 130
    assert "to resume: offbeat run spec.toml" in scenario.stopped.out
    assert "interrupted: " in scenario.stopped.out
    assert "trial-001/seed-1 interrupted: " in scenario.stopped.err
    assert "trial-001/seed-2 starts" not in scenario.stopped.err
    assert session(scenario.experiment, 2) in scenario.resumed


def test_finished_sessions_are_skipped_and_others_are_resumed(scenario):
    assert scenario.ended.code == 0, scenario.ended
    assert "finished: 4 of 4 sessions finished" in scenario.ended.out
    assert f"trial-001 (learning_rate {RATES[1]:g}, {HELD}): final return " in scenario.ended.out
    assert "trial-001/seed-1 resumes from its checkpoint" in scenario.ended.err
    assert scenario.finished_before
    for run, before in scenario.finished_before.items():
        assert contents(run) == before


@pytest.mark.parametrize("number", [2, *thorough(1)])
def test_a_session_that_was_resumed_has_the_bits_of_a_separate_run(scenario, tmp_path, monkeypatch, number):
    monkeypatch.chdir(scenario.folder)  # where GO is
    run, trial = session(scenario.experiment, number), number // 2
    settings = {**LONG, "seed": SEEDS[number % 2], "learning_rate": RATES[trial], "hidden_sizes": (16,)}
    alone = small_run(tmp_path / "alone", HELD, imports=tuple(ENVS), **settings).path
    assert weights_of(run) == weights_of(alone)
    assert (run / "config.toml").read_text() == (alone / "config.toml").read_text()


@pytest.mark.usefixtures("without_pictures")
def test_a_finished_experiment_starts_no_session(scenario):
    before = {name: content for name, content in contents(scenario.experiment).items() if "seed-" in name}
    said = run_spec(scenario.folder, "--trust-code")
    assert said.code == 0
    assert "already finished: 4 sessions" in said.err
    after = {name: content for name, content in contents(scenario.experiment).items() if "seed-" in name}
    assert after == before


# --- what is left -------------------------------------------------------------------------------------------


def seconds_at(env_steps: int, lines: Sequence[dict[str, Any]]) -> float:
    """Return when a session had made so many env steps, on straight lines between its metrics lines."""
    first: dict[int, float] = {0: 0.0}
    for line in lines:
        first.setdefault(line["env_steps"], line["wall_time_s"])
    return float(np.interp(env_steps, list(first), list(first.values())))


def test_the_csv_table_agrees_with_the_metrics_of_the_sessions(scenario):
    with (scenario.experiment / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["trial"], row["learning_rate"]) for row in rows] == [("trial-000", "0.001"), ("trial-001", "0.003")]
    for trial, row in enumerate(rows):
        runs = [lines_of(session(scenario.experiment, 2 * trial + index)) for index in range(2)]
        evaluations = [
            [
                (line["eval_env_steps"], seconds_at(line["eval_env_steps"], lines), line["eval_return_mean"])
                for line in lines
                if line["evaluations"]
            ]
            for lines in runs
        ]
        finals = [lines[-1]["eval_return_mean"] for lines in runs]
        firsts = [next((point for point in points if point[2] >= TARGET), None) for points in evaluations]
        reached = [first for first in firsts if first is not None]
        low, high = slow.bootstrap_band([[final] for final in finals], 0.95, 4000, seed=1)
        expected = {
            "env": HELD,
            "sessions": 2,
            "finished": 2,
            "failed": 0,
            "return_kind": "evaluation",
            "final_return": sum(finals) / 2,
            "final_std": statistics.stdev(finals),
            "final_iqm": slow.iqm(finals),
            "best_return": sum(max(point[2] for point in points) for points in evaluations) / 2,
            "reached_target": len(reached),
            "steps_to_target": sum(first[0] for first in reached) / len(reached) if reached else "",
            "seconds_to_target": sum(first[1] for first in reached) / len(reached) if reached else "",
            "env_steps": sum(lines[-1]["env_steps"] for lines in runs) / 2,
            "wall_time_s": sum(lines[-1]["wall_time_s"] for lines in runs) / 2,
            "sps": sum(lines[-1]["env_steps"] / lines[-1]["wall_time_s"] for lines in runs) / 2,
            "ups": sum(lines[-1]["updates"] / lines[-1]["wall_time_s"] for lines in runs) / 2,
        }
        told = {key: row[key] for key in expected}
        texts = ("env", "return_kind")
        assert {key: value if key in texts or value == "" else float(value) for key, value in told.items()} == {
            key: value if isinstance(value, str) else pytest.approx(value) for key, value in expected.items()
        }
        assert float(row["final_iqm_low"]) == pytest.approx(low[0], abs=0.2 * (high[0] - low[0]) + 1e-9)
        assert float(row["final_iqm_high"]) == pytest.approx(high[0], abs=0.2 * (high[0] - low[0]) + 1e-9)
        assert set(row) == {"trial", "learning_rate", "final_iqm_low", "final_iqm_high", *expected}


def test_the_markdown_table_has_the_same_rows(scenario):
    header, _, *rows = (scenario.experiment / "table.md").read_text().splitlines()
    with (scenario.experiment / "table.csv").open() as file:
        names, *values = list(csv.reader(file))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]
    assert cells[0] == names
    assert [row[0] for row in cells[1:]] == [row[0] for row in values]
    assert all(len(row) == len(names) for row in cells)


def test_each_trial_and_the_experiment_have_graphs(scenario):
    folders = [scenario.experiment, scenario.experiment / "trial-000", scenario.experiment / "trial-001"]
    for folder in folders:
        for name in ("return-steps.png", "return-time.png"):
            with Image.open(folder / name) as picture:
                assert picture.width > 1000
    assert len(runs_of(folders[0])) == 4
    assert len(runs_of(folders[1])) == 2


def test_an_experiment_has_the_files_that_the_page_lists(scenario):
    found = {path for path in directory_at(scenario.experiment, 2) if ".lost-" not in path}
    assert found | {"trial-N/pruned.json"} == directory_on("docs/how-to/search.md")  # no trial is pruned here


def test_plot_draws_an_experiment_and_a_trial(scenario, tmp_path):
    for path in (scenario.experiment, scenario.experiment / "trial-001"):
        said = offbeat("plot", path, "--out", tmp_path / "picture.png")
        assert said.code == 0
        assert (tmp_path / "picture.png").read_bytes() == (path / "return-steps.png").read_bytes()


def test_the_experiment_record_has_the_versions_of_each_start(scenario):
    record = json.loads((scenario.experiment / "experiment.json").read_text())
    assert len(record["made_with"]) >= 3  # each time
    part = record["made_with"][0]
    assert (part["packages"]["numpy"], part["packages"]["torch"]) == (np.__version__, torch.__version__)
    assert (scenario.experiment / "spec.toml").read_bytes() == (scenario.folder / "spec.toml").read_bytes()
    trial = tomllib.loads((scenario.experiment / "trial-001/trial.toml").read_text())
    assert trial["searched"] == {"learning_rate": 0.003}
    assert trial["ppo"]["learning_rate"] == 0.003
    assert trial["run"]["steps"] == LONG["steps"]


def test_the_command_of_a_session_can_be_run_again(scenario):
    command = (session(scenario.experiment, 3) / "command.txt").read_text()
    assert command.startswith(f"offbeat train ppo {HELD} ")
    assert "seed=2" in command
    assert "learning_rate=0.003" in command


# --- what goes wrong ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_pictures")
def test_a_failed_session_does_not_stop_the_others_and_is_retried(tmp_path):
    write_spec(
        tmp_path / "spec.toml", env=None, envs=["runs/RaisesUntilMended-v0", "CartPole-v1"], seeds=[1],
        imports=["tests.sample_envs.run_envs"], settings={**TINY, "steps": 900, "checkpoint_every": 256},
    )  # fmt: skip
    said = run_spec(tmp_path, "--trust-code")
    experiment = tmp_path / "experiments/spec"
    assert said.code == 1
    assert "failed: trial-000/seed-1: " in said.out
    assert "the wave has no length" in said.out
    assert str(Path("experiments/spec/trial-000/seed-1.log")) in said.out
    assert "1 of 2 sessions finished, 1 failed" in said.out
    assert is_finished(experiment / "trial-001/seed-1")
    with (experiment / "table.csv").open() as file:
        assert [(row["finished"], row["failed"]) for row in csv.DictReader(file)] == [("0", "1"), ("1", "0")]

    (tmp_path / "MENDED").touch()
    said = run_spec(tmp_path, "--trust-code")
    assert said.code == 0, said
    assert "trial-000/seed-1 resumes from its checkpoint" in said.err
    assert lines_of(experiment / "trial-000/seed-1")[-1]["env_steps"] >= 900


def test_an_experiment_that_another_process_uses_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    spec = write_spec(tmp_path / "spec.toml", seeds=[1], settings={**TINY, "steps": 10**8})
    started = Started(["run", "spec.toml"], tmp_path)
    run = tmp_path / "experiments/spec/trial-000/seed-1"
    started.wait_until((run / "status.json").is_file)
    monkeypatch.chdir(tmp_path)
    said = offbeat("run", spec, "--progress", "none")
    assert said.code == 2
    assert "another `offbeat run` is using experiments/spec" in said.err
    assert offbeat("run", spec, "--dry-run").code == 0  # looking disturbs nobody
    pid = process_of(run)
    assert is_alive(pid)
    said = started.end(signal.SIGTERM, signal.SIGTERM)  # the second one kills
    assert said.code == 130
    assert "to resume: offbeat run spec.toml" in said.out
    assert not is_alive(pid)


@pytest.mark.usefixtures("without_pictures")
def test_an_experiment_whose_cluster_is_lost_leaves_its_table_and_says_how_to_resume(tmp_path, monkeypatch, capsys):
    def lose(_launcher: object) -> int:
        raise RunFailed("the cluster is lost")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalLauncher, "room", lose)
    write_spec(tmp_path / "spec.toml", settings=TINY)
    with pytest.raises(RunFailed, match="the cluster is lost"):
        RunSpec(Path("spec.toml"), progress="none").run()
    assert Path("experiments/spec/table.csv").is_file()
    assert "to resume: offbeat run spec.toml" in capsys.readouterr().out


def test_a_second_signal_in_the_report_ends_the_command_after_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stop_signals, "REPEATED_WITHIN_S", 0.0)
    drawn: list[Path] = []

    def draw(folder: Path, *_others: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        drawn.append(folder)

    monkeypatch.setattr(experiment_module, "plot_experiment", draw)
    write_spec(tmp_path / "spec.toml", seeds=[1], settings=TINY)
    said = offbeat("run", "spec.toml", "--progress", "none")
    assert said.code == 130, said
    assert "to resume: offbeat run spec.toml" in said.out
    assert drawn == [Path("experiments/spec")]


@pytest.fixture
def begun(tmp_path, monkeypatch) -> Path:
    """An experiment whose first session has stopped early."""
    monkeypatch.chdir(tmp_path)
    settings = {**TINY, "steps": 10**8, "stop_at": 500}
    write_spec(tmp_path / "spec.toml", settings=settings, seeds=[1, 2])
    small_run(tmp_path / "experiments/spec/trial-000/seed-1", **{**TINY, "steps": 10**8, "stop_at": 200, "seed": 1})
    return tmp_path / "experiments/spec"


@pytest.mark.usefixtures("without_pictures")
def test_a_resumed_session_stops_where_the_spec_ends(begun):
    (begun / "trial-000/seed-2").mkdir()
    (begun / "trial-000/seed-2/notes.txt").write_text("mine")
    assert offbeat("run", "spec.toml", "--progress", "none").code == 2  # it was not made by `offbeat run`
    (begun / "experiment.json").write_text(json.dumps(record_of(begun)))
    said = run_spec(Path.cwd(), "--jobs", "2")
    assert said.code == 0, said
    for seed in (1, 2):
        steps = lines_of(begun / f"trial-000/seed-{seed}")[-1]["env_steps"]
        assert 500 <= steps < 600
    assert "resume" in (begun / "trial-000/seed-1.log").read_text()
    assert "trial-000/seed-2 had no checkpoint" in said.err
    assert (begun / "trial-000/seed-2.lost-1/notes.txt").read_text() == "mine"
    assert offbeat("run", "spec.toml", "--dry-run").out.count(": skip") == 2


def record_of(experiment: Path) -> dict[str, Any]:
    from offbeat.experiments.spec import read_spec

    spec = read_spec(experiment.parent.parent / "spec.toml")
    return {"spec": spec.identity(), "seeds": list(spec.seeds), "trials": spec.trials_per_env, "made_with": []}


@pytest.mark.usefixtures("without_pictures")
def test_an_optuna_search_resumes_with_its_earlier_results(tmp_path):
    pytest.importorskip("optuna")
    over = {"learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"}, "hidden_sizes": [[8], [16]]}
    settings = {key: value for key, value in TINY.items() if key != "hidden_sizes"}
    tables: dict[str, Any] = {"seeds": [1], "settings": settings}
    write_spec(tmp_path / "spec.toml", **tables, search={"method": "optuna", "trials": 1, "over": over})
    assert run_spec(tmp_path).code == 0
    first = contents(tmp_path / "experiments/spec/trial-000/seed-1")

    write_spec(tmp_path / "spec.toml", **tables, search={"method": "optuna", "trials": 2, "over": over})
    said = run_spec(tmp_path)
    assert said.code == 0, said
    assert contents(tmp_path / "experiments/spec/trial-000/seed-1") == first
    with (tmp_path / "experiments/spec/table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["trial-000", "trial-001"]
    assert len({row["learning_rate"] for row in rows}) == 2
    assert {row["hidden_sizes"] for row in rows} <= {"8", "16"}


def test_optuna_chooses_a_trial_anew_whose_folder_was_deleted(tmp_path):
    pytest.importorskip("optuna")
    search = {"method": "optuna", "trials": 4, "over": {"gamma": {"low": 0.9, "high": 0.99}}}
    write_spec(tmp_path / "spec.toml", search=search)

    def started() -> list[Trial]:
        experiment = Experiment(tmp_path / "spec.toml", tmp_path / "experiment")
        with experiment.directory.locked():
            experiment.directory.write_record(experiment.spec, b"")
        for (trial,) in experiment._batches():
            experiment.directory.write_trial(trial)
        return experiment.trials

    before = started()
    shutil.rmtree(tmp_path / "experiment" / before[1].name)
    assert [(trial.number, trial.values) for trial in started()] == [(each.number, each.values) for each in before]


@pytest.fixture
def pairs_that_may_not_fit(tmp_path) -> Experiment:
    """A search by Optuna in which each value fits to the first ones of the other keys, but not all pairs fit."""
    pytest.importorskip("optuna")
    over = {"capacity": [100_000, 50_000], "warmup": [1000, 100_000]}
    search = {"method": "optuna", "trials": 3, "over": over}
    spec = write_spec(tmp_path / "spec.toml", algorithm="sac", env="Pendulum-v1", settings={}, search=search)
    return Experiment(spec, tmp_path / "experiment")


def test_optuna_draws_settings_again_that_do_not_fit_together(pairs_that_may_not_fit):
    search = pairs_that_may_not_fit.spec.search
    assert search is not None
    values = [pairs_that_may_not_fit._next_trial(search, number).values for number in range(20)]
    assert {"capacity": 50_000, "warmup": 100_000} not in values
    assert {"capacity": 100_000, "warmup": 100_000} in values


def test_a_search_in_which_no_more_settings_fit_is_refused_after_its_report(pairs_that_may_not_fit, monkeypatch):
    def not_fitting(*_arguments: object) -> Iterator[dict[str, int]]:
        yield {"capacity": 100_000, "warmup": 1000}
        while True:
            yield {"capacity": 50_000, "warmup": 100_000}

    drawn = not_fitting()
    monkeypatch.setattr(optuna_search, "draws", lambda *_arguments: drawn)
    monkeypatch.setattr(Pool, "run", lambda _pool, _sessions: None)
    with pytest.raises(ConfigError, match="warmup"):
        pairs_that_may_not_fit.run(Mock(), Mock())
    assert "| trial-000 | 100000 | 1000 |" in pairs_that_may_not_fit.directory.markdown.read_text()


def test_a_search_by_optuna_that_continues_has_the_configs_of_later_trials_too(tmp_path):
    pytest.importorskip("optuna")
    settings, search = {"runtime": "processes"}, {"method": "optuna", "trials": 2, "over": {"actors": [1, 8]}}
    spec = write_spec(tmp_path / "spec.toml", settings=settings, search=search)

    def actors(experiment: Experiment) -> set[int]:
        return {config.runtime.actors for config in experiment.configs}

    experiment = Experiment(spec, tmp_path / "experiment")
    assert actors(experiment) == {1, 8}
    with experiment.directory.locked():
        experiment.directory.write_record(experiment.spec, b"")
        experiment.directory.write_trial(trial_of(experiment.spec, 0, "CartPole-v1", {"actors": 1}))
    assert actors(Experiment(spec, tmp_path / "experiment")) == {1, 8}


def test_a_search_by_optuna_reserves_the_cores_of_its_largest_trial(tmp_path):
    pytest.importorskip("optuna")
    over = {"actors": {"low": 1, "high": 8}, "learner_threads": [1, 4], "learning_rate": [0.001, 0.01]}
    search = {"method": "optuna", "trials": 2, "over": over}
    spec = write_spec(tmp_path / "spec.toml", settings={"runtime": "processes"}, search=search)
    needed = [config.busy_cores for config in Experiment(spec, tmp_path / "experiment").configs]
    assert max(cores or 0 for cores in needed) == 12


def test_optuna_is_told_of_a_trial_whose_session_failed(pairs_that_may_not_fit, monkeypatch):
    values, told = {"capacity": 100_000, "warmup": 1000}, []

    def draws(_search: object, scored: list[tuple[dict[str, int], float | None]], _number: int) -> Any:
        told.extend(scored)
        return repeat(values)

    monkeypatch.setattr(optuna_search, "draws", draws)
    pairs_that_may_not_fit.trials = [trial_of(pairs_that_may_not_fit.spec, 0, "Pendulum-v1", values)]
    assert pairs_that_may_not_fit.spec.search is not None
    pairs_that_may_not_fit._next_trial(pairs_that_may_not_fit.spec.search, 1)
    assert told == [(values, None)]


def test_a_search_by_optuna_has_no_settings_twice_while_there_are_others(pairs_that_may_not_fit):
    search = pairs_that_may_not_fit.spec.search
    assert search is not None
    for number in range(4):
        pairs_that_may_not_fit.trials.append(pairs_that_may_not_fit._next_trial(search, number))
    *first, last = (trial.values for trial in pairs_that_may_not_fit.trials)
    assert all(values not in first[:number] for number, values in enumerate(first))
    assert last in first, "the fourth pair does not fit"
