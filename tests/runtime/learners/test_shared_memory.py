"""The collective over shared memory, with a thread for each learner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import pytest
import torch
from tests.support.collectives import PATIENCE_S, together
from torch import Tensor

from offbeat.core.errors import Closed, RunFailed
from offbeat.memory.arena import private_arena
from offbeat.metrics.timings import EXCHANGE, Timings
from offbeat.runtime.board import Bell
from offbeat.runtime.learners import board as learners_board
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.shared_memory import SharedMemoryCollective, shards_of


@contextmanager
def sides(learners: int, shards: int) -> Iterator[tuple[LearnersBoard, list[SharedMemoryCollective]]]:
    """Yield the board of some learners, and each learner's side of their collective."""
    board = LearnersBoard(private_arena(learners_board_slabs(learners)), learners)
    bells = [Bell.make() for _ in range(learners)]
    deadline = time.monotonic() + PATIENCE_S

    def check() -> None:
        if board.closed[0]:
            raise Closed
        if time.monotonic() > deadline:
            raise TimeoutError("a learner waits for another one that does not come")

    yield (
        board,
        [SharedMemoryCollective(board, rank, shards, bells, check, Timings()) for rank in range(learners)],
    )
    for bell in bells:
        bell.close()


def drawn(number: int, shards: int) -> Tensor:
    """Return the rows of all shards in one exchange: their length and dtype depend on its number."""
    dtypes = torch.float32, torch.float64, torch.int64, torch.bool
    random = torch.Generator().manual_seed(number)
    return torch.randint(-9, 9, (shards, number * 37 % 50), generator=random).to(dtypes[number % 4])


@pytest.mark.parametrize(("learners", "shards"), [(2, 2), (2, 5), (3, 3), (3, 7)])
def test_each_learner_gathers_the_rows_of_all_shards_however_late_the_others_are(learners, shards):
    def exchange(side: SharedMemoryCollective, rank: int) -> None:
        random = Random(rank)
        for number in range(60):
            expected = drawn(number, shards)
            if random.random() < 0.2:
                time.sleep(random.random() * 0.003)
            gathered = side.gather(expected[side.own.start : side.own.stop])
            if random.random() < 0.2:
                time.sleep(random.random() * 0.003)
            assert gathered.dtype == expected.dtype
            assert torch.equal(gathered, expected)

    with sides(learners, shards) as (_, both):
        together([partial(exchange, side, rank) for rank, side in enumerate(both)])


@pytest.mark.parametrize(("columns", "exchanges"), [(83, 1), (84, 2), (1000, 13)])
def test_rows_are_exchanged_in_as_few_parts_as_fit_into_a_buffer(monkeypatch, columns, exchanges):
    monkeypatch.setattr(learners_board, "BUFFER_BYTES", 1000)
    expected = torch.arange(3.0 * columns).reshape(3, columns)
    with sides(2, 3) as (board, both):
        gathered = together([partial(side.gather, expected[side.own.start : side.own.stop]) for side in both])
        assert board.gathered.tolist() == [exchanges] * 2  # 83 columns of 3 rows of 4 bytes at a time
    assert torch.equal(gathered[0], expected)
    assert torch.equal(gathered[1], expected)


@pytest.mark.parametrize("learners", [2, 3, 4])
@pytest.mark.parametrize("more", [0, 1, 2, 3])
def test_shards_are_dealt_out_in_order_and_evenly(learners, more):
    ranges = [shards_of(rank, learners, learners + more) for rank in range(learners)]
    assert [shard for own in ranges for shard in own] == list(range(learners + more))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_a_learner_that_waits_ends_when_the_run_does():
    with sides(2, 2) as (board, both):

        def wait() -> None:
            both[1].gather(torch.zeros(1, 3))

        def close() -> None:
            while not board.gathered[1]:
                time.sleep(0.001)
            board.closed[0] = 1

        with pytest.raises(Closed):
            together([close, wait])


def test_learners_that_exchange_rows_of_different_sizes_fail_and_say_so():
    with sides(2, 2) as (_, both), pytest.raises(RunFailed, match=r"different sizes \(12, 16 bytes in exchange 1\)"):
        together([partial(side.gather, torch.zeros(1, 3 + rank)) for rank, side in enumerate(both)])


def test_the_time_of_an_exchange_includes_the_wait_for_the_others():
    with sides(2, 2) as (board, both):

        def early() -> None:
            both[0].gather(torch.zeros(1, 3))

        def late() -> None:
            while not board.gathered[0]:
                time.sleep(0.001)
            time.sleep(0.1)
            both[1].gather(torch.zeros(1, 3))

        together([early, late])
        assert both[0]._timings.seconds[EXCHANGE] >= 0.1
