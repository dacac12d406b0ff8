"""A learner process that is lost ends the run with the reason, on its last checkpoint; nothing is left of the run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.failing_ppo import FAILING_LATER, FIRST_IS_SILENT, HANGING_LATER, SECOND_IS_SILENT
from tests.support.runs import (
    HURRIED,
    OFFBEAT,
    CommandResult,
    Started,
    actors_of,
    has_saved,
    is_alive,
    lines_of,
    offbeat,
    pids_of,
    small_arguments,
    small_run,
    status_of,
    wait_until,
)
from tests.support.thorough import thorough

from offbeat.config import registry
from offbeat.core.errors import RunFailed
from offbeat.run_directory.checkpoint import load

LEARNERS: dict[str, Any] = {"runtime": "processes", "actors": 2, "max_lag": 1, "shards": 2, "devices": ("cpu", "cpu")}
ENDLESS: dict[str, Any] = {"steps": 10**8, "checkpoint_every": 256}
GONE_S = 5.0
"""Within this time no process outlives a main process that was killed."""


def lose_a_learner(number: signal.Signals, folder: Path, **settings: Any) -> tuple[CommandResult, int]:
    """Send a signal to the learner process of a run that has saved; return how the run ends, and the pid."""
    run = folder / "run"
    started = Started(small_arguments(run, **LEARNERS, **ENDLESS, **settings), folder)
    started.wait_until(lambda: has_saved(run))
    (learner,), actors = pids_of(run, "learner"), actors_of(run)
    os.kill(learner, number)
    said = started.end()
    assert said.code == 1, said
    assert not any(map(is_alive, [learner, *actors]))
    return said, learner


def wait_until_nothing_is_learned(run: Path) -> None:
    """Wait until the run has written no metrics line for two seconds: the learner waits for actors."""
    seen = 0
    while len(lines_of(run)) > seen:
        seen = len(lines_of(run))
        time.sleep(2.0)


def assert_resumes(run: Path) -> None:
    """The last checkpoint is complete, and the run continues from it."""
    learned = load(run / "checkpoints" / "latest").policy["env_steps"]
    assert learned > 0
    said = offbeat("resume", run, "--steps", learned + 600, "--progress", "none")
    assert said.code == 0, said.err


def test_a_learner_that_is_killed_ends_the_run_which_can_be_resumed(tmp_path):
    said, pid = lose_a_learner(signal.SIGKILL, tmp_path)
    assert f"learner 1 on cpu (process {pid}) was killed by SIGKILL, in learning step" in said.err
    status = status_of(tmp_path / "run")
    assert status["state"] == "failed"
    assert f"learner 1 on cpu (process {pid}) was killed by SIGKILL" in status["reason"]
    assert_resumes(tmp_path / "run")


def test_a_learner_that_is_killed_while_the_run_waits_for_actors_ends_it_on_its_last_checkpoint(tmp_path):
    """The actors are stopped. If only they were watched, the run would end later, because they make no progress."""
    run = tmp_path / "run"
    patient: dict[str, Any] = {"stall_timeout_s": 20, "step_timeout_s": 20, "restart_budget": 1, "log_every": 1}
    started = Started(small_arguments(run, **LEARNERS, **ENDLESS, **patient), tmp_path, HURRIED + OFFBEAT)
    started.wait_until(lambda: has_saved(run))
    (learner,), actors = pids_of(run, "learner"), actors_of(run)
    for pid in actors:
        os.kill(pid, signal.SIGSTOP)
    wait_until_nothing_is_learned(run)
    saved = load(run / "checkpoints" / "latest").policy["env_steps"]
    os.kill(learner, signal.SIGKILL)
    said = started.end()
    assert said.code == 1
    assert f"was killed by SIGKILL, in learning step {lines_of(run)[-1]['learning_step']}" in said.err
    assert "made no progress" not in said.err
    assert load(run / "checkpoints" / "latest").policy["env_steps"] == saved
    assert not any(map(is_alive, [learner, *actors]))


def test_a_learner_that_makes_no_progress_ends_the_run_which_can_be_resumed(tmp_path):
    said, pid = lose_a_learner(signal.SIGSTOP, tmp_path, stall_timeout_s=2)
    assert (
        f"learner 1 on cpu (process {pid}) made no progress in time outside of its envs (stall_timeout_s)" in said.err
    )
    assert_resumes(tmp_path / "run")


def test_a_learner_that_hangs_ends_the_run_without_a_message_about_the_one_that_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.ALGORITHMS, "ppo", HANGING_LATER)
    with pytest.raises(RunFailed, match=r"learner 1 on cpu .* made no progress in time .* after 1 exchanges"):
        small_run(tmp_path / "run", **LEARNERS, stall_timeout_s=3)
    assert "the learner has made no update" not in (tmp_path / "run/log.txt").read_text()


@pytest.mark.parametrize("silent", [FIRST_IS_SILENT, *thorough(SECOND_IS_SILENT)], ids=["first", "second"])
def test_a_learner_that_waits_for_one_that_has_finished_the_step_ends_the_run(tmp_path, monkeypatch, silent):
    monkeypatch.setitem(registry.ALGORITHMS, "ppo", silent)
    with pytest.raises(RunFailed, match=r"exchanged rows a different number of times by the end of learning step 0"):
        small_run(tmp_path / "run", **LEARNERS)


@pytest.mark.parametrize("shards", [2, *thorough(3)])
def test_a_learner_that_raises_ends_the_run_with_its_error_and_traceback(tmp_path, monkeypatch, shards):
    run = tmp_path / "run"
    settings = {**LEARNERS, "steps": 2048, "checkpoint_every": 256, "shards": shards, "devices": ("cpu",) * shards}
    with monkeypatch.context() as patch:
        patch.setitem(registry.ALGORITHMS, "ppo", FAILING_LATER)
        with pytest.raises(
            RunFailed, match=r"learner 1 on cpu .* in learning step 7 .* the advantage is real"
        ) as raised:
            small_run(run, **settings)
    assert "raise ArithmeticError" in str(raised.value.__cause__)
    assert "in prepare" in "".join(raised.value.__notes__)
    assert_resumes(run)


def test_a_learner_that_cannot_start_ends_the_run_before_its_first_learning_step(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(registry.ALGORITHMS, "ppo", FAILING_LATER)
        patch.setenv("LEARNER_FAILS_AT_START", "1")
        with pytest.raises(
            RunFailed, match=r"learner 1 on cpu .* ended with exit code 1, at its start: .* no such device"
        ):
            small_run(tmp_path / "run", **LEARNERS)
    assert status_of(tmp_path / "run")["state"] == "failed"
    assert offbeat("resume", tmp_path / "run", "--steps", 600, "--progress", "none").code == 0


def test_a_main_process_that_is_killed_ends_all_learners(tmp_path):
    run = tmp_path / "run"
    started = Started(small_arguments(run, **LEARNERS, **ENDLESS), tmp_path)
    started.wait_until(lambda: has_saved(run))
    (learner,), actors = pids_of(run, "learner"), actors_of(run)
    assert started.end(signal.SIGKILL).code == -signal.SIGKILL
    wait_until(lambda: not any(map(is_alive, [learner, *actors])), GONE_S)
    assert_resumes(run)


def test_a_stop_signal_to_all_processes_ends_a_run_with_several_learners_in_order(tmp_path):
    run = tmp_path / "run"
    started = Started(small_arguments(run, **LEARNERS, **ENDLESS), tmp_path)
    started.wait_until(lambda: has_saved(run))
    (learner,) = pids_of(run, "learner")
    os.kill(learner, signal.SIGTERM)
    assert started.end(signal.SIGTERM).code == 130
    assert status_of(run)["state"] == "interrupted"
    assert_resumes(run)
