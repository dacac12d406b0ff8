"""Whatever a test process has started ends with it, so that no process of a killed test keeps pytest waiting."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="survivors are ended on Linux only")

KILLED = """
import os, signal, sys, time
from tests.support import survivors
survivors.mark_and_watch()
{start}
os.kill(os.getpid(), signal.SIGKILL)
"""
FORK = """
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
"""
PROGRAM = """
import subprocess
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
"""


@pytest.mark.parametrize("start", [FORK, PROGRAM], ids=["forks", "programs"])
def test_what_a_killed_test_process_has_started_ends(start: str) -> None:
    code = KILLED.format(start=start)
    killed = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    # The output ends only when the last process that holds it has ended.
    output, _ = killed.communicate(timeout=60)
    assert output == b""
