"""Stop signals, whenever they come: exit 130, in time, with the last checkpoint whole and no traceback."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import (
    GROUP,
    HURRIED_GROUP,
    OFFBEAT,
    CommandResult,
    Started,
    actors_of,
    is_alive,
    lines_of,
    offbeat,
    pids_of,
    small_arguments,
    small_run,
    status_of,
    weights_of,
)
from tests.support.thorough import thorough

from offbeat.run_directory.checkpoint import load

ENVS = ("tests.sample_envs.run_envs",)
FOR_EVER: dict[str, Any] = {"steps": 10**9, "checkpoint_every": 0}
IN_TIME_S = 10.0
"""The grace of five seconds, and leaving: of one second, where a run cannot stop in order."""

THREADS: dict[str, Any] = {"runtime": "threads", "actors": 2, "max_lag": 1}
PROCESSES: dict[str, Any] = THREADS | {"runtime": "processes"}
INT, TERM = signal.SIGINT, signal.SIGTERM

IN_TERMINAL = f"""
import os, pty, select, sys, threading
outer, inner = pty.openpty()
os.login_tty(inner)
sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # which Python has opened as files

def show():
    while not os.path.exists("CLOSE"):
        if select.select([outer], [], [], 0.05)[0]:
            os.read(outer, 65536)
    os.close(outer)

threading.Thread(target=show, daemon=True).start()
{OFFBEAT}
"""
"""Runs `offbeat` in a terminal of its own, which is closed when there is a file CLOSE."""


def _id(value: Any) -> str:
    return str(value["runtime"] if isinstance(value, dict) else value)


def assert_interrupted(said: CommandResult, path: Path) -> dict[str, Any]:
    assert said.code == 130
    assert "Traceback" not in said.err
    status = status_of(path)
    assert status["state"] == "interrupted"
    return status


# --- before training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "moment"), [(INT, "import"), (TERM, "reset"), *thorough((TERM, "import"), (INT, "reset"))], ids=str
)
def test_a_signal_while_a_run_starts_leaves_nothing_behind(tmp_path, monkeypatch, number, moment):
    if moment == "import":
        monkeypatch.setenv("OFFBEAT_TEST_SLEEP_IN_IMPORT", "1")
    path = tmp_path / "run"
    started = Started(small_arguments(path, "runs/SleepsInReset-v0", imports=ENVS), tmp_path)
    started.wait_until((tmp_path / "SLEEPING").exists)
    time.sleep(0.2)  # it says so just before it falls asleep
    said = started.end(number, seconds=IN_TIME_S)
    assert said.code == 130
    assert "Traceback" not in said.err
    assert not path.exists()


def test_a_signal_during_the_first_reset_of_actors_ends_a_run_in_time(tmp_path):
    path = tmp_path / "run"
    arguments = small_arguments(path, "runs/HangsInFirstReset-v0", imports=ENVS, **PROCESSES)
    started = Started(arguments, tmp_path, HURRIED_GROUP)
    started.wait_until(lambda: (tmp_path / "SLEEPING").exists() and len(pids_of(path, "actor")) == 2)
    actors = actors_of(path)
    said = started.end(signal.SIGTERM, seconds=IN_TIME_S)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert not any(map(is_alive, actors))


def test_a_signal_while_an_actor_creates_its_env_ends_a_run_in_time(tmp_path):
    path = tmp_path / "run"
    arguments = small_arguments(path, "runs/HangsInConstructor-v0", imports=ENVS, runtime="threads")
    started = Started(arguments, tmp_path, HURRIED_GROUP)
    started.wait_until((tmp_path / "SLEEPING").exists)
    said = started.end(signal.SIGINT, seconds=IN_TIME_S)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err


# --- while actors start -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_children")
@pytest.mark.parametrize(
    ("number", "settings", "seconds"),
    [(TERM, PROCESSES, 0.0), *thorough((INT, PROCESSES, 0.5), (TERM, PROCESSES, 2.0), (INT, THREADS, 0.5))],
    ids=_id,
)
def test_a_signal_after_actors_were_started_ends_a_run_in_time_and_leaves_no_actor(tmp_path, number, settings, seconds):
    """At first actor processes load libraries; later they make their envs, or act."""
    path, actors = tmp_path / "run", 2 if settings is PROCESSES else 0
    started = Started(small_arguments(path, **FOR_EVER | settings), tmp_path, GROUP)
    started.wait_until(lambda: (path / "status.json").exists() and len(actors_of(path)) == actors)
    pids = actors_of(path)
    time.sleep(seconds)
    os.killpg(started.process.pid, number)
    said = started.end(seconds=IN_TIME_S)
    assert said.code == 130, said.err
    assert "Traceback" not in said.err
    assert not any(map(is_alive, pids))


# --- during training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "runtime"),
    [
        (INT, "serial"),
        (TERM, "threads"),
        (INT, "processes"),
        *thorough((TERM, "serial"), (INT, "threads"), (TERM, "processes")),
    ],
    ids=str,
)
def test_a_signal_stops_training_at_the_next_learning_step_with_a_checkpoint(tmp_path, number, runtime):
    path = tmp_path / "run"
    settings = FOR_EVER | {"max_lag": 3, "runtime": runtime, "actors": 2}
    started = Started(small_arguments(path, **settings), tmp_path, GROUP)
    started.wait_for_text("ETA")
    actors = actors_of(path)
    assert len(actors) == (2 if runtime == "processes" else 0)
    os.killpg(started.process.pid, number)
    said = started.end(seconds=IN_TIME_S)
    assert not any(map(is_alive, actors))
    assert lines_of(path)[-1]["actor_restarts"] == 0  # it was not for them
    status = assert_interrupted(said, path)
    assert status["reason"] == f"stopped by {number.name}"
    assert f"offbeat resume {path}" in said.out
    assert load(path / "checkpoints" / "latest").policy["env_steps"] == lines_of(path)[-1]["env_steps"] > 0


@pytest.mark.parametrize("progress", ["dashboard", *thorough("lines")])
def test_a_run_whose_terminal_is_closed_stops_with_a_checkpoint(tmp_path, progress):
    path = tmp_path / "run"
    arguments = small_arguments(path, **FOR_EVER | PROCESSES)
    arguments[arguments.index("--progress") + 1] = progress
    started = Started(arguments, tmp_path, IN_TERMINAL)
    started.wait_until(lambda: lines_of(path) != [])
    actors = actors_of(path)
    (tmp_path / "CLOSE").touch()
    status = assert_interrupted(started.end(seconds=IN_TIME_S), path)
    assert status["reason"] == "stopped by SIGHUP"
    assert load(path / "checkpoints" / "latest").policy["env_steps"] == lines_of(path)[-1]["env_steps"] > 0
    assert not any(map(is_alive, actors))


@pytest.mark.thorough  # in this process: `interrupted` in test_matrix.py
def test_a_run_stopped_by_a_signal_resumes_with_the_same_bits(tmp_path):
    settings: dict[str, Any] = {"steps": 20_000, "max_lag": 1}
    path = tmp_path / "run"
    started = Started(small_arguments(path, **settings), tmp_path)
    started.wait_until(lambda: len(lines_of(path)) > 10)
    assert_interrupted(started.end(signal.SIGINT), path)
    assert offbeat("resume", path, "--progress", "none").code == 0
    assert weights_of(path) == weights_of(small_run(tmp_path / "whole", **settings).path)


@pytest.mark.parametrize("number", [INT, *thorough(TERM)], ids=str)
def test_a_signal_during_an_evaluation_stops_the_run(tmp_path, number):
    path = tmp_path / "run"
    endless: dict[str, Any] = {"eval_every": 1, "eval_episodes": 10**6, "eval_max_steps": 10**9}
    endless["lag"] = "exact"  # else such an evaluation would be left out until the run has lasted ten times as long
    endless["imports"] = ("tests.sample_envs.evaluated_envs",)
    started = Started(small_arguments(path, "evaluated/SlowInEvaluations-v0", **FOR_EVER | endless), tmp_path)
    started.wait_until(lambda: pids_of(path, "evaluator") != [])
    assert_interrupted(started.end(number, seconds=IN_TIME_S), path)
    assert load(path / "checkpoints" / "latest").policy["env_steps"] == lines_of(path)[-1]["env_steps"] > 0
    assert lines_of(path)[-1]["evaluations"] == 0


# --- when no boundary comes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "signals",
    [[INT], [TERM, INT], *thorough([TERM], [INT, INT])],
    ids=lambda signals: "-".join(number.name for number in signals),
)
def test_an_interrupted_run_with_a_slow_env_ends_at_its_last_checkpoint_and_reports_what_is_lost(tmp_path, signals):
    path = tmp_path / "run"
    settings = {"steps": 10**6, "checkpoint_every": 64, "unroll_length": 32}
    started = Started(small_arguments(path, "runs/Sleeper-v0", imports=ENVS, **settings), tmp_path, HURRIED_GROUP)
    started.wait_until((tmp_path / "SLEEPING").exists)
    said = started.end(*signals, seconds=IN_TIME_S)
    status = assert_interrupted(said, path)
    assert "last checkpoint" in status["reason"]
    assert load(path / "checkpoints" / "latest").policy["env_steps"] > 0


@pytest.mark.parametrize(("env", "settings"), [("HangsOnce", THREADS), ("HangsInReset", PROCESSES)])
def test_an_interrupted_run_with_a_hanging_actor_ends_in_time_at_its_last_checkpoint(tmp_path, settings, env):
    path = tmp_path / "run"
    settings = settings | {"steps": 10**6, "checkpoint_every": 64, "envs_per_actor": 2}
    started = Started(small_arguments(path, f"runs/{env}-v0", imports=ENVS, **settings), tmp_path, HURRIED_GROUP)
    started.wait_until((tmp_path / "SLEEPING").exists)
    actors = actors_of(path)
    os.killpg(started.process.pid, signal.SIGINT)
    status = assert_interrupted(started.end(seconds=IN_TIME_S), path)
    assert "last checkpoint" in status["reason"]
    assert not any(map(is_alive, actors))
