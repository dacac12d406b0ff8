"""How long a thread has waited for a core."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.runs import run_python

TWO_ON_ONE_CORE = """
import os, time
from offbeat.core.threads import waited_for_core_s
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
