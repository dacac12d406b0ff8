"""The shared state of a lock-free run: an arena of shared memory that all workers read and write without locks.

- **Learned tensors**: parameters, the optimizers' moments, target networks, temperature, adapted rates. On a GPU they
  are not in the arena but in a buffer in GPU memory (device_buffer.py). All workers write them, element by element. A
  reader may see an update in some elements and not yet in others: this is the approximation of Hogwild (Niu et al.
  2011, arXiv:1106.5730).
- **Running statistics**: one accumulator for each worker; they are merged when they are read. If several workers wrote
  to the same sums, an error would never disappear.
- **The board** (board.py): counters, each with one writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.core.memory_shape import Slab
from offbeat.core.types import F64, Array, Tree
from offbeat.memory.records import Records, record_slabs
from offbeat.models.normalize import RunningStatistics
from offbeat.models.storage import PrivateStorage
from offbeat.runtime.hogwild.board import workers_board_slabs

Arrays = dict[str, Any]
"""The shared state by name: NumPy arrays; on a GPU the learned tensors are torch tensors."""
LEARNED = "learned/"
STATISTICS = "statistics/"


@dataclass(frozen=True)
class SharedStateShape:
    """The shape of the shared state, as plain data, from which every process makes the same arrays."""

    workers: int
    learned: tuple[Slab, ...]
    statistics: tuple[tuple[str, int], ...]
    """Name and size of each running statistic."""
    separate: bool
    """Whether each worker computes gradients on its own copy of the parameters (hogwild = synced)."""
    share_moments: bool
    """Whether the optimizers' moments are shared (hogwild_moments = shared)."""
    in_device_buffer: bool
    """Whether the learned tensors are in a buffer in GPU memory instead of the arena."""

    @classmethod
    def of(
        cls,
        initial: PrivateStorage,
        *,
        workers: int,
        separate: bool,
        share_moments: bool,
        in_device_buffer: bool = False,
    ) -> SharedStateShape:
        """Return the shape of the shared state; `initial`: storage of one algorithm and its optimizers."""
        tensors = {**initial.registered, **(initial.moments if share_moments else {})}
        learned = tuple(
            (name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors.items()
        )
        return cls(workers, learned, tuple(initial.sizes.items()), separate, share_moments, in_device_buffer)

    def learned_slabs(self) -> list[Slab]:
        """Return the learned tensors, in the arena or in a device buffer."""
        return [(LEARNED + name, shape, dtype) for name, shape, dtype in self.learned]

    def slabs(self) -> list[Slab]:
        """Return the arrays in the arena of the shared state."""
        return [
            *([] if self.in_device_buffer else self.learned_slabs()),
            *(
                slab
                for name, size in self.statistics
                for slab in record_slabs(STATISTICS + name, self.workers, 1 + 2 * size)
            ),
            *workers_board_slabs(self.workers),
        ]


class SharedStorage:
    """A storage whose shared tensors are in the shared state; other tensors are private to this process."""

    shared = True

    def __init__(self, shape: SharedStateShape, arrays: Arrays, worker: int | None = None) -> None:
        """Make a storage on the shared state.

        Args:
            shape: shape of the shared state.
            arrays: the arrays of the arena and, if there is a device buffer, its tensors.
            worker: index of the worker that uses it; None: the training loop, which only reads.
        """
        self.separate = shape.separate and worker is not None
        self._shape, self._arrays, self._worker = shape, arrays, worker
        self._shared = {name for name, _, _ in shape.learned}
        self.registered: Mapping[str, Tensor] = {}
        """Empty: `learned` returns all tensors for a checkpoint."""

    def register(self, name: str, initial: Tensor) -> Tensor:
        return self._tensor(name).view(initial.shape)

    def _tensor(self, name: str) -> Tensor:
        return torch.as_tensor(self._arrays[LEARNED + name])  # shares the memory of an array or tensor

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        return self.register(name, initial) if name in self._shared else initial

    def statistics(self, name: str, size: int) -> RunningStatistics:
        records = Records(STATISTICS + name, self._arrays)
        return SharedStatistics(size, records, self._shape.workers, self._worker)

    def initialize_statistics(self, states: Mapping[str, Any]) -> None:
        """Set the first worker's statistics to these states, by name, as `RunningStatistics.state` returns them."""
        for name, _ in self._shape.statistics:
            Records(STATISTICS + name, self._arrays).write(0, _packed(**states[name]))

    def records(self) -> Tree:
        """Return the statistics of each worker, [workers, 1 + 2 size] by name."""
        workers = range(self._shape.workers)
        return {
            name: np.stack([Records(STATISTICS + name, self._arrays).read(worker) for worker in workers])
            for name, _ in self._shape.statistics
        }

    def load_records(self, records: Mapping[str, Array]) -> None:
        """Restore what `records` returned, before workers start."""
        for name, of_workers in records.items():
            for worker, record in enumerate(of_workers):
                Records(STATISTICS + name, self._arrays).write(worker, record)

    def learned(self) -> Tree:
        """Return the learned tensors by name: views; copies if they are on a GPU."""
        return {name: self._tensor(name).cpu().numpy() for name in sorted(self._shared)}

    def load(self, learned: Mapping[str, Array]) -> None:
        """Restore what `learned` returned."""
        for name in self._shared:
            self._tensor(name).copy_(torch.tensor(learned[name]))


def write_initial(arrays: Arrays, initial: PrivateStorage) -> None:
    """Copy the initial values of the learned tensors into the shared state."""
    for name, tensor in {**initial.registered, **initial.moments}.items():
        if LEARNED + name in arrays:
            torch.as_tensor(arrays[LEARNED + name]).copy_(tensor.detach())


class SharedStatistics(RunningStatistics):
    """Running statistics of all workers. Each worker updates only its own; they are merged when they are read."""

    def __init__(self, size: int, records: Records, workers: int, own: int | None) -> None:
        """Make the statistics of worker `own`, from its last record if there is one; None: only read."""
        super().__init__(size)
        self._size, self._records, self._workers, self._own = size, records, workers, own
        if own is not None and records.written(own):
            self.count, self.mean, self.squares = self._unpacked(records.read(own))

    def update(self, rows: NDArray[Any]) -> None:
        super().update(rows)
        self._publish()

    def published(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self._merged().published()

    def state(self) -> dict[str, Any]:
        """Return the worker's own statistics; for a reader, the merged ones."""
        return super().state() if self._own is not None else self._merged().state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the worker's own statistics."""
        super().restore(state)
        self._publish()

    def _publish(self) -> None:
        if self._own is not None:
            self._records.write(self._own, _packed(self.count, self.mean, self.squares))

    def _merged(self) -> RunningStatistics:
        merged = RunningStatistics(self._size)
        for worker in range(self._workers):
            count, mean, squares = self._unpacked(self._records.read(worker))
            if count:
                merged.merge(count, mean, squares)
        return merged

    def _unpacked(self, record: F64) -> tuple[float, F64, F64]:
        """Return count, mean and squares of a record."""
        return float(record[0]), record[1 : 1 + self._size], record[1 + self._size :]


def _packed(count: float, mean: Array, squares: Array) -> NDArray[np.float64]:
    """Return statistics as one record."""
    return np.concatenate([[count], mean, squares])
