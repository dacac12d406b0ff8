"""Actors that raise, die or hang: processes are started again within a budget; all else ends the run, and says why."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.runs import (
    HURRIED,
    OFFBEAT,
    CommandResult,
    Started,
    lines_of,
    offbeat,
    our_lines,
    pids_of,
    small_arguments,
    status_of,
)
from tests.support.thorough import thorough

from offbeat.run_directory.checkpoint import load

ENVS = ("tests.sample_envs.run_envs",)
STEPS = 2048
"""Env steps of a run, in which there is time for a fault and for what follows it."""
PROCESSES: dict[str, Any] = {"runtime": "processes", "actors": 2, "max_lag": 1, "imports": ENVS}
THREADS: dict[str, Any] = PROCESSES | {"runtime": "threads"}
SERIAL: dict[str, Any] = PROCESSES | {"runtime": "serial"}


pytestmark = pytest.mark.usefixtures("in_temporary_folder")


def train(env: str, **settings: Any) -> CommandResult:
    """Train with `offbeat` in the current folder, in the run directory `run`."""
    return offbeat(*small_arguments(Path("run"), env, **{"steps": STEPS, **settings}))


def resume() -> CommandResult:
    return offbeat("resume", "run", "--progress", "none")


def restarts() -> int:
    count: int = lines_of(Path("run"))[-1]["actor_restarts"]
    return count


def log() -> str:
    return Path("run/log.txt").read_text()


def assert_finished(said: CommandResult) -> None:
    assert said.code == 0, said.err
    assert our_lines(said.err) == []
    assert status_of(Path("run"))["state"] == "finished"
    last = lines_of(Path("run"))[-1]
    assert last["env_steps"] >= STEPS
    assert last["policy_lag_max"] <= 1


def assert_failed_and_whole(said: CommandResult) -> None:
    assert said.code == 1, said.err
    assert status_of(Path("run"))["state"] == "failed"
    saved = load(Path("run/checkpoints/latest"))
    assert saved.state is not None
    assert saved.policy["env_steps"] == lines_of(Path("run"))[-1]["env_steps"] > 0


# --- envs that raise ----------------------------------------------------------------------------------------


def test_an_actor_process_whose_env_raises_is_restarted_and_repeats_its_ticket():
    said = train("runs/RaisesOnce-v0", **PROCESSES)
    assert_finished(said)
    assert restarts() == 1
    for text in (said.err, log()):
        assert "started again, at a marked cut; restart 1 of 5" in text
        assert "ZeroDivisionError: the wave has no length" in text


@pytest.mark.parametrize(
    "settings", [PROCESSES | {"restart_budget": 1}, SERIAL, *thorough(THREADS)], ids=lambda s: s["runtime"]
)
def test_an_env_error_that_no_restart_mends_fails_the_run_which_resumes_once_the_env_is_fixed(settings):
    said = train("runs/RaisesUntilMended-v0", **settings, steps=4096)
    assert_failed_and_whole(said)
    assert "ZeroDivisionError: the wave has no length" in said.err
    assert "actor" in said.err
    assert "env 0" in said.err
    assert 'raise ZeroDivisionError("the wave has no length")' in log()  # the line, from the traceback
    Path("MENDED").touch()
    assert_finished(resume())


@pytest.mark.parametrize(
    "settings", [PROCESSES | {"restart_budget": 0}, THREADS, *thorough(SERIAL)], ids=lambda s: s["runtime"]
)
def test_an_env_that_calls_exit_is_reported_as_a_failure(settings):
    said = train("runs/Exits-v0", **settings)
    assert_failed_and_whole(said)
    assert "SystemExit" in said.err


# --- processes that die -------------------------------------------------------------------------------------


def test_an_actor_whose_process_exits_is_restarted():
    said = train("runs/ExitsAtOnce-v0", **PROCESSES)
    assert_finished(said)
    assert restarts() == 1
    assert "ended with exit code 0" in said.err


def test_actors_killed_at_random_moments_are_restarted_and_counted():
    settings = {"checkpoint_every": 256, "eval_every": 256, "eval_episodes": 5, "restart_budget": 100, "steps": 8000}
    with killing_actors(Random(0), most=4) as killed:
        said = train("runs/Numbered-v0", **PROCESSES, **settings)
    assert_finished(said)
    assert len(killed) - 2 <= restarts() <= len(killed)  # each of both actors may be killed when nothing is left to do
    assert restarts() > 0
    for line in lines_of(Path("run")):
        assert line["episode_return_mean"] in (None, 10.0)  # no episode was glued to another at a cut
        assert line["episode_length_mean"] in (None, 10.0)
    last = lines_of(Path("run"))[-1]
    resets = last["learning_step"] * 128 - last["env_steps"]
    # Each of the 8 columns may still owe one, and a cut spares its actor's 4 columns theirs.
    assert last["episodes"] - 8 - 4 * restarts() <= resets <= last["episodes"]
    assert_whole_and_resumable()


def assert_whole_and_resumable() -> None:
    saved = load(Path("run/checkpoints/latest"))
    assert saved.state is not None
    assert all(np.isfinite(array).all() for array in saved.weights.values())
    assert offbeat("resume", "run", "--steps", 8500, "--progress", "none").code == 0


@contextmanager
def killing_actors(random: Random, most: int) -> Iterator[list[int]]:
    """Kill actors of the run that is going on in this process, up to `most`; yields their pids."""
    killed: list[int] = []
    done = threading.Event()

    def kill_some() -> None:
        while len(killed) < most and not done.wait(random.uniform(0.02, 0.2)):
            pids = [pid for pid in pids_of(Path("run"), "actor") if pid not in killed]
            if pids:
                killed.append(random.choice(pids))
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_some)
    killer.start()
    try:
        yield killed
    finally:
        done.set()
        killer.join()


# --- envs that hang -----------------------------------------------------------------------------------------

HANGS = pytest.mark.parametrize(
    ("env", "timeout"),
    [
        ("HangsHoldingTheInterpreter", "step_timeout_s"),
        *thorough(
            ("HangsInReset", "reset_timeout_s"),
            ("HangsOnce", "step_timeout_s"),
            ("HangsInFirstReset", "reset_timeout_s"),
        ),
    ],
)


@HANGS
def test_a_hanging_actor_process_is_reported_killed_and_restarted(env, timeout):
    said = train(f"runs/{env}-v0", **PROCESSES, **{timeout: 3})
    assert_finished(said)
    assert restarts() == 1
    assert_names_the_call(said.err, timeout)
    assert lines_of(Path("run"))[-1]["wall_time_s"] < 300  # the env hangs for ten minutes


@pytest.mark.parametrize(
    ("env", "timeout"), [("HangsInReset", "reset_timeout_s"), *thorough(("HangsOnce", "step_timeout_s"))]
)
def test_a_hanging_actor_thread_is_reported_and_ends_the_run(tmp_path, env, timeout):
    arguments = small_arguments(tmp_path / "run", f"runs/{env}-v0", **THREADS, **{timeout: 3}, steps=STEPS)
    said = Started(arguments, tmp_path, HURRIED + OFFBEAT).end(seconds=60)  # it sleeps for ten minutes
    assert_failed_and_whole(said)
    assert_names_the_call(said.err, timeout)
    assert "Traceback" not in said.err


def assert_names_the_call(text: str, timeout: str) -> None:
    """Check that a message names an actor whose call of its envs did not return, and the time limit."""
    assert re.search(rf"actor \d.* was in a call of its envs that did not return in time \({timeout}\)", text), text


WORLD = "tests.sample_envs.faulty_envs:HangingNim"


def test_a_world_that_hangs_in_the_step_of_one_agent_costs_an_actor_process_a_restart():
    said = train(WORLD, **PROCESSES, policies="separate", step_timeout_s=3)
    assert said.code == 0, said.err
    assert restarts() == 1
    assert_names_the_call(said.err, "step_timeout_s")


def test_a_world_that_hangs_in_the_step_of_one_agent_in_a_thread_ends_the_run(tmp_path):
    settings = THREADS | {"imports": (), "policies": "separate", "step_timeout_s": 3, "steps": STEPS}
    arguments = small_arguments(tmp_path / "run", WORLD, **settings)
    said = Started(arguments, tmp_path, HURRIED + OFFBEAT).end(seconds=60)
    assert (said.code, status_of(Path("run"))["state"]) == (1, "failed")
    assert_names_the_call(said.err, "step_timeout_s")


# --- actors that cannot start -------------------------------------------------------------------------------


def fail_in_import(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OFFBEAT_TEST_FAIL_IN_ACTORS", "1")
    return "Wave"


def fail_in_constructor(_monkeypatch: pytest.MonkeyPatch) -> str:
    return "CannotBeMadeInChildren"


@pytest.mark.parametrize(
    ("fails", "message"),
    [(fail_in_import, "the wave library is of another version"), (fail_in_constructor, "the wave tank is in use")],
)
def test_an_actor_process_that_cannot_start_fails_the_run_with_its_error(
    monkeypatch, fails: Callable[[pytest.MonkeyPatch], str], message
):
    said = train(f"runs/{fails(monkeypatch)}-v0", **PROCESSES, restart_budget=1)
    assert said.code == 1
    assert message in said.err
    assert "actor" in said.err
    assert message in Path("run/log.txt").read_text()
    assert load(Path("run/checkpoints/latest")).policy["env_steps"] == 0


# --- envs that take their time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "steps", "runtime"),
    [
        ("Irregular", 1024, "processes"),
        ("SlowToReset", 100, "threads"),
        *thorough(("Irregular", 1024, "threads"), ("SlowToReset", 100, "processes")),
    ],
)
def test_slow_envs_keep_the_lag_bound_and_cause_no_restart(env, steps, runtime):
    said = train(f"runs/{env}-v0", **PROCESSES | {"runtime": runtime, "steps": steps, "envs_per_actor": 1})
    assert said.code == 0, said.err
    lines = lines_of(Path("run"))
    assert lines[-1]["env_steps"] >= steps
    assert max(line["policy_lag_max"] for line in lines) <= 1
    assert lines[-1]["actor_restarts"] == 0
