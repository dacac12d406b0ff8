"""What a user does with a run of PEARL: evaluations during training, eval, plot, watch, load, resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.pages import blocks
from tests.support.pearl_runs import ROBOT, SMALL_PEARL
from tests.support.runs import offbeat

from offbeat.api.playing.load import loaded_from
from offbeat.api.resume import resume
from offbeat.api.train import Run, train
from offbeat.config.trust import Code
from offbeat.core.errors import ConfigError
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.tasks import TaskSample, Trials
from offbeat.metrics.names import adaptation_key
from offbeat.metrics.sinks import read_metrics
from offbeat.run_directory.checkpoint import Checkpoint, SavedPolicy
from offbeat.run_directory.directory import RunDirectory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("pearl", ROBOT, run_dir=tmp_path_factory.mktemp("runs") / "robot", **SMALL_PEARL)


def evaluations(path: Path) -> list[dict[str, Any]]:
    """The first metrics line of each evaluation."""
    lines = read_metrics(path / "metrics.jsonl")
    first = {line["eval_env_steps"]: line for line in reversed(lines) if line["eval_env_steps"] is not None}
    return [dict(first[steps]) for steps in sorted(first)]


def test_evaluations_during_training_are_trials_in_all_test_tasks(run: Run) -> None:
    lines = evaluations(run.path)
    assert len(lines) > 1
    for line in lines:
        assert line["adaptation/trials"] == SMALL_PEARL["test_tasks"]
        assert line[adaptation_key(1, "mean")] == line["eval_first_return_mean"]
        assert line[adaptation_key(3, "mean")] == pytest.approx(line["eval_return_mean"])
        assert line[adaptation_key(3, "std")] == pytest.approx(line["eval_return_std"])
        assert adaptation_key(4, "mean") not in line


def test_eval_prints_the_score_of_the_last_episode_and_those_before(run: Run) -> None:
    scores = json.loads(offbeat("eval", run.path, "--json").out)
    assert (scores["episodes"], len(scores["return_mean_by_episode"])) == (5, 3)
    assert scores["return_mean"] == pytest.approx(scores["return_mean_by_episode"][-1])
    assert scores["return_std"] == pytest.approx(scores["return_std_by_episode"][-1])
    assert scores["first_return_mean"] == scores["return_mean_by_episode"][0]
    assert scores["return_mean"] == np.mean(scores["returns"])  # of the last episode of each trial
    assert len(scores["returns"]) == len(scores["lengths"]) == scores["episodes"]

    said = offbeat("eval", run.path, "--episodes", 7)
    assert "7 trials in test tasks, last episode: return" in said.out
    assert len(said.out.split("mean return by episode: ")[1].split(", ")) == 3


@pytest.mark.parametrize(("per_trial", "whole"), [(10, 0), (30, 1)])
def test_eval_names_the_trials_that_a_limit_has_ended(run: Run, per_trial: int, whole: int) -> None:
    limited = ("eval", run.path, "--max-steps", 5 * per_trial)
    scores = json.loads(offbeat(*limited, "--json").out)
    assert (scores["episodes"], scores["not_begun"], len(scores["return_mean_by_episode"])) == (0, 5, whole)
    assert (scores["first_return_mean"] is None) == (whole == 0)
    said = offbeat(*limited).out
    assert "of 5 trials, 0 ended, 0 were cut in the last episode" in said
    assert " and 5 did not reach it (" in said
    assert ("mean return by episode" in said) == (whole > 0)


def test_plot_draws_the_adaptation_curve_of_a_run(run: Run, tmp_path: Path) -> None:
    said = offbeat("plot", run.path, "--x", "episodes", "--out", tmp_path / "curve.png")
    assert said.code == 0
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    refused = offbeat("plot", run.path, "--x", "episodes", "--average")
    assert refused.code == 2
    assert "leave it out with --x episodes" in refused.err


def test_watch_prints_the_return_of_each_episode_of_a_trial(run: Run, tmp_path: Path) -> None:
    said = offbeat("watch", run.path, "--video", tmp_path / "trial.gif")
    assert said.code == 0, said.err
    assert said.out.startswith("3 episodes in a new task, return -")
    assert "in 60 env steps, written to" in said.out


def test_a_loaded_policy_infers_its_task_without_torch_as_the_how_to_says(run: Run) -> None:
    (block,) = (block for block in blocks("docs/how-to/meta-learning.md") if block.language == "python")
    assert '"runs/robot"' in block.text
    program = f"""
import sys
import numpy as np
import offbeat
policy = offbeat.load("runs/robot")
policy.reset_task()
action = policy(np.zeros(2, np.float32))
policy.observe(np.zeros(2, np.float32), action, -1.0, action)
policy.reset()
assert not np.array_equal(policy(np.zeros(2, np.float32)), action)
assert "torch" not in sys.modules
{block.text}
""".replace('"runs/robot"', repr(str(run.path)))
    said = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert [line.split()[0] for line in said.stdout.splitlines()] == ["0", "1", "2", "3", "4", "5"]


def test_a_resumed_run_is_evaluated_in_the_same_tasks_as_one_that_was_not_stopped(tmp_path: Path) -> None:
    whole = train("pearl", ROBOT, run_dir=tmp_path / "whole", **{**SMALL_PEARL, "stop_at": None, "lag": "exact"})
    parts = train("pearl", ROBOT, run_dir=tmp_path / "parts", **{**SMALL_PEARL, "lag": "exact"})
    resume(parts.path)
    assert whole.metrics["updates"] > 0
    keys = ["eval_env_steps", "eval_return_mean", *(adaptation_key(number, "mean") for number in (1, 2, 3))]
    results = [[[line[key] for key in keys] for line in evaluations(each.path)] for each in (whole, parts)]
    common = [line for line in results[1] if line in results[0]]
    assert len(common) >= 3
    assert results[0][-1] == results[1][-1]


def test_a_policy_that_infers_its_task_without_trials_is_refused(run: Run) -> None:
    saved = RunDirectory.open(run.path).read_checkpoint("latest")
    policy = saved.policies[DEFAULT_POLICY]
    about = {key: value for key, value in policy.about.items() if key != "trials"}
    changed = Checkpoint({DEFAULT_POLICY: SavedPolicy(policy.weights, about)}, None)
    assert loaded_from(saved, "the run", Code()).trained.trials == Trials(TaskSample(3, 3, 5), 2)
    with pytest.raises(ConfigError, match="the run has a context encoder without trials"):
        loaded_from(changed, "the run", Code())


def test_the_model_card_says_how_the_policy_is_scored_and_called(run: Run) -> None:
    said = offbeat("push", run.path, "me/robot", "--dry-run")
    assert said.code == 0, said.err
    card = (run.path / "hub/README.md").read_text()
    assert "scores are those of the last of 3 episodes in new tasks; the mean return of the first one is -" in card
    assert "`policy.reset_task()`" in card
    assert json.loads((run.path / "hub/evaluation.json").read_text())["episodes"] == 5
