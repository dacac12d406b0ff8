from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import files_up_to
from tests.support.thorough import examples

from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slab
from offbeat.core.types import Array
from offbeat.memory import arena as arena_module
from offbeat.memory.arena import (
    ALIGNMENT,
    SharedArena,
    arena_bytes,
    private_arena,
    require_bytes,
    usable_memory,
)

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
dtypes = st.sampled_from(["float32", "int64", "bool", "uint8", "int32"])


def slabs_of(kinds: list[tuple[tuple[int, ...], str]]) -> list[Slab]:
    return [(f"array{i}", shape, dtype) for i, (shape, dtype) in enumerate(kinds)]


def bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


@examples(100)
@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=8))
def test_arrays_have_their_shape_and_dtype_are_zero_and_do_not_overlap(kinds):
    slabs = slabs_of(kinds)
    arrays = private_arena(slabs)
    assert [(name, array.shape, array.dtype.name) for name, array in arrays.items()] == slabs
    assert not any(array.any() for array in arrays.values())
    for number, array in enumerate(arrays.values(), start=1):
        bytes_of(array)[...] = number
    for number, array in enumerate(arrays.values(), start=1):
        assert (bytes_of(array) == number).all()


@examples(100)
@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=8))
def test_arrays_are_aligned_to_cache_lines(kinds):
    slabs = slabs_of(kinds)
    addresses = [array.__array_interface__["data"][0] for array in private_arena(slabs).values() if array.size]
    assert all((address - addresses[0]) % ALIGNMENT == 0 for address in addresses)
    assert arena_bytes(slabs) % ALIGNMENT == 0
    assert arena_bytes(slabs) >= sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds)


RESIDENT = """
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.memory.arena import private_arena

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

def grown(slabs=[("rows", (80_000_000,), "uint8")]):
    before = resident()
    arrays = private_arena(slabs)
    made = resident()
    arrays["rows"][:40_000_000] = 1
    written = resident()
    del arrays
    return made - before, written - before, resident() - before

keep_freed_memory()
for _ in range(2):
    print(*grown())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_private_arrays_occupy_memory_from_their_first_write_until_they_are_freed():
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():  # of the first arena, and of one after it
        made, written, freed = map(int, line.split())
        assert made < 8_000  # kB, of 80 MB
        assert 36_000 < written < 48_000
        assert freed < 8_000


def test_arrays_of_one_element_can_be_viewed_and_written():
    arrays = private_arena([("count", (), "int64"), ("flag", (1,), "bool")])
    arrays["count"][...] = 2**40
    assert int(arrays["count"]) == 2**40


# --- shared between processes -------------------------------------------------------------------------------

SLABS: list[Slab] = [("numbers", (3, 2), "float32"), ("flags", (5,), "bool"), ("counter", (1,), "int64")]
ADDS_ONE = """
import sys
from offbeat.memory.arena import attach
arrays = attach(int(sys.argv[1]), [("numbers", (3, 2), "float32"), ("flags", (5,), "bool"), ("counter", (1,), "int64")])
assert arrays["counter"][0] == 2**40, arrays
arrays["numbers"] += 1
arrays["flags"][::2] = True
arrays["counter"] += 1
"""


@pytest.fixture
def shared() -> Iterator[SharedArena]:
    arena = SharedArena(SLABS)
    yield arena
    arena.close()


def in_a_child(arena: SharedArena, code: str = ADDS_ONE) -> None:
    subprocess.run([sys.executable, "-c", code, str(arena.fd)], pass_fds=[arena.fd], check=True)


def test_parent_and_child_read_each_others_writes(shared):
    shared.arrays["numbers"][:] = np.arange(6).reshape(3, 2)
    shared.arrays["counter"][0] = 2**40
    in_a_child(shared)
    assert shared.arrays["numbers"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert shared.arrays["flags"].tolist() == [True, False, True, False, True]
    assert shared.arrays["counter"].tolist() == [2**40 + 1]


def test_a_child_started_later_maps_the_same_memory(shared):
    shared.arrays["counter"][0] = 2**40
    in_a_child(shared)
    shared.arrays["counter"] -= 1
    in_a_child(shared)
    assert (shared.arrays["numbers"] == 2).all()


def test_shared_arrays_are_zero_and_aligned_to_cache_lines(shared):
    assert not any(array.any() for array in shared.arrays.values())
    assert [array.__array_interface__["data"][0] % ALIGNMENT for array in shared.arrays.values()] == [0, 0, 0]


def test_private_arrays_are_aligned_to_cache_lines():
    for _ in range(8):  # wherever the block happens to lie
        arrays = private_arena(SLABS)
        assert [array.__array_interface__["data"][0] % ALIGNMENT for array in arrays.values()] == [0, 0, 0]


def test_two_arenas_share_no_memory(shared):
    other = SharedArena(SLABS)
    other.arrays["numbers"][:] = 7
    assert not shared.arrays["numbers"].any()
    other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_shared_memory_has_no_name_in_the_file_system():
    arena = SharedArena(SLABS)
    assert Path(f"/proc/self/fd/{arena.fd}").readlink().name.endswith("(deleted)")
    assert os.fstat(arena.fd).st_nlink == 0
    arena.close()


def test_without_memfd_the_temporary_file_is_unlinked(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    arena = SharedArena(SLABS)
    assert os.fstat(arena.fd).st_nlink == 0
    arena.arrays["counter"][0] = 2**40
    in_a_child(arena)
    assert arena.arrays["counter"][0] == 2**40 + 1
    arena.close()


def test_file_descriptors_are_inherited_only_by_children_that_are_given_them(shared):
    code = "import os, sys; sys.exit(os.path.exists(f'/proc/self/fd/{sys.argv[1]}'))"
    subprocess.run([sys.executable, "-c", code, str(shared.fd)], close_fds=False, check=True)


# --- memory that is not there -------------------------------------------------------------------------------


def test_arrays_larger_than_the_available_memory_are_refused_with_a_remedy():
    with pytest.raises(ConfigError) as refused:
        require_bytes(2**47, "the slots need", "type a smaller unroll_length")
    text = str(refused.value)
    assert re.match(r"the slots need 140,737\.5 GB, but only [\d,.]+ [GM]B of memory are free: type a smaller", text)


def test_arrays_that_exactly_fit_the_available_memory_are_accepted(monkeypatch):
    slabs: list[Slab] = [("rows", (1000,), "float32")]
    monkeypatch.setattr(arena_module, "usable_memory", lambda: arena_bytes(slabs))
    require_bytes(arena_bytes(slabs), "rows need", "type fewer")
    monkeypatch.setattr(arena_module, "usable_memory", lambda: arena_bytes(slabs) - 1)
    with pytest.raises(ConfigError, match=r"need 4,032 bytes, but only 4,031 bytes of memory are free: type fewer"):
        require_bytes(arena_bytes(slabs), "rows need", "type fewer")


def test_arrays_in_reference_cycles_are_freed_before_others_are_refused(monkeypatch):
    earlier: dict[str, Any] = {"arrays": private_arena(slabs := [("rows", (1000,), "float32")])}
    earlier["itself"], rows = earlier, weakref.ref(earlier["arrays"]["rows"])
    monkeypatch.setattr(arena_module, "usable_memory", lambda: 0 if rows() is not None else arena_bytes(slabs))
    del earlier
    require_bytes(arena_bytes(slabs), "rows need", "type fewer")


def test_no_array_is_refused_where_the_available_memory_is_unknown(monkeypatch):
    monkeypatch.setattr(arena_module, "usable_memory", lambda: None)
    require_bytes(2**47, "the slots need", "type a smaller unroll_length")


@pytest.fixture
def address_space_is_limited() -> Iterator[None]:
    """A process that can map about 100 MB more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10**8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("address_space_is_limited")
@pytest.mark.parametrize("arena", [private_arena, SharedArena])
def test_an_arena_that_the_limit_of_address_space_forbids_is_refused_with_a_remedy(arena):
    message = r"refuses 4\.0 GB of (shared )?memory for arrays \(Cannot allocate memory\): .* \(`ulimit -v`\)"
    with pytest.raises(ConfigError, match=message):
        arena([("rows", (4 * 10**9,), "uint8")])  # more than earlier tests can have left in this process


def test_a_shared_arena_that_the_limit_of_file_sizes_forbids_is_refused_with_a_remedy():
    message = r"refuses 200\.0 MB of shared memory for arrays \(File too large\): raise .* \(`ulimit -f`\)"
    with files_up_to(1000), pytest.raises(ConfigError, match=message):
        SharedArena([("rows", (2 * 10**8,), "uint8")])


MEMINFO = "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable: 5000 kB\n"


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("max", "0", 5000 * 1024), ("3000000", "1000000", 2_000_000), (str(2**40), "0", 5000 * 1024), ("10", "20", 0)],
)
def test_usable_memory_is_the_smaller_of_that_of_the_machine_and_the_container(
    tmp_path, monkeypatch, limit, used, free
):
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{int(used) + 700}\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 700\n")  # a cache that can be dropped
    (tmp_path / "meminfo").write_text(MEMINFO)
    files = {"/proc/meminfo": tmp_path / "meminfo"}
    monkeypatch.setattr(arena_module, "_CGROUP", tmp_path)
    monkeypatch.setattr(arena_module, "Path", lambda path: files.get(path, Path(path)))
    assert usable_memory() == free
