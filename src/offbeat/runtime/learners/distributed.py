"""A collective of torch.distributed, for learners on different GPUs: rows go from GPU to GPU (NCCL).

NCCL refuses two ranks on one GPU, and needs GPUs. Learners on other devices use shared memory, which is faster there
than Gloo.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from threading import Thread
from time import monotonic, sleep
from time import perf_counter as clock
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from offbeat.config.devices import gpus_of
from offbeat.core.errors import RunFailed
from offbeat.core.process.threads import start_thread
from offbeat.metrics.timings import EXCHANGE, Timings
from offbeat.runtime.learners.board import LearnersBoard
from offbeat.runtime.learners.shared_memory import Check, shards_of

if TYPE_CHECKING:  # some builds of torch do not have it
    from torch._C._distributed_c10d import TCPStore

Backend = Literal["nccl", "gloo"]
HOST = "127.0.0.1"
POLL_S = 0.00002
"""Seconds between two checks whether an exchange is complete."""
CONNECT_POLL_S = 0.01
"""The same, while the learners connect."""
LOST_S = 5.0
"""Seconds after a failed exchange in which `check` may find out which learner is lost."""


def uses_nccl(devices: Sequence[str]) -> bool:
    """Whether learners on these devices exchange rows with NCCL: each has a GPU of its own.

    A program that has set up torch.distributed itself keeps its process group; the learners then use shared memory.
    """
    gpus = set(gpus_of(devices))
    has_nccl = dist.is_available() and dist.is_nccl_available()
    return 1 < len(devices) == len(gpus) and has_nccl and not dist.is_initialized()


def host_store(learners: int) -> TCPStore:
    """Make the store through which the learners find each other, in rank 0; its free port is `store.port`."""
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(HOST, 0, learners, is_master=True, wait_for_workers=False)


def join_store(port: int, learners: int) -> TCPStore:
    """Connect to the store of rank 0."""
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(HOST, port, learners, is_master=False)


class DistributedCollective:
    """One learner's side of the collective: see `Collective`."""

    def __init__(
        self,
        board: LearnersBoard,
        rank: int,
        shards: int,
        backend: Backend,
        store: TCPStore,
        device: str,
        check: Check,
        timings: Timings,
        timeout_s: float,
    ) -> None:
        """Make one side. The learners connect in the first exchange.

        Args:
            board: the board of all learners.
            rank: rank of this learner.
            shards: number of shards of each minibatch.
            backend: of torch.distributed: NCCL in a run; Gloo, which needs no GPUs, in tests.
            store: the store of `host_store` or `join_store`.
            device: device of this learner.
            check: see `Check`.
            timings: the time of each exchange is added here.
            timeout_s: seconds after which torch.distributed gives up. `check` should have raised before.
        """
        learners = board.workers
        own = [shards_of(other, learners, shards) for other in range(learners)]
        self.shards, self.own, self._most = shards, own[rank], max(map(len, own))
        self._board, self._rank, self._backend, self._store = board, rank, backend, store
        self._device, self._check, self._timings = torch.device(device), check, timings
        self._timeout = timedelta(seconds=timeout_s)
        self._is_connected = False
        order = [rank * self._most + row for rank, rows in enumerate(own) for row in range(len(rows))]
        self._order = torch.tensor(order, device=self._device) if len(order) < learners * self._most else None
        """Index of each shard in what is gathered, if some learners have fewer shards and contribute empty rows."""

    def gather(self, rows: Tensor) -> Tensor:
        started = clock()
        self._board.gathered[self._rank] += 1
        self._check()
        if not self._is_connected:
            self._connect()
        contributed = rows.new_zeros((self._most, rows.shape[1]))
        contributed[: len(rows)] = rows
        gathered = rows.new_empty((self._board.workers * self._most, rows.shape[1]))
        # As bytes, so that each dtype can be exchanged.
        work = dist.all_gather_into_tensor(gathered.view(torch.uint8), contributed.view(torch.uint8), async_op=True)
        while not work.is_completed():
            self._check()
            sleep(POLL_S)
        try:
            work.wait()
        except RuntimeError as error:
            raise self._failure(error) from error
        self._timings.add(EXCHANGE, clock() - started)
        return gathered if self._order is None else gathered[self._order]

    def _connect(self) -> None:
        """Make the process group in a thread, and call `check` until all learners have done so."""
        failures: list[Exception] = []

        def run() -> None:
            try:
                dist.init_process_group(
                    self._backend,
                    store=self._store,
                    rank=self._rank,
                    world_size=self._board.workers,
                    timeout=self._timeout,
                    device_id=self._device if self._device.type == "cuda" else None,
                )
            except Exception as error:  # noqa: BLE001 - it is raised below
                failures.append(error)

        thread = Thread(target=run, name=f"offbeat connection of learner {self._rank}", daemon=True)
        start_thread(thread)
        while thread.is_alive():
            self._check()
            thread.join(CONNECT_POLL_S)
        if failures:
            raise self._failure(failures[0]) from failures[0]
        self._is_connected = True

    def _failure(self, error: Exception) -> RunFailed:
        """Return the error for a failed exchange, if `check` does not name a lost learner."""
        until = monotonic() + LOST_S
        while monotonic() < until:
            self._check()
            sleep(0.05)
        return RunFailed(f"learner {self._rank} could not exchange rows with the others ({self._backend}): {error}")

    def close(self) -> None:
        """End exchanges that are waiting."""
        if self._is_connected:
            from torch.distributed import distributed_c10d

            distributed_c10d._abort_process_group()  # noqa: SLF001 - its public counterpart waits for the lost learner
