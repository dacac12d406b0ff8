"""Pruning: which trials of a search end early, and what remains of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import status_of
from tests.support.specs import TINY, grid, run_spec, write_spec

from offbeat.core.errors import ConfigError
from offbeat.experiments import experiment as experiment_module
from offbeat.experiments import optuna_search, pruning_rule
from offbeat.experiments.experiment import Experiment
from offbeat.experiments.pruning_rule import FIRST_TRIALS, Evaluated, Pruned, verdict
from offbeat.experiments.search import Range, Search

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


@given(trial=TRIALS, others=st.lists(TRIALS, max_size=8), after=st.integers(1, 500))
def test_a_trial_is_pruned_below_the_median_of_the_others(trial, others, after):
    reasons = []
    for session in trial:
        env_steps = session.returns[-1][0] if session.returns else 0
        if session.ended or env_steps < after:
            continue
        known = [fmean(bests) for other in others if (bests := [b for s in other for b in best(s, env_steps)])]
        own = fmean([b for s in trial for b in best(s, env_steps)])
        if len(known) >= FIRST_TRIALS and own < median(known):
            reasons.append(Pruned(env_steps, own, median(known), len(known)))
    found = verdict(trial, others, after)
    assert found == min(reasons, key=lambda reason: reason.env_steps, default=None)


def trial(*returns: float, ended: bool = True) -> list[Evaluated]:
    return [Evaluated(tuple((100 * (i + 1), mean) for i, mean in enumerate(returns)), ended)]


def test_a_trial_that_was_pruned_is_still_compared_with():
    pruned, finished = [trial(1.0)] * 3, [trial(5.0, 9.0)] * 2
    assert verdict(trial(2.0, 2.0, ended=False), [*pruned, *finished], 1) is None
    assert verdict(trial(0.5, 0.5, ended=False), [*pruned, *finished], 1) == Pruned(200, 0.5, 1.0, 5)


def test_a_trial_that_has_got_less_far_is_not_compared_with():
    behind = [trial(9.0, ended=False)] * 5
    assert verdict(trial(0.0, 0.0, ended=False), behind, 1) is None
    assert verdict(trial(0.0, ended=False), behind, 1) == Pruned(100, 0.0, 9.0, 5)


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
        ({"prune_after": 512}, "prune_after is 512, and a session ends after 512 env steps"),
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
