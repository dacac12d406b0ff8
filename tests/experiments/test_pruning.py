"""Pruning: which trials of a search end early, and what remains of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import status_of
from tests.support.specs import TINY, grid, run_spec, write_spec

from offbeat.core.errors import ConfigError
from offbeat.experiments import experiment as experiment_module
from offbeat.experiments import optuna_search, pruning, pruning_rule
from offbeat.experiments.directory import ExperimentDirectory
from offbeat.experiments.experiment import Experiment
from offbeat.experiments.progress import JobsView
from offbeat.experiments.pruning import PruningQueue
from offbeat.experiments.pruning_rule import FIRST_TRIALS, Evaluated, Pruned, compare
from offbeat.experiments.running import JobOutcome
from offbeat.experiments.search import Range, Search
from offbeat.experiments.sessions import Session
from offbeat.experiments.spec import read_spec
from offbeat.experiments.trials import trials_of

EVALUATIONS = st.lists(st.floats(-100, 100), max_size=4)
SESSIONS = st.builds(
    lambda returns, ended: Evaluated(tuple((100 * (i + 1), mean) for i, mean in enumerate(returns)), ended),
    EVALUATIONS,
    st.booleans(),
)
TRIALS = st.lists(SESSIONS, min_size=1, max_size=3)


def best(session: Evaluated, env_steps: int) -> list[float]:
    """Return the best evaluation up to some env steps, alone in a list; none if the session may still reach them."""
    got_there = session.ended or any(at >= env_steps for at, _ in session.returns)
    known = [mean for at, mean in session.returns if at <= env_steps]
    return [max(known)] if got_there and known else []


@given(trial=TRIALS, others=st.lists(TRIALS, max_size=8), env_steps=st.integers(1, 500))
def test_a_trial_is_pruned_below_the_median_of_the_others(trial, others, env_steps):
    known = [fmean(bests) for other in others if (bests := [b for s in other for b in best(s, env_steps)])]
    own = [b for s in trial for b in best(s, env_steps)]
    pruned = bool(own) and len(known) >= FIRST_TRIALS and fmean(own) < median(known)
    found = compare(trial, others, env_steps)
    assert found == (Pruned(env_steps, fmean(own), median(known), len(known)) if pruned else None)


def trial(*returns: float, ended: bool = True) -> list[Evaluated]:
    return [Evaluated(tuple((100 * (i + 1), mean) for i, mean in enumerate(returns)), ended)]


def test_a_trial_that_was_pruned_is_still_compared_with():
    pruned, finished = [trial(1.0)] * 3, [trial(5.0, 9.0)] * 2
    assert compare(trial(2.0, 2.0, ended=False), [*pruned, *finished], 200) is None
    assert compare(trial(0.5, 0.5, ended=False), [*pruned, *finished], 200) == Pruned(200, 0.5, 1.0, 5)


def test_a_trial_that_has_got_less_far_is_not_compared_with():
    behind = [trial(9.0, ended=False)] * 5
    assert compare(trial(0.0, 0.0, ended=False), behind, 200) is None
    assert compare(trial(0.0, ended=False), behind, 100) == Pruned(100, 0.0, 9.0, 5)


def test_optuna_ranks_a_pruned_trial_between_those_that_finished_and_those_that_failed():
    pytest.importorskip("optuna")
    search = Search("optuna", {"rate": Range(0.0, 1.0)}, 50, seed=1)
    pruned = [({"rate": 0.8 + 0.01 * number}, Pruned(100, 1000.0, 2000.0, 5)) for number in range(10)]
    finished = [({"rate": 0.05 * number}, 1.0) for number in range(10)]
    failed = [({"rate": 0.05 * number}, None) for number in range(10)]

    def high(told: list[Any]) -> int:
        drawn = [next(optuna_search.draws(search, told, number))["rate"] for number in range(20, 40)]
        return sum(rate > 0.5 for rate in drawn)

    assert high([*pruned, *finished]) <= 4
    assert high([*failed, *pruned]) >= 16


# --- whole experiments --------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    **TINY, "steps": 512, "eval_every": 64, "eval_episodes": 1, "eval_time_share": 1.0,
}  # fmt: skip
PAYS = {"env.kwargs.pay": [2.0, 1.0, 0.0]}
"""What a step of the env earns in each trial. With 0 a session takes more than ten seconds, so it can be pruned."""


def spec(folder: Path, *, settings: dict[str, Any] = SETTINGS, prune_after: int = 128) -> Path:
    return write_spec(
        folder / "spec.toml", env="runs/Pays-v0", imports=["tests.sample_envs.run_envs"], settings=settings,
        search={**grid(**PAYS), "prune_after": prune_after},
    )  # fmt: skip


@pytest.fixture
def few_trials(monkeypatch) -> None:
    """Compare with two other trials, and draw no pictures."""
    monkeypatch.setattr(pruning_rule, "FIRST_TRIALS", 2)
    monkeypatch.setattr("offbeat.experiments.pruning.FIRST_TRIALS", 2)
    monkeypatch.setattr(experiment_module, "plot_experiment", lambda *_: None)


@pytest.mark.usefixtures("few_trials")
def test_a_pruned_trial_ends_early_and_does_not_go_on_when_the_experiment_is_continued(tmp_path):
    spec(tmp_path)
    ended = run_spec(tmp_path, "--jobs", "1", "--trust-code")
    assert ended.code == 0, ended
    experiment = tmp_path / "experiments/spec"
    assert "is 0.00, and the median of 2 others is 30.0" in ended.err
    assert "trial-002/seed-2 pruned: it does not start" in ended.err
    assert "4 of 6 sessions finished, 2 pruned" in ended.out
    first = experiment / "trial-002/seed-1"
    assert status_of(first)["state"] == "interrupted"
    assert not (experiment / "trial-002/seed-2").exists()
    with (experiment / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["pruned_after"] == "" for row in rows] == [True, True, False]
    assert (rows[2]["finished"], rows[2]["final_return"]) == ("0", "")
    assert 128 <= int(rows[2]["pruned_after"]) < 512
    assert json.loads((experiment / "trial-002/pruned.json").read_text())["others"] == 2

    plan = run_spec(tmp_path, "--dry-run", "--trust-code")
    assert "trial-002/seed-1: skip, its trial was pruned" in plan.out
    again = run_spec(tmp_path, "--jobs", "1", "--trust-code")
    assert again.code == 0
    assert "4 of 6 sessions finished, 2 pruned" in again.out
    assert not (experiment / "trial-002/seed-2").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prune_after": 0}, "prune_after is 0, but a whole number at least 1 is expected"),
        (
            {"prune_after": 449},
            "prune_after is 449, but .* after 512 env steps, .* last evaluated after 448",
        ),
        ({"settings": {**SETTINGS, "eval_every": 512}}, "a session is not evaluated: lower prune_after or eval_every"),
        ({"settings": {**SETTINGS, "stop_at": 128}}, "after 128 env steps, a session is last evaluated after 64"),
        ({"settings": {**SETTINGS, "eval_every": 0}}, "eval_every is 0, so there are none"),
    ],
)
@pytest.mark.usefixtures("few_trials")
def test_pruning_that_cannot_work_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        Experiment(spec(tmp_path, **changes), tmp_path / "experiment", trust_code=True)


def test_pruning_needs_more_trials_than_those_that_are_compared_with(tmp_path):
    with pytest.raises(ConfigError, match="compares a trial with at least 5 others, and there are 3 trials"):
        Experiment(spec(tmp_path), tmp_path / "experiment", trust_code=True)


# --- the queue, without processes ---------------------------------------------------------------------------


class Searched:
    """A search on two envs whose sessions are files: trials 0, 2, 4 are on the first env, 1, 3, 5 on the second."""

    def __init__(self, folder: Path) -> None:
        self.spec = read_spec(
            write_spec(
                folder / "spec.toml", env=None, envs=["CartPole-v1", "Acrobot-v1"], settings=SETTINGS,
                search={**grid(learning_rate=[1e-3, 2e-3, 3e-3]), "prune_after": 128},
            )
        )  # fmt: skip
        self.directory = ExperimentDirectory(folder / "experiment")
        self.trials, self.said, self.counted = trials_of(self.spec), list[str](), list[JobOutcome]()
        self.queue = PruningQueue(self.spec, self.directory, self.counted.append, self.said.append)

    def session(self, number: int, seed: int = 1) -> Session:
        return self.directory.sessions(self.spec, self.trials[number])[seed - 1]

    def write(self, number: int, *returns: float | str, seed: int = 1, state: str = "running") -> Session:
        """Write the evaluations of a session, one after each 64 env steps."""
        session = self.session(number, seed)
        latest = session.run.checkpoints_folder / "latest"
        latest.mkdir(parents=True, exist_ok=True)
        (latest / "policy.json").write_text('{"env_steps": 1}')
        session.run.status_file.write_text(json.dumps({"state": state}))
        lines = [
            {
                "env_steps": 64 * count, "updates": 1, "wall_time_s": 1.0, "evaluations": count,
                "eval_env_steps": 64 * count, "eval_return_mean": mean, "best_eval_return_mean": mean,
            }
            for count, mean in enumerate(returns, 1)
        ]  # fmt: skip
        session.run.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return session

    def start(self) -> None:
        """Add all sessions that are not finished, and start all."""
        sessions = [session for trial in self.trials for session in self.directory.sessions(self.spec, trial)]
        self.queue.add(self.trials, [session for session in sessions if session.status() != "finished"])
        while self.queue.prepare_next() is not None:
            pass


@pytest.fixture
def search(tmp_path, monkeypatch) -> Searched:
    monkeypatch.setattr(pruning_rule, "FIRST_TRIALS", 2)
    monkeypatch.setattr(pruning, "FIRST_TRIALS", 2)
    monkeypatch.setattr(pruning, "_CHECK_S", 0.0)
    return Searched(tmp_path)


def finish(search: Searched, number: int, *returns: float | str) -> None:
    for seed in (1, 2):
        search.write(number, *returns, seed=seed, state="finished")


def test_trials_on_another_env_are_not_compared_with(search):
    for number in (1, 3, 5):
        finish(search, number, 9.0, 9.0, 9.0)
    finish(search, 0, 9.0, 9.0, 9.0)
    search.start()
    assert search.queue.prune([search.write(2, 0.0, 0.0)]) == []
    finish(search, 4, 9.0, 9.0, 9.0)
    running = search.write(2, 0.0, 0.0, 0.0)
    search.queue.prune([search.write(4, 9.0, 9.0, 9.0, state="finished")])
    assert search.queue.prune([running]) == [running]
    assert search.directory.pruned(search.trials[2]) == Pruned(192, 0.0, 9.0, 2)


def test_a_trial_is_compared_from_prune_after_on_also_with_one_that_was_pruned_earlier(search):
    finish(search, 0, 9.0, 9.0)
    search.write(2, 1.0)
    search.directory.write_pruned(search.trials[2], Pruned(64, 1.0, 9.0, 2))
    search.start()
    running = search.write(4, 0.0)
    assert search.queue.prune([running]) == []
    search.write(4, 0.0, 0.0)
    assert search.queue.prune([running]) == [running]
    assert search.directory.pruned(search.trials[4]) == Pruned(128, 0.0, 5.0, 2)


def test_all_running_sessions_of_a_pruned_trial_end_also_one_that_starts_later(search):
    for number in (0, 2):
        finish(search, number, 9.0, 9.0)
    search.start()
    first, second = search.write(4, 0.0, 0.0), search.session(4, 2)
    assert search.queue.prune([first]) == [first]
    assert search.queue.prune([second]) == [second]


def test_an_evaluation_is_compared_once_and_one_from_before_the_start_is_not(search, monkeypatch):
    for number in (0, 2):
        finish(search, number, 9.0, 9.0, 9.0)
    running = search.write(4, 0.0, 0.0)
    search.start()
    assert search.queue.prune([running]) == []
    search.write(4, 9.5, 9.5, 9.5)
    asked = Mock(side_effect=compare)
    monkeypatch.setattr(pruning, "compare", asked)
    for _ in range(3):
        assert search.queue.prune([running]) == []
    assert asked.call_count == 1


def test_a_session_that_has_failed_does_not_prune_its_trial_before_another_is_evaluated_there(search):
    for number in (0, 2):
        finish(search, number, 9.0, 9.0, 9.0)
    search.start()
    search.write(4, 0.0, 0.0, 0.0, state="failed")
    good = search.write(4, 500.0, seed=2)
    assert search.queue.prune([good]) == []
    search.write(4, 500.0, 500.0, 500.0, seed=2)
    assert search.queue.prune([good]) == []


def test_a_damaged_file_of_metrics_ends_no_search(search):
    for number in (0, 2):
        finish(search, number, 9.0, 9.0)
    finish(search, 0, "many", 9.0)
    search.start()
    running = search.write(4, 0.0, 0.0)
    assert search.queue.prune([running]) == []
    assert [text for text in search.said if "eval_return_mean that is no number" in text]


def test_a_pruned_trial_has_no_returns_and_one_whose_sessions_have_all_finished_was_not_pruned(tmp_path, search):
    experiment = Experiment(tmp_path / "spec.toml", tmp_path / "experiment")
    search.directory.path.mkdir()
    finish(search, 0, 9.0)
    search.write(2, 5.0, state="finished")
    for number in (0, 2):
        search.directory.write_pruned(search.trials[number], Pruned(128, 1.0, 2.0, 2))
    assert experiment._score(experiment.trials[0], "evaluation") == 9.0
    assert experiment._score(experiment.trials[2], "evaluation") == Pruned(128, 1.0, 2.0, 2)
    with patch.object(experiment_module, "plot_experiment"):
        rows = experiment._write_report([], JobsView())
    assert [(row["final_return"], row["pruned_after"]) for row in rows[:3]] == [(9.0, None), (None, None), (None, 128)]


def test_prune_after_may_change_and_a_trial_without_its_file_is_not_pruned(tmp_path, search):
    experiment = Experiment(tmp_path / "spec.toml", tmp_path / "experiment")
    experiment.directory.path.mkdir()
    experiment.directory.write_record(experiment.spec, b"")
    experiment.directory.folder(search.trials[2]).mkdir()
    experiment.directory.write_pruned(search.trials[2], Pruned(128, 1.0, 2.0, 2))
    text = (tmp_path / "spec.toml").read_text()
    (tmp_path / "spec.toml").write_text(text.replace("prune_after = 128", ""))
    assert Experiment(tmp_path / "spec.toml", tmp_path / "experiment").pruned(search.trials[2]) is not None
    file = experiment.directory.folder(search.trials[2]) / "pruned.json"
    file.write_text('{"env_steps": 128}')
    with pytest.raises(ConfigError, match=r"pruned.json was changed: delete it"):
        Experiment(tmp_path / "spec.toml", tmp_path / "experiment").pruned(search.trials[2])
    file.unlink()
    assert Experiment(tmp_path / "spec.toml", tmp_path / "experiment").pruned(search.trials[2]) is None
