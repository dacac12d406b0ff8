from __future__ import annotations

import subprocess
import sys

HANGS_AT_EXIT = """
import atexit, time
from offbeat.core.process import process_exit
process_exit.EXIT_S = 0.2
atexit.register(time.sleep, 600)
process_exit.exit_process(7)
"""


def test_a_process_whose_exit_handler_hangs_ends_with_its_exit_code():
    ended = subprocess.run([sys.executable, "-c", HANGS_AT_EXIT], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert b"an exit handler has not ended within 0.2 s" in ended.stderr
