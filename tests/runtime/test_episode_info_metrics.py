"""The numbers of an episode in the infos are counted as its rewards are: their sum is its return, in every runtime."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.sample_envs import curious_envs
from tests.support.replay_runs import small_sac
from tests.support.runs import lines_of, offbeat, small_arguments, small_run
from tests.support.thorough import thorough

from offbeat.api.evaluate import evaluate
from offbeat.api.resume import resume
from offbeat.api.train import Run

PAID = "tests.sample_envs.paid_envs"
WORLD = f"{PAID}:PaidWorld"
POLICIES: dict[str, Any] = {"first": {"agents": "paid_0"}, "others": {"agents": "paid_*"}}
SETTINGS: dict[str, Any] = {
    "imports": (PAID,),
    "info_metrics": ("paid:sum", "paid:last", "paid:max"),
    "episodes_window": 100_000,
}
UNROLLS: dict[str, Any] = {**SETTINGS, "steps": 512, "unroll_length": 8}


def assert_sums_are_returns(path: Path, policy: str = "", name: str = "paid_sum") -> None:
    """Check every line: the sums of the episodes so far add up to the returns of all of them."""
    metric = f"{policy}info/{name}"
    episodes, sums, lines = 0, 0.0, lines_of(path)
    repeated = len(lines) > 1 and lines[-1]["learning_step"] == lines[-2]["learning_step"]  # at the end of the run
    for line in lines[: len(lines) - repeated]:
        ended = line[f"{policy}episodes"] - episodes
        assert (line[metric] is None) == (ended == 0)
        episodes += ended
        sums += ended * (line[metric] or 0.0)
        if episodes:
            assert sums / episodes == pytest.approx(line[f"{policy}episode_return_mean"], abs=1e-6)
    assert episodes > 20


Start = Callable[..., Run]
CASES: list[tuple[Start, str, dict[str, Any]]] = [
    (small_run, "paid/Paid-v0", {**UNROLLS, "decorrelate": True, "max_episode_steps": 7}),
    (small_run, "paid/Paid-v0", {**UNROLLS, "runtime": "processes", "actors": 2, "env_groups": 2, "max_lag": 1}),
    (small_run, "paid/PaidWaiting-v0", {**UNROLLS, "steps": 256}),
    (small_run, "paid/PaidVector-v0", {**UNROLLS, "decorrelate": True}),
    (small_run, WORLD, {**UNROLLS, "decorrelate": True}),
    (small_sac, "paid/PaidBox-v0", {**SETTINGS, "runtime": "threads"}),
    (small_run, "paid/Paid-v0", {**UNROLLS, "algorithm": "a2c", "runtime": "hogwild", "workers": 2}),
]


@pytest.mark.parametrize(("start", "env", "settings"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_sums_over_episodes_are_their_returns(tmp_path, start, env, settings):
    assert_sums_are_returns(start(tmp_path / "run", env, **settings).path)


@pytest.mark.parametrize("env", ["paid/Paid-v0", "paid/PaidUnsaved-v0"])
def test_sums_over_episodes_are_their_returns_across_a_resume(tmp_path, env):
    stopped = small_run(tmp_path / "run", env, **UNROLLS, stop_at=200)
    assert resume(stopped.path).state == "finished"
    assert_sums_are_returns(stopped.path)


def test_sums_over_episodes_are_their_returns_if_an_actor_is_lost(tmp_path, monkeypatch):
    """The episodes that are lost with it count in neither."""
    monkeypatch.chdir(tmp_path)
    run = small_run(tmp_path / "run", "paid/PaidDying-v0", **UNROLLS, runtime="processes", actors=2)
    assert run.metrics["actor_restarts"] == 1
    assert_sums_are_returns(run.path)


def test_only_episodes_of_recorded_players_of_a_league_count_in_a_turn_based_game(tmp_path):
    league = {"window": 2, "snapshot_every": 2, "outcome": "won"}
    settings = {**UNROLLS, "imports": (), "info_metrics": ("won:last",), "league": league}
    run = small_run(tmp_path / "run", "tests.sample_envs.scored_games:ScoredNim", **settings)
    assert run.metrics["league_games"] > run.metrics["episodes"] / 2, "frozen players have played"
    assert_sums_are_returns(run.path, name="won_last")
    assert run.metrics["info/won_mean"] == run.metrics["info/won_last"]


@pytest.mark.skipif(not find_spec("envpool"), reason="needs envpool")
def test_the_last_number_of_each_episode_is_read_from_a_pool(tmp_path):
    settings = {**UNROLLS, "imports": (), "info_metrics": ("elapsed_step:last",), "log_every": 1}
    run = small_run(tmp_path / "run", "envpool:CartPole-v1", **settings)
    lines = [line for line in lines_of(run.path) if line["episodes"]]
    assert lines[0]["info/elapsed_step_last"] == pytest.approx(lines[0]["episode_length_mean"])


# --- several policies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["serial", *thorough("processes")])
def test_each_of_several_policies_has_the_numbers_of_its_own_agents(tmp_path, runtime):
    settings = {**UNROLLS, "policies": POLICIES, "runtime": runtime, "info_metrics": (*UNROLLS["info_metrics"], "age")}
    path = small_run(tmp_path / "run", WORLD, **settings).path
    for policy in ("", "policies/first/", "policies/others/"):
        assert_sums_are_returns(path, policy)
    ages = [
        [line[f"{policy}info/age_mean"] for policy in ("policies/first/", "", "policies/others/")]
        for line in lines_of(path)
    ]
    assert all(min(first, others) <= of_all <= max(first, others) for first, of_all, others in ages)
    assert any(first != others for first, _, others in ages)


def test_evaluations_of_several_policies_have_the_numbers_of_each(tmp_path):
    names = ("paid:sum", "success:last")
    path = small_run(tmp_path / "run", WORLD, **{**UNROLLS, "info_metrics": names, "policies": POLICIES}).path
    said = offbeat("eval", path, "--episodes", "5", "--max-steps", "40", "--json", "--import", PAID)
    scores = json.loads(said.out)
    assert scores["cut"] > 0
    for each in (scores, *scores["policies"].values()):
        assert each["info/paid_sum"] == pytest.approx(each["return_mean"])
        assert 0 <= each["info/success_last"] <= 1
    result = evaluate(path, episodes=5, max_steps=40, trust_code=True)
    assert result.info == {name: scores[f"info/{name}"] for name in ("paid_sum", "success_last")}
    assert result.policies["first"].info["paid_sum"] == scores["policies"]["first"]["info/paid_sum"]


# --- what is shown and refused ------------------------------------------------------------------------------


def test_the_last_success_in_each_episode_gives_the_share_of_episodes_although_each_step_reports_one(tmp_path):
    settings = {**UNROLLS, "info_metrics": ("success", "success:last"), "log_every": 10_000}
    line = lines_of(small_run(tmp_path / "run", "paid/Paid-v0", **settings).path)[-1]
    successes = line["info/success_last"] * line["episodes"]
    assert successes == pytest.approx(round(successes))
    assert line["info/success_last"] != line["info/success_mean"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("success:mean",), "'success:mean', but only last, max, sum can be after the colon: pass success:last"),
        (("success:last", "success_last"), "each once"),
        ((":last",), "keys of the env's infos are expected"),
    ],
)
def test_wrong_reductions_are_refused_before_any_file_is_created(tmp_path, names, message):
    path = tmp_path / "run"
    said = offbeat(*small_arguments(path, "paid/Paid-v0", **{**UNROLLS, "info_metrics": names}))
    assert (said.code, path.exists()) == (2, False)
    assert message in said.err


def test_a_key_of_a_reduction_that_is_never_reported_gives_a_warning(tmp_path):
    settings = {**UNROLLS, "imports": (curious_envs.__name__,), "info_metrics": ("succes:last",)}
    said = offbeat(*small_arguments(tmp_path / "run", "curious/Reporting-v0", **settings))
    assert said.code == 0
    assert said.err.count("names succes, but no info of a step had this key") == 1
