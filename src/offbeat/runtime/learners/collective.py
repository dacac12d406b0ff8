"""Chooses how the learners of a run exchange rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from offbeat.config.config import Config
from offbeat.metrics.timings import Timings
from offbeat.runtime.board import Bell
from offbeat.runtime.devices import device_of
from offbeat.runtime.learners.board import LearnersBoard
from offbeat.runtime.learners.distributed import DistributedCollective
from offbeat.runtime.learners.shared_memory import Check, SharedMemoryCollective

if TYPE_CHECKING:  # some builds of torch do not have it
    from torch._C._distributed_c10d import TCPStore

NCCL_TIMEOUTS = 3.0
"""NCCL gives up after this multiple of stall_timeout_s. By then, rank 0 has found which learner is lost."""


def make_collective(
    config: Config,
    board: LearnersBoard,
    rank: int,
    bells: Sequence[Bell],
    store: TCPStore | None,
    check: Check,
    timings: Timings,
) -> SharedMemoryCollective | DistributedCollective:
    """Make the collective of one learner: over shared memory or, with a store of torch.distributed, with NCCL.

    Args:
        config: the config of the learner.
        board: the board of all learners.
        rank: the rank of the learner.
        bells: the bells of all learners.
        store: the store that all learners use; None: shared memory.
        check: is called often while the learner waits for others.
        timings: the time of each exchange is added here.
    """
    shards = config.runtime.shards
    if store is None:
        return SharedMemoryCollective(board, rank, shards, bells, check, timings)
    timeout_s = NCCL_TIMEOUTS * config.runtime.stall_timeout_s
    return DistributedCollective(board, rank, shards, "nccl", store, device_of(config), check, timings, timeout_s)
