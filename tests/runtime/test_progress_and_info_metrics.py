"""What envs report is counted when it is learned from, and what they are told belongs to the weights that act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sample_envs import curious_envs
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, offbeat, small_arguments, small_run

from offbeat.api.resume import resume
from offbeat.metrics.names import tag_of

CURIOUS: dict[str, Any] = {"imports": ("tests.sample_envs.curious_envs",)}
ROWS = {"unroll_length": 8, "steps": 512}


def train_and_read_lines(path: Path, **settings: Any) -> list[dict[str, Any]]:
    """Train on an env that reports what it is told; return the metrics lines, one a learning step."""
    run = small_run(
        path, "curious/Learning-v0", **{**CURIOUS, **ROWS, "info_metrics": ("progress", "wind"), **settings}
    )
    return lines_of(run.path)[:-1]  # the last repeats the one before, at the end


@pytest.mark.parametrize("max_lag", [0, 2])
def test_envs_receive_the_progress_of_the_learning_step_of_the_acting_weights(tmp_path, max_lag):
    lines = train_and_read_lines(tmp_path / "run", max_lag=max_lag, curriculum=("wind 0:1 0.5:3",))
    learned = [0, *(line["env_steps"] for line in lines)]
    assert [line["learning_step"] for line in lines] == list(range(1, len(lines) + 1))
    for step, line in enumerate(lines):
        version = max(0, step - max_lag)
        progress = learned[version - 1] / 512 if version else 0.0
        assert line["info/progress_mean"] == pytest.approx(progress)
        assert line["info/wind_mean"] == pytest.approx(1 + 4 * min(progress, 0.5))
    assert progress > 0.5


def test_envs_receive_the_progress_once_per_ticket_of_a_replay(tmp_path):
    run = small_sac(
        tmp_path / "run", "curious/Learning-v0", **CURIOUS, info_metrics=("progress",), max_ahead=1, steps=150
    )
    lines = lines_of(run.path)[:-1]
    learned = [0, *(line["env_steps"] for line in lines)]
    for step, line in enumerate(lines):
        version = max(0, step - 1)
        assert line["info/progress_mean"] == pytest.approx(learned[version - 1] / 150 if version else 0.0)


def test_episodes_after_a_resume_start_with_the_current_progress(tmp_path, monkeypatch):
    at_resets: list[float] = []

    def reset(self: Any, **arguments: Any) -> Any:
        at_resets.append(self.progress)
        return super(curious_envs.Learning, self).reset(**arguments)

    monkeypatch.setattr(curious_envs.Line, "snapshot", None)
    monkeypatch.setattr(curious_envs.Learning, "reset", reset, raising=False)
    run = small_run(tmp_path / "run", "curious/Learning-v0", **CURIOUS, **ROWS, stop_at=256)
    assert at_resets[0] == 0
    at_resets.clear()
    resume(run.path)
    told_first = at_resets.index(max(at_resets[:20], key=bool))  # those before are of the preflight
    assert all(progress > 0.4 for progress in at_resets[told_first:])
    assert len(at_resets) > told_first + 4


def test_evaluations_use_the_final_progress_and_parameters(tmp_path):
    settings = {**CURIOUS, **ROWS, "eval_every": 200, "eval_episodes": 3, "curriculum": ("wind 0:3 1:0",)}
    run = small_run(tmp_path / "run", "curious/LearningVector-v0", **settings)  # each step pays progress + wind
    evaluated = [line for line in lines_of(run.path) if line["eval_return_mean"] is not None]
    assert len(evaluated) > 3
    assert all(line["eval_return_mean"] == line["eval_length_mean"] for line in evaluated)
    figures = json.loads(offbeat("eval", run.path, "--episodes", "3", "--json").out)
    assert figures["return_mean"] == figures["length_mean"]


# --- what is reported ---------------------------------------------------------------------------------------


def test_info_metrics_are_averaged_over_all_values_since_the_last_line(tmp_path):
    lines = train_and_read_lines(tmp_path / "run", info_metrics=("place", "success", "sign/positive"))
    for line in lines:
        assert -5 < line["info/place_mean"] < 5
        assert 0 <= line["info/sign/positive_mean"] <= 1
        assert line["info/success_mean"] is None or 0 <= line["info/success_mean"] <= 1
    assert any(line["info/success_mean"] is not None for line in lines)


def test_an_info_metric_that_is_never_reported_gives_one_warning_and_is_none(tmp_path):
    path = tmp_path / "run"
    said = offbeat(
        *small_arguments(path, "curious/Reporting-v0", **CURIOUS, **ROWS, info_metrics=("success", "succes"))
    )
    assert said.code == 0
    assert said.err.count("names succes, but no info of a step had this key") == 1
    assert {line["info/succes_mean"] for line in lines_of(path)} == {None}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"info_metrics": ("name",)}, "info name is str, but info_metrics expects a number"),
        ({"info_metrics": ("place", "place")}, "each once"),
        ({"curriculum": ("rain 0:1",)}, "curriculum sets rain"),
    ],
)
def test_invalid_info_metrics_and_curricula_are_refused_before_any_file_is_created(tmp_path, wrong, message):
    path = tmp_path / "run"
    said = offbeat(*small_arguments(path, "curious/Reporting-v0", **CURIOUS, **ROWS, **wrong))
    assert (said.code, path.exists()) == (2, False)
    assert message in said.err


def test_info_metrics_have_their_own_tensorboard_section():
    assert tag_of("info/success_mean") == "info/success_mean"
