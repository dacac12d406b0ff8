"""A collective over shared memory, for the learners of one machine, on any devices.

Each learner writes the rows of its own shards into a buffer, publishes that, and waits until all have. There are two
buffers, which are used in turn. A learner that writes into a buffer again has seen that all others have contributed to
the exchange in between, so they do not read the buffer any more. So one wait per exchange is enough, without locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter as clock

import torch
from torch import Tensor

from offbeat.core.errors import RunFailed
from offbeat.metrics.timings import EXCHANGE, Timings
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.learners.board import LearnersBoard

Check = Callable[[], None]
"""Is called in each exchange, and often while this waits. It raises an exception if the wait must end."""


def shards_of(rank: int, learners: int, shards: int) -> range:
    """Return the shards of a learner: each has a contiguous range, and their numbers differ by at most one."""
    return range(rank * shards // learners, (rank + 1) * shards // learners)


class SharedMemoryCollective:
    """One learner's side of the collective: see `Collective`."""

    def __init__(
        self,
        board: LearnersBoard,
        rank: int,
        shards: int,
        bells: Sequence[Bell],
        check: Check,
        timings: Timings,
    ) -> None:
        """Make one side; no side may have exchanged rows yet.

        Args:
            board: the board of all learners.
            rank: rank of this learner.
            shards: number of shards of each minibatch.
            bells: the bell of each learner.
            check: see `Check`.
            timings: the time of each exchange is added here.
        """
        self.shards, self.own = shards, shards_of(rank, board.workers, shards)
        self._board, self._rank, self._timings = board, rank, timings
        self._bell, self._others = bells[rank], [bell for other, bell in enumerate(bells) if other != rank]
        self._check = check
        self._buffers = torch.from_numpy(board.rows)
        self._made = 0
        """Number of exchanges so far."""

    def gather(self, rows: Tensor) -> Tensor:
        started = clock()
        self._check()
        largest = self._buffers.shape[1] // (self.shards * rows.element_size())
        if rows.shape[1] <= largest:
            gathered = self._exchange(rows)
        else:
            gathered = torch.cat([self._exchange(part).clone() for part in torch.split(rows, largest, dim=1)], dim=1)
        self._timings.add(EXCHANGE, clock() - started)
        return gathered if rows.is_cpu else gathered.to(rows.device)

    def close(self) -> None:
        """Do nothing: `check` ends exchanges that are waiting."""

    def _exchange(self, rows: Tensor) -> Tensor:
        """Return the rows of all shards, as a view that is valid until the next exchange."""
        buffer, size = self._made % 2, rows.shape[1] * rows.element_size()
        gathered = self._buffers[buffer, : self.shards * size].view(rows.dtype).view(self.shards, -1)
        gathered[self.own.start : self.own.stop] = rows
        self._board.sizes[buffer, self._rank] = size
        self._made += 1
        self._board.gathered[self._rank] = self._made  # last: the rows are complete
        for bell in self._others:
            bell.ring()
        self._wait()
        if (self._board.sizes[buffer] != size).any():
            sizes = ", ".join(map(str, self._board.sizes[buffer].tolist()))
            raise RunFailed(
                f"the learners have exchanged rows of different sizes ({sizes} bytes in exchange {self._made}): they "
                "have not made the same update. Train with one device, and report this as a bug"
            )
        return gathered

    def _wait(self) -> None:
        """Wait until all learners have contributed to the present exchange."""
        while self._board.gathered.min() < self._made:
            self._bell.sleep(POLL_INTERVAL_S)
            self._check()
