"""The serial runtime walks exactly the order that the pace names, and ends where the contract says."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.sample_envs import run_envs
from tests.support import runs
from tests.support.runs import lines_of, small_run, unrolls_of
from tests.support.thorough import thorough

from offbeat import resume
from offbeat.core.errors import ConfigError
from offbeat.runtime.make_actor import make_actor, start_actor

EVERY_BATCH: dict[str, Any] = {"steps": 512, "unroll_length": 8}
"""Metrics lines come every steps // 200 = 2 env steps, so each batch has one."""


def batch_lines(path):
    """One line per learning step: the last of them repeats the end."""
    return list({line["learning_step"]: line for line in lines_of(path)}.values())


@pytest.mark.parametrize(("max_lag", "unrolls_per_batch"), [(0, 1), (1, 2), (5, 1)])
def test_learning_step_j_uses_data_that_is_exactly_min_j_max_lag_steps_old(tmp_path, max_lag, unrolls_per_batch):
    run = small_run(tmp_path / "run", max_lag=max_lag, unrolls_per_batch=unrolls_per_batch, **EVERY_BATCH)
    lines = batch_lines(run.path)
    assert [line["learning_step"] for line in lines] == list(range(1, len(lines) + 1))
    for step, line in enumerate(lines):
        lags = [line[f"policy_lag_{which}"] for which in ("min", "mean", "max")]
        assert lags == [min(step, max_lag)] * 3


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"max_lag": 2, "unrolls_per_batch": 2, "actors": 2}, [3, 3, 3]),
        ({"max_lag": 0, "passes": 2}, [1, 0.5, 0.5]),
    ],
)
def test_the_queue_has_the_batches_that_the_pace_allows_and_none_that_is_used_again(settings, sizes, tmp_path):
    run = small_run(tmp_path / "run", **settings, **EVERY_BATCH)
    lines = batch_lines(run.path)
    assert [line["learner_queue_size_mean"] for line in lines[: len(sizes)]] == sizes
    assert all(line["learner_dequeue_time_ms"] == 0 for line in lines)


def test_every_row_is_acted_with_the_version_of_the_pace(begun):
    parts, acting = begun("CartPole-v1", max_lag=2, unrolls_per_batch=2)
    acting.wait(2)
    assert acting.acted == 6
    for step in range(4):
        for ticket in range(parts.pace.tickets_of(step).start, acting.acted):
            version = parts.pace.learned_before_act(ticket)
            assert (parts.policy.slots.open(ticket)["behavior_version"] == version).all()
        parts.policy.learner.learn(step, 0.0)
        acting.finish(step + 1)
        acting.wait(parts.pace.acted_before_learn(step + 1))
        assert acting.acted == 2 * (step + 4)


def test_a_run_that_a_test_has_begun_leaves_no_thread_at_its_end():
    before = set(threading.enumerate())
    with runs.begun("CartPole-v1") as (_, acting):
        acting.wait(1)
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) <= before


def test_the_envs_of_a_run_that_a_test_has_begun_are_closed_at_its_end(monkeypatch):
    closed: list[Any] = []

    def close(env: Any) -> None:
        closed.append(env)

    monkeypatch.setattr(run_envs.Wave, "close", close)
    with runs.begun("runs/Wave-v0", imports=("tests.sample_envs.run_envs",)) as (_, acting):
        acting.wait(1)
        before = len(closed)  # the env from which the spec was read
    assert len(closed) - before == 4


def test_a_pause_stops_acting_until_it_ends(begun):
    _, acting = begun("CartPole-v1", max_lag=2)
    acting.pause_at(2)
    acting.wait(2)
    assert acting.acted == 2
    with pytest.raises(AssertionError, match="allows 2 tickets, but the learner waits for 3"):
        acting.wait(3)
    acting.pause_at(None)
    acting.wait(3)
    assert acting.acted == 3
    assert acting.slots_filled(0) == 1


@pytest.mark.parametrize(("max_lag", "actors"), [(0, 1), (3, 2)])
def test_a_run_ends_after_the_first_batch_that_reaches_steps(tmp_path, max_lag, actors):
    steps = 500
    run = small_run(tmp_path / "run", steps=steps, max_lag=max_lag, actors=actors)
    lines = batch_lines(run.path)
    assert [line["env_steps"] >= steps for line in lines] == [False] * (len(lines) - 1) + [True]


def test_reset_rows_are_not_counted(tmp_path):
    env = "offbeat/OneStep-v0"  # every second row is a reset row
    run = small_run(tmp_path / "run", env, steps=512)
    assert run.metrics["env_steps"] == 512
    assert run.metrics["learning_step"] == 512 // (16 * 4 // 2)
    assert run.metrics["episode_length_mean"] == 1


@pytest.mark.parametrize(
    ("stop_at", "max_lag"),
    [(1, 3), (640, 0), *thorough((1, 0), (640, 3), (1, 1), (640, 1), (500, 0), (500, 1), (500, 3))],
)
def test_a_stop_happens_at_most_max_lag_batches_after_stop_at_is_reached(tmp_path, max_lag, stop_at):
    rows = 16 * 4
    run = small_run(tmp_path / "run", "HalfCheetah-v5", max_lag=max_lag, stop_at=stop_at)
    reached = -(-stop_at // rows)
    assert run.state == "interrupted"
    assert run.reason == f"stopped at --stop-at {stop_at}"
    assert reached <= run.metrics["learning_step"] <= reached + max_lag


def test_a_stop_at_beyond_the_end_has_no_effect(tmp_path):
    run = small_run(tmp_path / "run", max_lag=3, steps=300, stop_at=299)
    assert run.state == "finished"


def test_a_run_stops_when_an_evaluation_reaches_stop_at_return(tmp_path):
    evaluated: dict[str, Any] = {"eval_every": 256, "eval_episodes": 2, "stop_at_return": 1}
    run = small_run(tmp_path / "run", "offbeat/OneStep-v0", steps=10**6, **evaluated)  # each episode returns at least 1
    assert (run.state, run.exit_code) == ("interrupted", 0)
    assert run.reason == "stopped at --stop-at-return 1: an evaluation had a mean return of 1.50"
    assert 256 <= run.metrics["env_steps"] < 512
    resumed = resume(run.path, steps=run.metrics["env_steps"] + 512)  # a limit of the first part only
    assert resumed.state == "finished"


def test_stop_at_return_without_evaluations_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="eval_every is 0"):
        small_run(tmp_path / "run", stop_at_return=1, eval_every=0)


@pytest.mark.parametrize("actors", [2, 3])
def test_actors_and_columns_have_separate_random_streams(begun, actors):
    parts, acting = begun("Pendulum-v1", actors=actors)
    acting.wait(actors)
    first = unrolls_of(parts).arrays_of(0)["observation"][0]
    assert len({row.tobytes() for row in first}) == actors * 4


def test_the_episodes_of_an_actor_depend_on_the_ticket_at_which_it_starts_and_on_its_deaths(begun):
    plan = begun("Pendulum-v1")[0].plan

    def state(origin: int, attempt: int) -> str:
        actor = make_actor(plan, 0, origin, attempt=attempt)
        start_actor(plan, actor, origin, None, 0.0)
        snapshot = str(actor.snapshot())
        actor.close()
        return snapshot

    states = [state(*each) for each in ((0, 0), (3, 0), (3, 1), (3, 2))]
    assert len(set(states)) == len(states)
    assert state(3, 1) == states[2]
