from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from offbeat.metrics import process_memory
from offbeat.metrics.process_memory import ProcessMemory, resident_mb

SLEEPER = "import sys; sys.stdout.write('here'); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(4)
    yield process
    process.kill()
    process.communicate()


def test_the_memory_of_this_process_grows_by_the_size_of_a_new_array():
    before = resident_mb(os.getpid())
    kept = np.frombuffer(mmap.mmap(-1, 200_000_000), np.uint8)  # not from memory that this process has kept
    kept[:] = 1
    after = resident_mb(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(kept.nbytes / 1e6, rel=0.1)


def test_memory_of_children_is_reported_as_sum_as_maximum_and_for_each(child):
    memory = ProcessMemory()
    memory.watch("actor", {0: child.pid, 1: os.getpid()})
    read = memory.read()
    each = [read["memory/actor-0_mb"], read["memory/actor-1_mb"]]
    assert None not in each
    assert read["memory_children_mb"] == pytest.approx(sum(value or 0 for value in each), rel=0.01)
    assert read["memory_child_max_mb"] == max(value or 0 for value in each)


def test_memory_of_an_ended_child_and_the_sum_of_no_children_are_none(child):
    child.kill()
    child.wait()
    memory = ProcessMemory()
    memory.watch("actor", {0: child.pid})
    assert memory.read()["memory/actor-0_mb"] is None
    assert memory.read()["memory_children_mb"] is None
    assert ProcessMemory().read()["memory_child_max_mb"] is None


def test_watching_new_children_replaces_the_former_ones():
    memory = ProcessMemory()
    memory.watch("actor", {0: os.getpid(), 1: os.getpid()})
    memory.watch("actor", {0: os.getpid()})
    assert [name for name in memory.read() if name.startswith(process_memory.PREFIX)] == ["memory/actor-0_mb"]
