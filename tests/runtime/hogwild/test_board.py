"""The board of a lock-free run: the counters of the workers and of their updates."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference.least_squares import LeastSquares, Problem

from offbeat.algorithms.base import LossResult, Minibatch
from offbeat.memory.arena import private_arena
from offbeat.metrics.counters import WorkerCounters
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.runtime.hogwild.board import WorkersBoard, WorkerUpdateCounter, workers_board_slabs
from offbeat.runtime.hogwild.shared_state import SharedStateShape, SharedStorage, write_initial
from offbeat.workers.updates import UpdateMetrics, Updates


def test_the_board_sums_the_counters_of_all_workers():
    board = WorkersBoard(private_arena(workers_board_slabs(3)), 3)
    assert board.env_steps == 0
    assert board.counters_of(1) == WorkerCounters()
    board.set_counters(0, WorkerCounters(3, 30, 1, 29, 7))
    board.set_counters(2, WorkerCounters(5, 2**40, 0, 2**40, 2**39))
    assert board.env_steps == 30 + 2**40
    assert [int(step[0]) for step in board.next] == [3, 0, 5]
    assert board.counters_of(0) == WorkerCounters(3, 30, 1, 29, 7)


# --- the counter of a worker's updates ----------------------------------------------------------------------


class Interrupted(LeastSquares):
    """While its loss is computed, the other workers make the updates that `meanwhile` counts."""

    def __init__(self, storage: Storage, board: WorkersBoard) -> None:
        super().__init__(storage)
        self._board, self.meanwhile = board, [0, 0]

    def loss(self, minibatch: Minibatch) -> LossResult:
        self._board.updates[1:, 0] += self.meanwhile
        return super().loss(minibatch)


def interrupted(*, separate: bool) -> tuple[Interrupted, Updates, WorkersBoard]:
    made = PrivateStorage()
    Updates(LeastSquares(made).as_algorithm())
    shape = SharedStateShape.of(made, workers=3, separate=separate, share_moments=True)
    arrays = private_arena(shape.slabs())
    write_initial(arrays, made)
    board, storage = WorkersBoard(arrays, 3), SharedStorage(shape, arrays, 0)
    algorithm = Interrupted(storage, board)
    return algorithm, Updates(algorithm.as_algorithm(), WorkerUpdateCounter(board, 0)), board


def staleness_of(updates: Updates, rate: float = 0.1) -> float:
    metrics = UpdateMetrics()
    updates.apply(0, Problem().minibatch((0,)), {"line": rate}, metrics)
    summary = metrics.summary()
    assert summary["gradient_staleness_min"] == summary["gradient_staleness_mean"] == summary["gradient_staleness_max"]
    return summary["gradient_staleness_max"]


@pytest.mark.parametrize("separate", [False, True])
def test_gradient_staleness_counts_updates_of_others_between_read_and_write(separate):
    algorithm, updates, board = interrupted(separate=separate)
    updates.pull()
    assert staleness_of(updates) == 0
    for meanwhile in ([1, 0], [0, 4], [2, 3]):
        algorithm.meanwhile = meanwhile
        assert staleness_of(updates) == sum(meanwhile)
    assert board.updates[:, 0].tolist() == [4, 3, 7]
    assert [WorkerUpdateCounter(board, worker).others() for worker in range(3)] == [10, 11, 7]
    algorithm.meanwhile = [0, 0]
    board.updates[2, 0] += 5  # between two updates
    assert staleness_of(updates) == (5 if separate else 0), "a copy was read before them"
    assert staleness_of(updates) == 0, "and is renewed by its own update"
    board.updates[2, 0] += 5
    updates.pull()
    assert staleness_of(updates) == 0


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("separate", [False, True])
def test_a_refused_update_is_counted_as_an_update_and_as_refused(separate):
    algorithm, updates, board = interrupted(separate=separate)
    metrics = UpdateMetrics()
    for number, spoilt in enumerate([False, True, True, False]):
        minibatch = dict(Problem().minibatch((0,)))
        minibatch["y"] = minibatch["y"] * (np.nan if spoilt else 1)
        updates.apply(number, minibatch, {"line": 0.1}, metrics)
    assert board.updates[0, :2].tolist() == [4, 2]
    assert np.isfinite(algorithm.flat.master.numpy()).all()
