from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from offbeat.core.process.allocator import keep_freed_memory

GLIBC = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
FAULTS = """
import resource, sys
import numpy as np
from offbeat.core.process.allocator import keep_freed_memory

if sys.argv[1] == "keeps":
    print(keep_freed_memory())
for _ in range(2):  # memory that is new, and then the same again
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.full(16_000_000, 1.0, np.float32)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 16_000_000 * 4 // os.sysconf("SC_PAGE_SIZE")


def faults(how: str) -> list[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", FAULTS, how]
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not GLIBC, reason="another C library than glibc is left as it is")
def test_freed_memory_is_reused_without_new_page_faults():
    kept, new, again = faults("keeps")
    assert kept == "True"
    assert int(new) < 1.5 * PAGES  # ten times the same pages
    assert int(again) < PAGES / 10
    assert int(faults("as it is")[1]) > 2 * int(new)  # so the trial can tell


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_malloc_environment_variables_of_the_user_are_not_overridden(monkeypatch, name):
    monkeypatch.setenv(name, "131072")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("malloc was set"))
    assert not keep_freed_memory()


KEPT = """
import numpy as np
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.memory.arena import usable_memory

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

keep_freed_memory()
np.full(20_000_000, 1.0, np.float32)
before = resident()
usable_memory()
print(before - resident())
"""


@pytest.mark.skipif(not GLIBC, reason="another C library than glibc is left as it is")
def test_memory_freed_by_an_earlier_run_counts_as_available():
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 60_000  # of 80 MB
