"""Which signals end a command; each is in a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.runs import CommandResult, run_python

IGNORED = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
"""As in a process that a service manager or a script has started in this way."""
INSTEAD = "from offbeat.cli import main as module; module.run = run"
"""Runs the function `run` as the command."""


def lines_run(folder: Path, *lines: str) -> CommandResult:
    """Run lines of code in a process of its own."""
    return run_python("\n".join(lines), folder=folder)


def test_a_signal_that_is_ignored_when_a_command_starts_stays_ignored(tmp_path):
    run = "def run(_): signal.raise_signal(signal.SIGTERM); return 7"
    main = "from offbeat.cli.entry import main; main()"
    said = lines_run(tmp_path, IGNORED, run, INSTEAD, main)
    assert (said.code, said.err) == (7, "")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_is_not_ignored_ends_a_command(tmp_path, name):
    run = f"import signal\ndef run(_): signal.raise_signal(signal.{name}); return 7"
    main = "from offbeat.cli.entry import main; main()"
    said = lines_run(tmp_path, run, INSTEAD, main)
    assert (said.code, said.err) == (130, "offbeat: interrupted\n")


def test_a_session_ends_with_its_parent_also_if_it_was_started_with_its_signal_ignored(tmp_path):
    pipe = "import os, time; reader, writer = os.pipe(); os.dup2(reader, 0)"
    run = "def run(_): os.close(writer); time.sleep(60); return 7"
    session = "from offbeat.cli.entry import session; session()"
    said = lines_run(tmp_path, IGNORED, pipe, run, INSTEAD, session)
    assert (said.code, said.err) == (130, "offbeat: interrupted\n")


def test_a_session_that_hangs_in_a_library_is_killed_some_time_after_its_parent_has_ended(tmp_path):
    pipe = "import os, threading; reader, writer = os.pipe(); os.dup2(reader, 0)"
    deadlock = "import ctypes; lock = ctypes.CDLL(None).pthread_mutex_lock; mutex = ctypes.create_string_buffer(64)"
    run = "def run(_): threading.Timer(0.5, os.close, [writer]).start(); lock(mutex); lock(mutex)"
    session = "from offbeat.cli import entry; entry.SESSION_END_S = 0.1; entry.session()"
    said = lines_run(tmp_path, pipe, deadlock, run, INSTEAD, session)
    assert said.code == -signal.SIGKILL
