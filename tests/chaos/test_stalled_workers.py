"""A worker that stands still is noticed, whatever it is doing; and nothing of a run is left when the run has ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sample_envs.stalling import LARGE, LaunchSpec
from tests.support.children import take_reports_until
from tests.support.process_state import child_processes
from tests.support.runs import (
    CommandResult,
    Started,
    is_alive,
    lines_of,
    offbeat,
    small_arguments,
    small_run,
    status_of,
    wait_until,
)
from tests.support.scenes import scene
from tests.support.thorough import thorough
from tests.support.warm import warm_python

from offbeat.api.running import prepare
from offbeat.core.process import threads
from offbeat.runtime import deadline
from offbeat.runtime.children.child import start_child
from offbeat.runtime.children.child_main import Report
from offbeat.runtime.deadline import Deadline, Span, StallWatch

ENVS = ("tests.sample_envs.run_envs", "tests.sample_envs.stalling")
PROCESSES: dict[str, Any] = {"runtime": "processes", "actors": 2, "max_lag": 1, "imports": ENVS}
ENDLESS: dict[str, Any] = {"steps": 10**8, "log_every_s": 0.1, "imports": ENVS}
"""Its first metrics line comes with its first learning steps."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "processes": {"runtime": "processes", "actors": 2, "max_lag": 1},
    "hogwild": {"runtime": "hogwild", "workers": 2},
}


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEARNER", str(os.getpid()))


def train(env: str, **settings: Any) -> CommandResult:
    return offbeat(*small_arguments(Path("run"), env, **{"steps": 2048, **settings}))


def endless(folder: Path, env: str, **settings: Any) -> Started:
    """Start a run that has learned something, and would go on for ever."""
    started = Started(small_arguments(folder / "run", env, **ENDLESS, **settings), folder)
    started.wait_until(lambda: bool(lines_of(folder / "run")))
    return started


# --- deadlines ----------------------------------------------------------------------------------------------


def expired_deadline() -> tuple[Deadline, StallWatch]:
    """Return a deadline that has passed, and who watches it."""
    one = Deadline(np.zeros(deadline.ROW))
    one.set(Span.WORK, -1.0)
    return one, StallWatch([one])


def test_a_worker_that_sets_no_new_deadline_is_detected_as_stalled(monkeypatch):
    monkeypatch.setattr(deadline, "CONFIRM_S", 0.01)
    _, watch = expired_deadline()
    assert not watch.has_stalled(0), "not at the first check: all processes may have been stopped for a while"
    time.sleep(0.02)
    assert watch.has_stalled(0)


def test_a_worker_that_continues_after_all_processes_were_stopped_is_not_stalled(monkeypatch):
    monkeypatch.setattr(deadline, "CONFIRM_S", 0.01)
    one, watch = expired_deadline()
    watch.has_stalled(0)
    one.set(Span.WORK, -0.5)  # it has begun something else, and was stopped again
    time.sleep(0.02)
    assert not watch.has_stalled(0)
    one.set(Span.WORK, 60.0)
    assert not watch.has_stalled(0)


@pytest.mark.parametrize("span", [Span.START, Span.STEP, Span.RESET, Span.WORK])
def test_the_reason_names_the_setting_that_allows_more_time(span):
    one = Deadline(np.zeros(deadline.ROW))
    one.set(span, 1.0)
    setting = {Span.STEP: "step_timeout_s", Span.RESET: "reset_timeout_s"}.get(span, "stall_timeout_s")
    assert setting in one.reason


# --- actors and workers -------------------------------------------------------------------------------------


def test_an_actor_stopped_while_it_waits_for_the_learner_is_replaced():
    with scene(actors=2, max_lag=1, stall_timeout_s=1) as it:
        it.begin()
        it.next_batch(0)
        it.acting.wait(it.parts.pace.acted_before_learn(2))  # all that they may act before the next learning step
        stopped = it.pids[0]
        os.kill(stopped, signal.SIGSTOP)
        for step in range(1, 8):
            it.next_batch(step)
        assert it.acting.restarts == 1
        assert it.pids[0] != stopped
        assert "made no progress in time outside of its envs (stall_timeout_s) and was killed" in it.said[0]


@pytest.mark.parametrize("runtime", ["processes", *thorough("hogwild")])
def test_a_run_continues_after_one_of_its_workers_was_stopped_by_sigstop(runtime):
    limits = {"stall_timeout_s": 2, "step_timeout_s": 2, "reset_timeout_s": 2}
    stopped: list[int] = []

    def stop_one(line: dict[str, Any]) -> str | None:
        if not stopped:
            stopped.append(status_of(Path("run"))["processes"][1]["pid"])
            os.kill(stopped[0], signal.SIGSTOP)
        return "stop" if line["actor_restarts"] else None

    settings = {**ENDLESS, **LAYOUTS[runtime], **limits}
    run = small_run(Path("run"), "runs/Unhurried-v0", **settings, callbacks=[stop_one])
    assert (run.state, run.metrics["actor_restarts"]) == ("interrupted", 1)
    assert "started again, at a marked cut; restart 1 of 5" in Path("run/log.txt").read_text()


def test_an_actor_process_whose_network_hangs_is_replaced():
    said = train("runs/Wave-v0", **PROCESSES | {"actors": 1}, encoder="hanging", stall_timeout_s=3)
    assert said.code == 0, said.err
    assert Path("HUNG").exists()
    assert lines_of(Path("run"))[-1]["actor_restarts"] == 1
    assert "stall_timeout_s" in said.err


def test_an_actor_thread_whose_network_hangs_ends_the_run_with_the_reason(monkeypatch):
    monkeypatch.setattr(threads, "CLOSE_S", 0.1)
    said = train("runs/Wave-v0", **PROCESSES | {"runtime": "threads"}, encoder="hanging", stall_timeout_s=3)
    assert said.code == 1
    assert "made no progress in time outside of its envs (stall_timeout_s), and a thread cannot be killed" in said.err
    assert status_of(Path("run"))["state"] == "failed"


def test_a_child_stopped_in_the_middle_of_a_report_does_not_block_the_parent():
    received: list[Report] = []
    child = start_child("tests.sample_envs.stalling", LaunchSpec(os.getpid()), on_report=received.append)
    try:
        while not child.ready:
            child.take_reports(0.1)
        os.kill(child.process.pid, signal.SIGSTOP)
        before = time.monotonic()
        child.take_reports(0.2)
        assert time.monotonic() - before < 30, "it would wait for ever"
        os.kill(child.process.pid, signal.SIGCONT)
        take_reports_until(child, lambda: bool(received))
        assert len(received[0].content) == LARGE
    finally:
        child.kill()


@pytest.mark.parametrize("measured", [False, *thorough(True)])
def test_a_slow_env_test_before_the_run_is_reported(monkeypatch, measured):
    monkeypatch.setattr(prepare, "REMIND_S", 0.2)
    layout = {"runtime": "processes", "split": "measured"} if measured else {}
    said = train("stalling/SlowToBegin-v0", imports=ENVS, steps=64, envs_per_actor=2, unrolls_per_batch=1, **layout)
    assert said.code == 0, said.err
    assert f"still {'measuring' if measured else 'testing'} stalling/SlowToBegin-v0 after" in said.err


# --- states of envs -----------------------------------------------------------------------------------------


def test_actors_with_large_states_exit_normally_and_close_their_envs():
    said = train("stalling/Heavy-v0", **PROCESSES, lag="exact", steps=512)
    assert said.code == 0, said.err
    assert len(list(Path().glob("closed-*"))) >= 2  # one a process


@pytest.mark.thorough
def test_a_checkpoint_waits_for_an_env_with_a_slow_snapshot():
    layout = {"actors": 1, "max_lag": 0, "envs_per_actor": 1, "minibatch_size": 16}
    with scene(env="stalling/SlowState-v0", imports=ENVS, **layout) as it:
        it.begin()
        it.acting.pause_at(1)
        it.next_batch(0)
        (snapshot,) = it.acting.snapshots()
        assert snapshot is not None


def test_an_env_that_hangs_while_its_state_is_saved_ends_a_run_with_threads(monkeypatch):
    monkeypatch.setattr(threads, "CLOSE_S", 0.1)
    layout = {"runtime": "threads", "actors": 1, "max_lag": 0, "envs_per_actor": 1, "minibatch_size": 16}
    said = train("stalling/SlowState-v0", imports=ENVS, **layout, reset_timeout_s=0.5, checkpoint_every=1)
    assert said.code == 1
    assert "actor 0 was in a call of its envs that did not return in time (reset_timeout_s)" in said.err


# --- signals to all processes of a run ----------------------------------------------------------------------


@pytest.mark.parametrize(("runtime", "number"), [("processes", signal.SIGTERM), *thorough(("hogwild", signal.SIGINT))])
def test_a_signal_to_every_process_of_a_run_stops_it_normally(tmp_path, runtime, number):
    started = endless(tmp_path, "runs/Unhurried-v0", **LAYOUTS[runtime])
    for process in reversed(status_of(Path("run"))["processes"]):
        os.kill(process["pid"], number)
    said = started.end()
    assert said.code == 130
    assert "started again" not in said.err
    last = lines_of(Path("run"))[-1]
    assert last["actor_restarts"] == 0
    assert status_of(Path("run"))["state"] == "interrupted"


@pytest.mark.usefixtures("fresh_children")
def test_a_signal_before_a_child_installed_its_handler_does_not_end_the_child():
    child = start_child("tests.sample_envs.stalling", LaunchSpec(os.getpid()), on_report=lambda _report: None)
    try:
        os.kill(child.process.pid, signal.SIGTERM)  # Python has not begun there
        take_reports_until(child, lambda: child.ready)
    finally:
        child.kill()


def test_processes_forked_by_envs_end_at_sigterm(tmp_path):
    arguments = small_arguments(
        Path("run"), "stalling/Forker-v0", **PROCESSES, envs_per_actor=1, minibatch_size=16, steps=64
    )
    started = Started(arguments, tmp_path)  # not in this process, where other tests may have left threads
    assert started.end().code == 0
    endings = {path.read_text() for path in Path().glob("forked-*") if path.name != f"forked-{started.process.pid}"}
    assert endings == {str(-signal.SIGTERM)}


# --- what envs start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runtime", "number"), [("processes", signal.SIGKILL), *thorough(("hogwild", signal.SIGTERM))])
def test_programs_started_by_envs_end_with_the_run_and_have_default_signal_handlers(tmp_path, runtime, number):
    started = endless(tmp_path, "stalling/Starter-v0", **LAYOUTS[runtime], envs_per_actor=1, minibatch_size=16)
    workers = {str(process["pid"]) for process in status_of(Path("run"))["processes"][1:]}
    started.wait_until(lambda: sum(parent in workers for parent, _ in started_programs().values()) == 2)
    notes = started_programs()
    of_workers = [pid for pid, (parent, _) in notes.items() if parent in workers]
    assert {ignores for _, ignores in notes.values()} == {"False"}
    started.end(number)
    wait_until(lambda: not any(map(is_alive, of_workers)), seconds=5.0)
    for pid in notes:
        if is_alive(pid):  # of the main process itself, which tries the env first: those are its own
            os.kill(pid, signal.SIGKILL)


def started_programs() -> dict[int, list[str]]:
    """Return what the programs of `Starter` have noted: pid -> parent, and whether it ignores stop signals."""
    notes = {int(path.name.partition("-")[2]): path.read_text().split() for path in Path().glob("started-*")}
    return {pid: note for pid, note in notes.items() if note}


def test_the_watchdog_ends_after_the_last_child():
    warm_python()  # a child that does not end
    before = set(child_processes())
    assert train("runs/Wave-v0", **PROCESSES, steps=256).code == 0
    wait_until(lambda: set(child_processes()) <= before)
    assert not [thread for thread in threading.enumerate() if "_converse" in thread.name]
