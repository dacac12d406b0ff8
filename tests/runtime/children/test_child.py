from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Pipe
from pathlib import Path
from threading import Event, Thread, Timer
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.runs import small_run
from tests.support.thorough import thorough

from offbeat.runtime.children.child import LONGEST_LINE, Child, _forward_output
from offbeat.runtime.children.child_main import Report
from offbeat.runtime.children.process_groups import GROUPS, ProcessGroups


def piped(*command: str, group: int | None = 0) -> tuple[subprocess.Popen[bytes], Any, Any]:
    """Start a program, by default in a process group of its own; return it and both ends of a pipe to it."""
    ours, theirs = Pipe()
    return subprocess.Popen(command, stdout=subprocess.PIPE, process_group=group), ours, theirs


class SlowStream:
    """A stream that writes only once it is let go on."""

    def __init__(self) -> None:
        self.text, self.writes, self.may_write = "", Event(), Event()

    def write(self, text: str) -> None:
        self.writes.set()
        self.may_write.wait(timeout=60)
        self.text += text

    def flush(self) -> None:
        pass


def test_the_last_output_of_a_child_is_written_before_kill_returns(monkeypatch):
    stream = SlowStream()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("offbeat.runtime.children.child.LAST_OUTPUT_S", 60.0)
    process, ours, theirs = piped("echo", "last words")
    theirs.close()
    child = Child(0, process, ours, None)
    assert stream.writes.wait(timeout=60)
    Timer(0.2, stream.may_write.set).start()
    child.kill()
    assert stream.text == "last words\n"


def test_the_end_of_a_child_does_not_wait_for_a_server_of_its_envs_that_has_its_output(monkeypatch):
    monkeypatch.setattr("offbeat.runtime.children.child.LAST_REPORT_S", 60.0)
    in_own_session = "while [ $(cut -d ' ' -f 6 /proc/$!/stat) != $! ]; do :; done"
    process, ours, theirs = piped("sh", "-c", f"setsid sleep 60 & {in_own_session}; kill -9 $$")
    theirs.close()
    child = Child(0, process, ours, None)
    assert child.exits_within(60)
    child.kill()
    assert child._output.is_alive(), "it has waited for the end of the server"


def test_a_child_that_does_not_end_when_it_is_killed_is_named_and_not_waited_for(monkeypatch):
    monkeypatch.setattr("offbeat.runtime.children.child.KILL_S", 0.1)
    monkeypatch.setattr("offbeat.runtime.children.child.LAST_REPORT_S", 0.1)
    process, ours, theirs = piped("sleep", "600")
    child = Child(0, process, ours, None)
    try:
        with monkeypatch.context() as kernel:
            for kill in ((os, "killpg"), (process, "kill")):  # as for a process in uninterruptible sleep
                kernel.setattr(*kill, lambda *_: None)
            with pytest.warns(RuntimeWarning, match=f"process {process.pid} was killed, but has not ended"):
                child.kill()
            child.kill()
        assert (child.has_ended, child.is_alive()) == (True, False)
        assert child.exit_reason() == "was killed, but has not ended"
    finally:
        theirs.close()
        process.kill()
        process.wait()
        GROUPS.remove(process.pid)


def test_a_child_that_has_left_its_process_group_is_killed():
    process, ours, theirs = piped("sleep", "600", group=None)  # in the group of this process
    theirs.close()
    child = Child(0, process, ours, None)
    child.kill()
    assert child.exit_reason() == "was killed by SIGKILL"


def test_a_child_that_cannot_start_a_thread_reports_it_with_a_remedy():
    ours, theirs = Pipe()
    code = """
from threading import Thread
from offbeat.runtime.children.child_main import run_child

def fail(_thread):
    raise RuntimeError("can't start new thread")

Thread.start = fail
run_child("offbeat.core.closing")
"""
    command = [sys.executable, "-c", code, str(theirs.fileno())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()], process_group=0)
    theirs.close()
    child = Child(0, process, ours, SimpleNamespace(parent=os.getpid()))
    assert child.exits_within(60)
    child.kill()
    assert child.no_restart_reason == ""
    assert (
        "could not start a thread (can't start new thread): raise the limit of processes and threads" in child.failure
    )
    assert "_exit_with_parent" in child.failure


def test_a_child_with_an_error_ends_even_if_it_hangs_in_close():
    ours, theirs = Pipe()
    code = """
import sys, time
from types import SimpleNamespace
from offbeat.runtime.children import child_main

def main(launch, child):
    child.closing.callback(time.sleep, 600)
    raise ValueError("the robot is broken")

child_main.FAILED_CLOSE_S = 0.1
sys.modules["broken_robot"] = SimpleNamespace(main=main)
child_main.run_child("broken_robot")
"""
    command = [sys.executable, "-c", code, str(theirs.fileno())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()], process_group=0)
    theirs.close()
    child = Child(0, process, ours, SimpleNamespace(parent=os.getpid()))
    ended = child.exits_within(60)
    child.kill()
    assert (ended, child.exit_reason()) == (True, "ended with exit code 1")
    assert child.explained.startswith("ValueError: the robot is broken")


def test_the_launch_spec_of_a_child_is_freed_when_it_was_sent():
    process, ours, theirs = piped("sleep", "600")
    tracemalloc.start()
    child = Child(0, process, ours, bytes(50_000_000))
    try:
        assert len(theirs.recv_bytes()) > 50_000_000
        theirs.send(Report("ready", None))
        child.take_reports(60)
        assert child.ready
        assert tracemalloc.get_traced_memory()[0] < 25_000_000
    finally:
        tracemalloc.stop()
        theirs.close()
        child.kill()


def test_the_launch_spec_of_a_child_that_ends_before_it_is_sent_is_freed():
    process, ours, theirs = piped("true")
    theirs.close()
    child = Child(0, process, ours, bytes(1_000_000))
    child.kill()
    assert child._unsent == b""


@pytest.mark.parametrize("started", [0, 1])
def test_a_child_is_killed_if_its_threads_cannot_be_started(monkeypatch, started):
    process, ours, theirs = piped("sleep", "600")
    start, starts = Thread.start, count()

    def start_at_the_limit(thread: Thread) -> None:
        if next(starts) >= started:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", start_at_the_limit)
    with pytest.raises(OSError, match="can't start new thread"):
        Child(0, process, ours, None)
    assert_killed(process, ours)
    theirs.close()


def test_a_child_is_killed_if_its_process_group_cannot_be_watched(monkeypatch):
    process, ours, theirs = piped("sleep", "600")

    def fail(_code: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("offbeat.runtime.children.child.GROUPS", ProcessGroups())
    monkeypatch.setattr("offbeat.runtime.children.process_groups.start_watchdog", fail)
    with pytest.raises(OSError, match="Too many open files"):
        Child(0, process, ours, None)
    assert_killed(process, ours)
    theirs.close()


def test_a_watchdog_that_was_killed_is_replaced_and_knows_all_groups():
    groups = ProcessGroups()
    sleepers = [subprocess.Popen(["sleep", "600"], process_group=0) for _ in range(2)]
    groups.add(sleepers[0].pid)
    watchdog = groups._watchdog
    assert watchdog is not None
    watchdog.kill()
    watchdog.wait()
    groups.add(sleepers[1].pid)
    replaced = groups._watchdog
    assert replaced is not None
    assert replaced.stdin is not None
    replaced.stdin.close()  # as at the end of this process
    assert [sleeper.wait(timeout=60) for sleeper in sleepers] == [-signal.SIGKILL] * 2
    replaced.wait()


def assert_killed(process: subprocess.Popen[bytes], connection: Any) -> None:
    assert process.returncode == -signal.SIGKILL
    assert process.stdout is not None
    assert (process.stdout.closed, connection.closed) == (True, True)


class BrokenStream:
    """A stream that raises an exception."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, _text: str) -> None:
        raise self._error


def test_output_without_the_end_of_a_line_is_not_held_back_without_a_limit(monkeypatch):
    stream = SlowStream()
    stream.may_write.set()
    monkeypatch.setattr(sys, "stderr", stream)
    reader, writer = os.pipe()
    thread = Thread(target=_forward_output, args=(os.fdopen(reader, "rb"),), daemon=True)
    thread.start()
    with os.fdopen(writer, "wb", buffering=0) as printed:
        printed.write(b"\r50 %" * LONGEST_LINE)
        assert stream.writes.wait(timeout=60), "it waits for the end of a line"
    thread.join()
    assert stream.text == "\r50 %" * LONGEST_LINE


FULL = BrokenStream(OSError(errno.ENOSPC, "No space left on device"))
CLOSED_WINDOW = BrokenStream(RuntimeError("the window was closed"))


@pytest.mark.parametrize("stream", [FULL, CLOSED_WINDOW, None], ids=["full disk", "closed window", "no stream"])
def test_a_child_can_still_print_when_its_output_cannot_be_written(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    process, ours, theirs = piped("seq", "30000")  # more than two pipes hold
    theirs.close()
    child = Child(0, process, ours, None)
    assert process.wait(timeout=60) == 0
    child.kill()


def modules_of_children() -> set[str]:
    """Return the modules that the children of this process were started to run, each in a new Python."""
    found = set()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):  # it has ended
                command = Path(f"/proc/{pid}/cmdline").read_text()
                found.update(re.findall(r"run_child\('offbeat\.runtime\.(.+?)'\)", command))
    return found


PROCESSES: dict[str, Any] = {"runtime": "processes", "inference": "worker", "devices": ("cpu", "cpu"), "shards": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.usefixtures("fresh_children")
@pytest.mark.parametrize(
    ("layout", "modules"),
    [
        (
            {**PROCESSES, "actors": 1, "eval_every": 128, "eval_episodes": 1},
            {
                *("actor_process", "inference.worker_process", "learners.learner_process"),
                "evaluation.evaluator_process",
            },
        ),
        *thorough(({"runtime": "hogwild", "workers": 1}, {"hogwild.worker_process"})),
    ],
    ids=["processes", "hogwild"],
)
def test_each_process_of_a_run_begins_as_a_new_python(tmp_path, layout, modules):
    seen: set[str] = set()
    run = small_run(tmp_path / "run", steps=256, callbacks=[lambda _: seen.update(modules_of_children())], **layout)
    assert (run.state, run.metrics["actor_restarts"]) == ("finished", 0)
    assert seen == modules


def test_a_search_path_with_an_entry_that_is_no_text_is_that_of_the_processes_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])  # a `Path`, which Python ignores
    assert small_run(tmp_path / "run", steps=128, runtime="processes").state == "finished"
