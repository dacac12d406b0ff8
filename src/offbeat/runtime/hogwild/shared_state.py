"""The shared state of a lock-free run: what its workers share, on an arena of anonymous memory, and with no lock on it.

- **What is learned**: parameters, the optimizers' moments, slow copies, temperature, adapted rates. On a GPU it lies
  not in the arena, but in a buffer of the GPU's memory (device_buffer.py). All workers write it, each element by a
  plain store. A reader may see one update's work on some elements and not yet on others; that is Hogwild (Niu et al.
  2011, arXiv:1106.5730), and all that it gives up.
- **Statistics**: an accumulator for each worker, merged when they are read. Welford's sums, written by several, would
  go wrong for good.
- **The board**: counters, each with one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Array, Tree
from offbeat.memory.records import F64, Records, record_slabs
from offbeat.models.collective import ALONE, Collective
from offbeat.models.normalize import RunningStatistics
from offbeat.models.storage import PrivateStorage
from offbeat.runtime import board
from offbeat.runtime.saved_state import WorkerProgress

Arrays = dict[str, Any]
"""All that is shared, by name: NumPy arrays; but tensors, what is learned where that lies in a buffer of a GPU."""
LEARNED = "learned/"
STATISTICS = "statistics/"
NOT_BEGUN = -2
"""The limit before the first: what workers report of a pause there is never taken for a pause at another."""


# --- what is learned ----------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """One shared array, as plain data."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class SharedStateShape:
    """What is shared, as plain data, from which every process lays out the same arrays."""

    workers: int
    learned: tuple[Shape, ...]
    statistics: tuple[tuple[str, int], ...]
    """Name and size."""
    separate: bool
    """Whether each worker differentiates on a copy (hogwild = synced)."""
    share_moments: bool
    """Whether the optimizers' moments are among what is learned (hogwild_moments = shared)."""
    apart: bool
    """Whether what is learned lies in a buffer of a GPU, not in the arena."""

    @classmethod
    def of(
        cls, made: PrivateStorage, *, workers: int, separate: bool, share_moments: bool, apart: bool = False
    ) -> SharedStateShape:
        """Return what there is to share of an algorithm, and of its optimizers, that were made on `made`."""
        tensors = {**made.registered, **(made.moments if share_moments else {})}
        learned = tuple(
            Shape(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in tensors.items()
        )
        return cls(workers, learned, tuple(made.sizes.items()), separate, share_moments, apart)

    def learned_slabs(self) -> list[Slab]:
        """Return what is learned, wherever it lies."""
        return [(LEARNED + name, shape, dtype) for name, shape, dtype in self.learned]

    def slabs(self) -> list[Slab]:
        """Return what the arena of the shared state consists of."""
        return [
            *([] if self.apart else self.learned_slabs()),
            *(
                slab
                for name, size in self.statistics
                for slab in record_slabs(STATISTICS + name, self.workers, 1 + 2 * size)
            ),
            *board_slabs(self.workers),
        ]


class SharedStorage:
    """A storage whose tensors lie in the shared state; what is not shared lies in this process."""

    shared = True

    def __init__(self, shape: SharedStateShape, arrays: Arrays, worker: int | None = None) -> None:
        """Address what is shared.

        Args:
            shape: what is shared.
            arrays: of the arena, and the tensors of the buffer, where there is one.
            worker: whose storage it is; None for one that only looks on.
        """
        self.separate = shape.separate and worker is not None
        self._shape, self._arrays, self._worker = shape, arrays, worker
        self._shared = {name for name, _, _ in shape.learned}

    def register(self, name: str, initial: Tensor) -> Tensor:
        return self._tensor(name).view(initial.shape)

    def _tensor(self, name: str) -> Tensor:
        return torch.as_tensor(self._arrays[LEARNED + name])  # the very memory, of an array or of a tensor

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        return self.register(name, initial) if name in self._shared else initial

    def statistics(self, name: str, size: int) -> RunningStatistics:
        records = Records(STATISTICS + name, self._arrays)
        return SharedStatistics(size, records, self._shape.workers, self._worker)

    def initialize_statistics(self, states: Mapping[str, Any]) -> None:
        """Let the first worker begin with these statistics, by name, as `RunningStatistics.state` returns them."""
        for name, _ in self._shape.statistics:
            Records(STATISTICS + name, self._arrays).write(0, _packed(**states[name]))

    def records(self) -> Tree:
        """Return every worker's share of the statistics, [workers, 1 + 2 size] by name."""
        workers = range(self._shape.workers)
        return {
            name: np.stack([Records(STATISTICS + name, self._arrays).read(worker) for worker in workers])
            for name, _ in self._shape.statistics
        }

    def load_records(self, records: Mapping[str, Array]) -> None:
        """Take over what `records` returned, before any worker is there."""
        for name, shares in records.items():
            for worker, share in enumerate(shares):
                Records(STATISTICS + name, self._arrays).write(worker, share)

    def learned(self) -> Tree:
        """Return all that is shared, by name: views, or copies of what lies on a GPU."""
        return {name: self._tensor(name).cpu().numpy() for name in sorted(self._shared)}

    def load(self, learned: Mapping[str, Array]) -> None:
        """Take over what `learned` returned."""
        for name in self._shared:
            self._tensor(name).copy_(torch.tensor(learned[name]))


def write_initial(arrays: Arrays, made: PrivateStorage) -> None:
    """Let what is shared begin as it was made."""
    for name, tensor in {**made.registered, **made.moments}.items():
        if LEARNED + name in arrays:
            torch.as_tensor(arrays[LEARNED + name]).copy_(tensor.detach())


class SharedStatistics(RunningStatistics):
    """Running statistics of all workers together. Each adds to its own alone, and they are merged when read."""

    def __init__(self, size: int, records: Records, workers: int, own: int | None) -> None:
        """Begin where the worker's last record stands: one that is started again goes on with it."""
        super().__init__(size)
        self._size, self._records, self._workers, self._own = size, records, workers, own
        if own is not None and records.written(own):
            self.count, self.mean, self.squares = self._unpacked(records.read(own))

    def update(self, rows: NDArray[Any], collective: Collective = ALONE) -> None:
        super().update(rows, collective)
        self._publish()

    def published(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self._merged().published()

    def state(self) -> dict[str, Any]:
        """Return the worker's own share; of one that only looks on, the whole."""
        return super().state() if self._own is not None else self._merged().state()

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a worker's own share."""
        super().restore(state)
        self._publish()

    def _publish(self) -> None:
        if self._own is not None:
            self._records.write(self._own, _packed(self.count, self.mean, self.squares))

    def _merged(self) -> RunningStatistics:
        whole = RunningStatistics(self._size)
        for worker in range(self._workers):
            count, mean, squares = self._unpacked(self._records.read(worker))
            if count:
                whole.merge(count, mean, squares)
        return whole

    def _unpacked(self, record: F64) -> tuple[float, F64, F64]:
        """Return count, mean and squares of a record."""
        return float(record[0]), record[1 : 1 + self._size], record[1 + self._size :]


def _packed(count: float, mean: Array, squares: Array) -> NDArray[np.float64]:
    """Return statistics as one record."""
    return np.concatenate([[count], mean, squares])


# --- the board ----------------------------------------------------------------------------------------------


def board_slabs(workers: int) -> list[Slab]:
    """Return what the board's arena consists of: every counter on a cache line of its own."""
    return [
        *board.board_slabs(workers),
        ("board/limit", (board.LINE,), "int64"),
        ("board/updates", (workers, board.LINE), "int64"),
        *record_slabs("board/done", workers, len(WorkerProgress._fields)),
    ]


class WorkersBoard(board.Board):
    """Counters of lock-free workers."""

    def __init__(self, arrays: Tree, workers: int) -> None:
        """Address the arrays of an arena that holds `board_slabs`."""
        super().__init__(arrays, workers)
        self.limit = arrays["board/limit"]
        """No worker begins a learning step while all have taken in so many env steps together, or more. Written by
        the training loop, like `closed`."""
        self.updates = arrays["board/updates"]
        """[W, :2]: each worker's updates, and those of them that were refused. Written by that worker."""
        self._done = Records("board/done", arrays)

    def reset(self) -> None:
        """Before any worker has started: let none begin a learning step."""
        self.closed[0], self.limit[0] = 0, NOT_BEGUN

    def progress_of(self, worker: int) -> WorkerProgress:
        """Return what a worker has done."""
        return WorkerProgress(*map(int, self._done.read(worker)))

    def finish(self, worker: int, done: WorkerProgress) -> None:
        """Let a worker have done so much, all of it at one moment."""
        self._done.write(worker, np.array(done, np.float64))

    @property
    def env_steps(self) -> int:
        """Env steps that all workers have taken in."""
        return sum(self.progress_of(worker).env_steps for worker in range(self.workers))

    @property
    def next(self) -> Sequence[NDArray[np.int64]]:
        """Each worker's first learning step that is not finished."""
        return [np.array([self.progress_of(worker).learning_steps]) for worker in range(self.workers)]


class WorkerUpdateCounter:
    """A worker's view of everybody's updates."""

    def __init__(
        self, counters: WorkersBoard, worker: int, *, separate: bool, renew: Callable[[], None] = lambda: None
    ) -> None:
        """Count for a worker; `renew` sets a new deadline for it: each update is a piece of work of its own."""
        self.separate, self._renew = separate, renew
        self._updates, self._own = counters.updates[:, 0], counters.updates[worker]

    def others(self) -> int:
        """Return how many updates the others have made."""
        return int(self._updates.sum()) - int(self._own[0])

    def count(self, *, refused: bool) -> None:
        """Count an update of this worker."""
        self._own[0] += 1
        self._own[1] += refused
        self._renew()
