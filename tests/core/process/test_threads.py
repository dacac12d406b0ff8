"""Threads: how long they have waited for a core, and those of OpenMP do not spin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import run_python, small_run

TWO_ON_ONE_CORE = """
import os, time
from offbeat.core.process.threads import waited_for_core_s
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
parent, other = os.getpid(), os.fork()
while time.thread_time() < 0.2 or other == 0 and os.getppid() == parent:
    pass
waited_s = waited_for_core_s()
os.kill(other, 9)
os.waitpid(other, 0)
print(waited_s > 0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts it")
def test_the_time_in_which_a_thread_waits_for_a_core_is_counted(tmp_path: Path) -> None:
    assert run_python(TWO_ON_ONE_CORE, folder=tmp_path).out.strip() == "True"


ORDER = """
import sys
import offbeat
from offbeat.config import registry
class Called(Exception):
    pass
def note():
    assert "torch" not in sys.modules
    raise Called
registry.forbid_spinning = note
for call in (
    lambda: offbeat.train("ppo", "CartPole-v1", learning_rate=-1),
    lambda: offbeat.resume(sys.argv[1], steps=1),
):
    try:
        call()
    except Called:
        continue
    sys.exit("it was not called")
"""


def test_openmp_spinning_is_disabled_before_torch_is_imported(tmp_path: Path) -> None:
    small_run(tmp_path / "run", steps=64)
    command = [sys.executable, "-c", ORDER, str(tmp_path / "run")]
    assert subprocess.run(command, check=False).returncode == 0
