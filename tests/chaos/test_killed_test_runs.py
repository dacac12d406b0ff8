"""Test processes that are killed or hang leave nothing running behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import OFFBEAT, Started, is_alive, small_arguments, wait_until
from tests.support.thorough import thorough
from tests.support.warm import REPOSITORY

LAYOUT: dict[str, Any] = {"runtime": "processes", "actors": 2, "envs_per_actor": 1, "steps": 10**9}
ARGUMENTS = small_arguments(Path("run"), "curious/Rude-v0", imports=("tests.sample_envs.curious_envs",), **LAYOUT)
TRAINS_FOR_EVER = f"""
import json
import os
import time
from pathlib import Path
from tests.support.warm import warm_python

def test_that_trains_for_ever():
    with Path("said").open("w") as said:
        environment = dict(os.environ, PYTHONPATH={str(REPOSITORY)!r} + os.pathsep + os.environ["PYTHONPATH"])
        started = warm_python().start({OFFBEAT!r}, {ARGUMENTS!r}, Path(), environment, (said, said))
    left = Path("LEFT")
    while not left.exists() or len(left.read_text().split()) != 2:
        assert started.poll() is None, Path("said").read_text()
        time.sleep(0.01)
    processes = json.loads(Path("run/status.json").read_text())["processes"]
    actors = [process["pid"] for process in processes if process["role"] == "actor"]
    pids = [started.pid, *actors, *map(int, left.read_text().split())]
    Path("pids.writing").write_text(json.dumps({{"test_process": os.getpid(), "started": pids}}))
    Path("pids.writing").rename("pids.json")
    started.wait()
"""
HANGS = """
import time

def test_that_hangs():
    time.sleep(600)
"""


def start_pytest(folder: Path, test: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a test process on one test, in `folder`."""
    (folder / "test_one.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.Popen(
        [*command, "-c", str(REPOSITORY / "pyproject.toml"), *arguments, "test_one.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="marks are found in /proc")
@pytest.mark.parametrize(("processes", "killed"), [("0", "pytest"), *thorough(("1", "pytest"), ("1", "worker"))])
def test_runs_started_by_a_test_die_when_the_test_process_is_killed(tmp_path, processes, killed):
    runner = start_pytest(tmp_path, TRAINS_FOR_EVER, "--numprocesses", processes, "--max-worker-restart", "0")
    wait_until(lambda: (tmp_path / "pids.json").exists() or runner.poll() is not None)
    assert runner.poll() is None, runner.communicate()
    pids = json.loads((tmp_path / "pids.json").read_text())
    assert len(pids["started"]) >= 1 + 2 + 2  # the run, its actors, and what their envs have started
    assert all(map(is_alive, pids["started"]))

    os.kill(runner.pid if killed == "pytest" else pids["test_process"], signal.SIGKILL)
    runner.communicate()
    wait_until(lambda: not any(map(is_alive, [*pids["started"], pids["test_process"]])), seconds=10.0)


@pytest.fixture(scope="module")
def never_ended(tmp_path_factory) -> Started:
    return Started([], tmp_path_factory.mktemp("started"), "import time; time.sleep(600)")


@pytest.mark.parametrize("runs", [True, False], ids=["in the first test", "in the second"])
def test_a_process_that_a_test_does_not_end_is_killed_before_the_next_test(never_ended, runs):
    assert is_alive(never_ended.process.pid) == runs


def test_a_hanging_test_ends_its_process_with_a_stack_trace(tmp_path):
    runner = start_pytest(tmp_path, HANGS, "--numprocesses", "0", "-o", "faulthandler_timeout=0.5")
    said, _ = runner.communicate(timeout=60)
    assert runner.returncode == 1
    assert "Timeout" in said
    assert "in test_that_hangs" in said
