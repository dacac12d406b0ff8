"""Records are replaced as a whole, whoever reads meanwhile, and whenever the writer dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest
from tests.support.warm import popen

from offbeat.memory.arena import SharedArena, attach, private_arena
from offbeat.memory.records import Records, record_slabs

SIZE = 50_000
"""Numbers in a record: so many that writing one is not the work of a moment."""
NAME = "test/records"

WRITE_FOR_EVER = f"""
import sys
import numpy as np
from offbeat.memory.arena import attach
from offbeat.memory.records import Records, record_slabs

slabs = record_slabs({NAME!r}, 2, {SIZE})
records = Records({NAME!r}, attach(int(sys.argv[1]), slabs))
number = int(records.read(0)[0])
while True:
    number += 1
    records.write(0, np.full({SIZE}, number, np.float64))
"""
"""All numbers of a record are equal, and one more than those of the record before."""


@pytest.fixture
def arena() -> Iterator[SharedArena]:
    made = SharedArena(record_slabs(NAME, 2, SIZE))
    yield made
    made.close()


@contextmanager
def writing(arena: SharedArena) -> Iterator[subprocess.Popen[bytes]]:
    """Let another process write, from here on and until it is killed."""
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(arena.fd)]
    writer = popen(command, pass_fds=[arena.fd], env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        yield writer
    finally:
        writer.kill()
        writer.wait()


def wait_for(records: Records, least: float) -> None:
    deadline = time.monotonic() + 60
    while records.read(0)[0] < least:
        assert time.monotonic() < deadline, "nobody writes"
        time.sleep(0.001)


def test_concurrent_reads_are_never_torn_and_never_go_back(arena):
    records, newest, reads, changes = Records(NAME, arena.arrays), 0.0, 0, 0
    with writing(arena) as writer:
        while reads < 1000 or changes < 60:  # so that it was often at work while this process read
            record = records.read(0)
            assert (record == record[0]).all()
            assert record[0] >= newest
            assert writer.poll() is None
            reads, changes = reads + 1, changes + int(record[0] > newest)
            newest = record[0]


def test_the_last_record_is_complete_when_its_writer_is_killed(arena):
    records, random, before = Records(NAME, arena.arrays), Random(0), 0.0
    for _ in range(8):
        with writing(arena):
            wait_for(records, before + 1)
            time.sleep(random.uniform(0, 0.02))
        record = records.read(0)
        assert (record == record[0]).all()
        assert record[0] > before
        before = record[0]
        np.testing.assert_array_equal(Records(NAME, attach(arena.fd, arena.slabs)).read(0), record)


def test_a_writer_that_dies_during_a_write_leaves_the_previous_record(arena):
    records = Records(NAME, arena.arrays)
    for number in (1.0, 2.0, 3.0):
        records.write(0, np.full(SIZE, number))
    buffers = arena.arrays[f"{NAME}/buffers"]
    spare = next(place for place in range(2) if buffers[0, place, 0] != 3)
    buffers[0, spare, : SIZE // 2] = 4.0  # as far as it came
    assert (records.read(0) == 3).all()
    records.write(0, np.full(SIZE, 5.0))
    assert (records.read(0) == 5).all()


def test_a_read_is_a_copy_and_writers_are_independent():
    records = Records(NAME, private_arena(record_slabs(NAME, 2, 3)))
    assert [records.written(writer) for writer in range(2)] == [False, False]
    assert not records.read(1).any()
    records.write(1, np.array([1.0, 2.0, 3.0]))
    read = records.read(1)
    records.write(1, np.array([4.0, 5.0, 6.0]))
    records.write(1, np.array([7.0, 8.0, 9.0]))
    assert read.tolist() == [1, 2, 3]
    assert [records.written(writer) for writer in range(2)] == [False, True]
    assert not records.read(0).any()


def test_integers_are_exact_up_to_2_to_the_53():
    records = Records(NAME, private_arena(record_slabs(NAME, 1, 2)))
    for count in (2**31, 2**53 - 1, 2**53):
        records.write(0, np.array([count, count - 1], np.float64))
        assert [int(number) for number in records.read(0)] == [count, count - 1]
