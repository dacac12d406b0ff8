"""The board of a lock-free run: the limit that the training loop sets, and the counters of each worker."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree
from offbeat.memory.records import Records, record_slabs
from offbeat.metrics.counters import WorkerCounters
from offbeat.runtime.board import LINE, Board, board_slabs

NOT_STARTED = -2
"""The limit before the run sets its first one. No other limit is -2: those in env steps are not negative, and those
that stop workers at once are lower. So the report of a pause is never taken for that of another pause."""


def workers_board_slabs(workers: int) -> list[Slab]:
    """Return the arrays of the board."""
    return [
        *board_slabs(workers),
        ("board/limit", (LINE,), "int64"),
        ("board/updates", (workers, LINE), "int64"),
        *record_slabs("board/counters", workers, len(WorkerCounters._fields)),
    ]


class WorkersBoard(Board):
    """The board of lock-free workers."""

    def __init__(self, arrays: Tree, workers: int) -> None:
        """Make a board on the arrays of an arena with `workers_board_slabs`."""
        super().__init__(arrays, workers)
        self.limit = arrays["board/limit"]
        """Total env steps of all workers at which they pause: none starts a learning step at or above the limit.
        Written by the training loop, like `closed`."""
        self.updates = arrays["board/updates"]
        """[workers, :2]: number of updates of each worker, and of its refused updates. Written by that worker."""
        self._counters = Records("board/counters", arrays)

    def counters_of(self, worker: int) -> WorkerCounters:
        """Return the counters of a worker after its last finished learning step."""
        return WorkerCounters(*map(int, self._counters.read(worker)))

    def set_counters(self, worker: int, counters: WorkerCounters) -> None:
        """Set the counters of a worker; a reader sees all new ones or none. Then set `next`, for the supervisor."""
        self._counters.write(worker, np.array(counters, np.float64))
        self.next[worker][0] = counters.learning_steps

    @property
    def env_steps(self) -> int:
        """Total env steps that all workers have learned from."""
        return sum(self.counters_of(worker).env_steps for worker in range(self.workers))


class WorkerUpdateCounter:
    """Counts a worker's updates on the board, and reads those of the other workers."""

    def __init__(self, board: WorkersBoard, worker: int, renew: Callable[[], None] = lambda: None) -> None:
        """Count the updates of a worker; `renew` is called at each update, to set the worker's deadline."""
        self._renew = renew
        self._updates, self._own = board.updates[:, 0], board.updates[worker]

    def others(self) -> int:
        """Return the number of updates that the other workers have made."""
        return int(self._updates.sum()) - int(self._own[0])

    def count(self, *, refused: bool) -> None:
        """Count an update of this worker."""
        self._own[0] += 1
        self._own[1] += refused
        self._renew()
