"""Threads: how long they have waited for a core, those of OpenMP do not spin, and BLAS has written its memory."""

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


FAULTS = """
import resource, sys
import numpy as np
from offbeat.core.process.threads import set_thread_count
from offbeat.fastpath.two_threads import TwoThreadExecutor
set_thread_count(1)
executor = TwoThreadExecutor(int(sys.argv[1]))
x, outs = np.ones((256, 256), np.float32), np.ones((2, 256, 256), np.float32)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def multiply(index):
    return lambda: np.matmul(x, x, out=outs[index])
before = faults()
for _ in range(20):
    executor.run((multiply(0), multiply(1)))
print(faults() - before)
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_blas_has_written_its_memory_before_the_first_product_of_a_wide_layer(threads: str, tmp_path: Path) -> None:
    # Each page that is written for the first time is a fault. A product of this size writes more than 100 pages.
    assert int(run_python(FAULTS, threads, folder=tmp_path).out) < 50


MANY = """
from threading import Thread
from offbeat.core.process import threads
started = []
def start_thread(thread):
    started.append(thread)
    thread.start()
threads.start_thread = start_thread
threads.write_blas_memory(threads=1000)
print(len(started) + 1, 2 * threads.usable_cores())
"""


def test_blas_memory_is_written_by_few_threads_for_a_run_with_very_many(tmp_path: Path) -> None:
    written, most = run_python(MANY, folder=tmp_path).out.split()
    assert written == most
