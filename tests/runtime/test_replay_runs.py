"""Whole runs on a replay: the ratio is exact however they end and go on, and what a resume restores."""

from __future__ import annotations

import os
import signal
import threading
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.replay_runs import (
    LINKS,
    SMALL_RATIO,
    Origin,
    assert_no_burst,
    assert_ratio,
    learning_steps,
    linked_rows,
    samples_checked,
    small_sac,
    updates_due,
)
from tests.support.runs import lines_of, offbeat, weights_of
from tests.support.thorough import thorough

from offbeat.api.resume import resume
from offbeat.api.train import Run
from offbeat.core.errors import LearnsNothing
from offbeat.run_directory.checkpoint import load

RUNTIMES = ("serial", "threads", "processes")


def log_of(run: Run) -> str:
    return (run.path / "log.txt").read_text()


def signal_from(env_steps: int, seconds: float = 0.0) -> Any:
    """Return a callback that has SIGINT sent to this process, some time after the first line from `env_steps` on."""

    def callback(line: dict[str, Any]) -> None:
        if line["env_steps"] >= env_steps and not sent:
            sent.append(threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)))
            sent[0].start()

    sent: list[threading.Timer] = []
    return callback


# --- the ratio ----------------------------------------------------------------------------------------------

RATIOS = [
    ("utd_ratio", "1", Fraction(1)),
    ("utd_ratio", "1/4", Fraction(1, 4)),
    ("utd_ratio", "0.37", Fraction(37, 100)),
    ("utd_ratio", "3", Fraction(3)),
    ("utd_ratio", "7/3", Fraction(7, 3)),
    ("steps_per_update", "4", Fraction(1, 4)),
    ("steps_per_update", "2/3", Fraction(3, 2)),
]
ENVS = ("links/Linked-v0", "CartPole-v1", "Pendulum-v1")


class Case(NamedTuple):
    """A run with settings drawn at random, and the runtimes that it goes through."""

    algorithm: str
    env: str
    ratio: Fraction
    settings: dict[str, Any]
    runtimes: tuple[str, ...]


def drawn(number: int) -> Case:
    random = Random(number)
    key, text, ratio = RATIOS[number]
    max_ahead = random.randint(0, 6)
    actors, warmup = random.randint(1, min(3, max_ahead + 1)), random.randint(16, 60)
    layout = {"actors": actors, "envs_per_actor": random.randint(1, 3), "chunk_length": random.randint(1, 4)}
    beside = (max_ahead + actors) * layout["envs_per_actor"] * layout["chunk_length"]
    lengths = {"warmup": warmup, "steps": warmup + 150, "capacity": random.randint(max(beside, warmup), 200)}
    samples = {"batch_size": 16, "n_step": random.randint(1, 3), "prioritized": random.random() < 0.5}
    settings = {"utd_ratio": None, key: text, "max_ahead": max_ahead, **layout, **lengths, **samples, **LINKS}
    shift = number % 3
    env = ENVS[number // 3]
    algorithm = "dqn" if env == "CartPole-v1" and number % 2 else "sac"
    return Case(algorithm, env, ratio, settings, RUNTIMES[shift:] + RUNTIMES[:shift])


CASES = [drawn(number) for number in range(len(RATIOS))]


QUICK = (CASES[0], CASES[4], CASES[5])


@pytest.mark.parametrize(
    "case",
    [*QUICK, *thorough(*((case,) for case in CASES if case not in QUICK))],
    ids=lambda case: f"{case.algorithm}-{case.env.split('/')[-1]}-{case.ratio}",
)
def test_the_update_ratio_is_exact_in_every_line_across_stops_signals_and_resumes(tmp_path, case):
    path, warmup = tmp_path / "run", case.settings["warmup"]
    first, second, third = case.runtimes
    with learning_steps() as taken:
        begun: dict[str, Any] = {"algorithm": case.algorithm, "runtime": first, "stop_at": warmup + 20}
        stopped = small_sac(path, case.env, **case.settings, **begun)
        signalled = resume(path, runtime=second, callbacks=[signal_from(warmup + 70)])
        finished = resume(path, runtime=third)
        extended = resume(path, runtime=first, steps=warmup + 200)
    assert [run.state for run in (stopped, signalled, finished, extended)] == ["interrupted"] * 2 + ["finished"] * 2
    assert signalled.reason == "stopped by SIGINT"
    assert_ratio(path, case.ratio, warmup)
    assert_no_burst(taken, case.ratio)
    last = lines_of(path)[-1]
    assert last["env_steps"] == sum(learned.env_steps for learned in taken) >= warmup + 200
    assert last["updates"] == updates_due(case.ratio, warmup, last["env_steps"])
    assert last["learning_step"] == len(taken)
    assert last["policy_lag_max"] <= case.settings["max_ahead"]


def test_the_short_cases_cover_invalid_rows_several_actors_and_all_runtimes():
    assert {case.runtimes[0] for case in QUICK} == set(RUNTIMES)
    assert {case.settings["actors"] for case in CASES} == {1, 2, 3}
    assert {case.settings["prioritized"] for case in CASES} == {True, False}
    assert {case.algorithm for case in CASES} == {"sac", "dqn"}
    assert sum(case.env == ENVS[0] for case in CASES) >= 3


@pytest.mark.parametrize("runtime", ["processes", *thorough("serial", "threads")])
def test_the_warmup_makes_no_update_and_actors_never_exceed_max_ahead(tmp_path, runtime):
    layout: dict[str, Any] = {"actors": 2, "max_ahead": 4, "chunk_length": 2, "envs_per_actor": 2}
    with pytest.warns(LearnsNothing, match="nothing will be learned"):
        run = small_sac(tmp_path / "run", **layout, runtime=runtime, warmup=80, steps=80, utd_ratio="1")
    assert (run.metrics["env_steps"], run.metrics["updates"]) == (80, 0)
    assert "the run has 80 transitions at its end, but the first update is made after 81" in log_of(run)
    assert "nothing was learned: no update was made in 80 env steps" in log_of(run)
    assert run.metrics["utd_ratio"] is run.metrics["critic_loss"] is None
    assert load(run.path / "checkpoints" / "latest").weights["uniform"] == 1
    extended = resume(run.path, steps=81)
    assert extended.metrics["updates"] == extended.metrics["env_steps"] - 80 > 0
    assert load(run.path / "checkpoints" / "latest").weights["uniform"] == 0


@pytest.mark.parametrize("runtime", ["threads", *thorough("serial", "processes")])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_refused_updates_count_for_the_update_ratio_and_training_continues(tmp_path, runtime):
    settings: dict[str, Any] = {"imports": ("tests.sample_envs.run_envs",), "capacity": 100, "utd_ratio": "1/2"}
    settings |= {"actors": 2, "max_ahead": 2, "envs_per_actor": 1, "steps": 380, "batch_size": 16}
    run = small_sac(tmp_path / "run", "runs/OverflowingForAWhile-v0", **settings, runtime=runtime)
    assert 0 < run.metrics["updates_refused"] < run.metrics["updates"]
    assert_ratio(run.path, Fraction(1, 2), 64)
    assert all(np.isfinite(array).all() for array in load(run.path / "checkpoints" / "latest").weights.values())


# --- the rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "n_step", "chunk_length"),
    [("threads", 3, 2), *thorough(("serial", 1, 1), ("serial", 3, 2), ("processes", 3, 2), ("processes", 1, 1))],
)
def test_no_transition_crosses_an_episode_end_in_a_resumed_run(tmp_path, runtime, n_step, chunk_length):
    layout: dict[str, Any] = {**LINKS, "actors": 3, "max_ahead": 5, "chunk_length": chunk_length, "n_step": n_step}
    path = tmp_path / "run"
    with samples_checked(n_step) as counted:
        small_sac(path, "links/Linked-v0", **layout, runtime=runtime, stop_at=150)
        resumed = resume(path)
    assert "they are cut, and new episodes start" in log_of(resumed)
    assert counted == [32 * resumed.metrics["updates"]]
    assert linked_rows(path) == resumed.metrics["replay_size"] > 150


@pytest.mark.parametrize("tickets", [1, 2, 3, 4])
def test_a_resumed_run_of_few_tickets_has_no_transition_from_before_the_resume(tmp_path, tickets):
    layout: dict[str, Any] = {**LINKS, "actors": 3, "max_ahead": 3, "chunk_length": 2, "capacity": 400}
    path = tmp_path / "run"
    ended = small_sac(path, "links/Linked-v0", **layout, warmup=400, steps=4 * (tickets - 1) + 1)
    assert ended.metrics["learning_step"] == tickets
    resumed = resume(path, steps=200)
    assert "they are cut, and new episodes start" in log_of(resumed)
    assert linked_rows(path) == resumed.metrics["env_steps"], "the replay holds them all"


# --- what a resume restores ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "runtime", "other"), [(ENVS[0], "threads", "serial"), *thorough((ENVS[2], "serial", "threads"))]
)
def test_a_resume_without_the_replay_warms_up_again_and_restarts_the_update_ratio(tmp_path, env, runtime, other):
    path, ratio = tmp_path / "run", Fraction(7, 3)
    layout: dict[str, Any] = {**LINKS, "actors": 2, "max_ahead": 3, "save_replay": False, "utd_ratio": "7/3"}
    stopped = small_sac(path, env, **layout, runtime=runtime, stop_at=90, steps=210)
    origin = Origin(stopped.metrics["env_steps"], stopped.metrics["updates"])
    assert not list(path.rglob("replay*"))
    with learning_steps() as taken:
        resumed = resume(path, runtime=other)
    assert "the checkpoint has no replay: it warms up again, and the ratio counts from here" in log_of(resumed)
    assert_ratio(path, ratio, 64, origin)
    assert_no_burst(taken, ratio)
    assert [learned.updates for learned in taken][:10] == [0] * 10, "64 transitions are more than 10 tickets"
    assert resumed.metrics["replay_size"] == resumed.metrics["env_steps"] - origin.env_steps
    since = resumed.metrics["updates"] - origin.updates
    assert resumed.metrics["sample_age_max"] <= since + 3 * 7 / 3 * 6, "those of three versions before at most"
    assert load(path / "checkpoints" / "latest").weights["uniform"] == 0, "the policy that was learned acts"
    again = resume(path, steps=resumed.metrics["env_steps"] + 80)
    assert_ratio(path, ratio, 64, Origin(resumed.metrics["env_steps"], resumed.metrics["updates"]))
    assert again.metrics["updates"] > resumed.metrics["updates"]


def test_a_resume_logs_the_number_of_restored_transitions(tmp_path):
    stopped = small_sac(tmp_path / "run", stop_at=70, steps=120)
    said = offbeat("resume", stopped.path, "--progress", "lines")
    assert said.code == 0
    assert f"the replay of {stopped.metrics['replay_size']:.0f} transitions restored" in said.err
    assert "warms up again" not in said.err


def test_init_from_copies_the_weights_and_starts_a_new_update_ratio(tmp_path):
    first = small_sac(tmp_path / "first", normalize_observations=True, steps=90)
    settings: dict[str, Any] = {"normalize_observations": True, "init_from": str(first.path), "steps": 72}
    with learning_steps() as taken:
        second = small_sac(tmp_path / "second", **settings, learning_rate=1e-30, ema_rate=1e-30)
    assert_ratio(second.path, SMALL_RATIO, 64)
    assert_no_burst(taken, SMALL_RATIO)
    theirs, ours = (load(run.path / "checkpoints" / "latest").weights for run in (first, second))
    learned = [name for name in theirs if name.startswith(("policy_", "critics.", "ema_critics.", "log_alpha"))]
    assert len(learned) == 6 + 6 + 6 + 1
    for name in learned:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-12, err_msg=name)
    assert "initial weights and normalisation are those of" in log_of(second)


@pytest.mark.parametrize(
    ("algorithm", "env", "flag", "expected"),
    [("dqn", "CartPole-v1", "epsilon", 0.25), ("sac", "Pendulum-v1", "uniform", 0.0)],
)
def test_a_run_with_initial_weights_explores_as_their_run_did_until_its_first_update(
    tmp_path, algorithm, env, flag, expected
):
    settings: dict[str, Any] = {"algorithm": algorithm, "final_epsilon": 0.25} if algorithm == "dqn" else {}
    first = small_sac(tmp_path / "first", env, **settings, steps=80)
    with pytest.warns(LearnsNothing):
        second = small_sac(tmp_path / "second", env, **settings, init_from=str(first.path), stop_at=30)
    assert second.metrics["updates"] == 0
    for run in (first, second):
        assert load(run.path / "checkpoints" / "latest").weights[flag] == [expected]


@pytest.mark.parametrize("algorithm", ["sac", *thorough("td3", "crossq")])
def test_learner_threads_change_no_bit(tmp_path, algorithm):
    changes: dict[str, Any] = {"algorithm": algorithm, "steps": 120, "capacity": 84}
    one, two = (small_sac(tmp_path / str(threads), learner_threads=threads, **changes) for threads in (1, 2))
    assert weights_of(one.path) == weights_of(two.path)
    assert one.metrics["replay_size"] == two.metrics["replay_size"] == 84, "no row is invalid here"


# --- max_ahead ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "other"), [("threads", "serial"), *thorough(("serial", "threads"), ("processes", "serial"))]
)
def test_a_run_resumed_in_another_runtime_keeps_its_max_ahead(tmp_path, begun, other):
    layout: dict[str, Any] = {"lag": "exact", "runtime": begun, "steps": 140}
    whole = small_sac(tmp_path / "whole", **layout)
    path = small_sac(tmp_path / "run", **layout, stop_at=90).path
    assert resume(path, runtime=other).state == "finished"
    assert weights_of(path) == weights_of(whole.path)
