"""The board of a lock-free run."""

from __future__ import annotations

from offbeat.memory.arena import private_arena
from offbeat.metrics.counters import WorkerCounters
from offbeat.runtime.hogwild.board import WorkersBoard, workers_board_slabs


def test_the_board_sums_the_counters_of_all_workers():
    board = WorkersBoard(private_arena(workers_board_slabs(3)), 3)
    assert board.env_steps == 0
    assert board.counters_of(1) == WorkerCounters()
    board.set_counters(0, WorkerCounters(3, 30, 1, 29, 7))
    board.set_counters(2, WorkerCounters(5, 2**40, 0, 2**40, 2**39))
    assert board.env_steps == 30 + 2**40
    assert [int(step[0]) for step in board.next] == [3, 0, 5]
    assert board.counters_of(0) == WorkerCounters(3, 30, 1, 29, 7)
