"""The returns of the sessions of an experiment: those of evaluations and those of training are not compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.specs import write_spec

from offbeat.core.errors import ConfigError
from offbeat.experiments import results
from offbeat.experiments.jobs import JobStatus
from offbeat.experiments.report import row_of
from offbeat.experiments.results import result_of, return_kind
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import read_spec
from offbeat.experiments.trials import trials_of
from offbeat.metrics.sinks import read_metrics

COUNTS = {"updates": 1, "wall_time_s": 1.0}
TRAINED = {"env_steps": 100, "episode_return_mean": 20.0, **COUNTS}
EVALUATED = {
    "env_steps": 200, "episode_return_mean": 30.0, "evaluations": 1, "eval_env_steps": 200,
    "eval_return_mean": 500.0, "best_eval_return_mean": 500.0, **COUNTS,
}  # fmt: skip


def row(
    folder: Path,
    *lines_of_sessions: list[dict[str, Any]],
    states: Sequence[str] = (),
    target: float | None = None,
) -> dict[str, Any]:
    """Return the row of a trial whose sessions have these metrics lines, and these states; by default finished."""
    (trial,) = trials_of(read_spec(write_spec(folder / "spec.toml")))
    sessions = [Session(trial, seed, folder) for seed in range(len(lines_of_sessions))]
    states = states or ["finished"] * len(sessions)
    for session, lines, state in zip(sessions, lines_of_sessions, states, strict=True):
        latest = session.run.checkpoints_folder / "latest"
        latest.mkdir(parents=True)
        (latest / "policy.json").write_text('{"env_steps": 1}')
        session.run.status_file.write_text(json.dumps({"state": state}))
        session.run.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return row_of(sessions, (), target, return_kind(sessions))


def test_a_session_without_an_evaluation_is_not_averaged_with_evaluated_ones(tmp_path):
    found = row(tmp_path, [TRAINED, EVALUATED], [TRAINED])
    assert (found["return_kind"], found["final_return"], found["best_return"]) == ("evaluation", 500.0, 500.0)


@pytest.mark.parametrize(("target", "reached"), [(500.0, 1), (500.5, 0)])
def test_a_return_that_equals_the_target_has_reached_it(tmp_path, target, reached):
    assert row(tmp_path, [TRAINED, EVALUATED], target=target)["reached_target"] == reached


@pytest.mark.parametrize("state", ["running", "interrupted", "failed"])
def test_the_returns_of_a_session_that_has_not_finished_are_in_no_mean(state, tmp_path):
    early = {**EVALUATED, "eval_return_mean": 9.0, "best_eval_return_mean": 9.0}
    found = row(tmp_path, [TRAINED, EVALUATED], [early], states=["finished", state])
    assert (found["finished"], found["final_return"], found["best_return"]) == (1, 500.0, 500.0)
    assert (found["final_std"], found["final_iqm"], found["final_iqm_low"]) == (None, 500.0, None)


def test_a_session_that_failed_in_an_earlier_start_counts_as_failed_until_it_is_finished(tmp_path):
    found = row(tmp_path, [TRAINED], [TRAINED], [TRAINED], states=["finished", "failed", "interrupted"])
    assert (found["sessions"], found["finished"], found["failed"]) == (3, 1, 1)


def test_a_row_reads_the_status_of_each_session_once(tmp_path, monkeypatch):
    read: list[int] = []
    status = Session.status

    def noted(session: Session) -> JobStatus:
        read.append(session.seed)
        return status(session)

    monkeypatch.setattr(Session, "status", noted)
    row(tmp_path, [TRAINED], [TRAINED], states=["finished", "failed"])
    assert read == [0, 1]


def test_metrics_are_read_again_only_if_they_have_changed(tmp_path, monkeypatch):
    read: list[Path] = []

    def noted(path: Path, wanted: Any) -> list[dict[str, Any]]:
        read.append(path)
        return read_metrics(path, wanted)

    monkeypatch.setattr(results, "read_metrics", noted)
    (trial,) = trials_of(read_spec(write_spec(tmp_path / "spec.toml")))
    session = Session(trial, 1, tmp_path)
    assert result_of(session, None, "training", finished=False) is None
    session.run.path.mkdir()
    for lines in ([TRAINED], [TRAINED, EVALUATED]):
        session.run.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        for _ in range(2):
            result = result_of(session, None, "training", finished=False)
            assert result is not None
            assert result.final_return == lines[-1]["episode_return_mean"]
    assert len(read) == 2


def test_without_any_evaluation_the_returns_are_those_of_training(tmp_path):
    found = row(tmp_path, [TRAINED], [{**TRAINED, "episode_return_mean": 40.0}])
    assert (found["return_kind"], found["final_return"]) == ("training", 30.0)


def test_a_line_without_a_counter_is_refused_with_the_file(tmp_path):
    without = {key: value for key, value in TRAINED.items() if key != "wall_time_s"}
    with pytest.raises(ConfigError, match=r"seed-0/metrics.jsonl has a line without the number wall_time_s"):
        row(tmp_path, [without, TRAINED])


@pytest.mark.parametrize(("line", "key"), [(TRAINED, "episode_return_mean"), (EVALUATED, "eval_return_mean")])
def test_a_return_that_is_no_number_is_refused_with_the_file(tmp_path, line, key):
    with pytest.raises(ConfigError, match=rf"seed-0/metrics.jsonl has an {key} that is no number"):
        row(tmp_path, [{**line, key: "x"}], target=50.0)
