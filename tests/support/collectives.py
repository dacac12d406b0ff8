"""Learners in threads that compute the shards of each update together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
PATIENCE_S = 60.0


class Meeting:
    """Where the threads of a collective meet."""

    def __init__(self, shards: int, learners: int) -> None:
        self.shards, self.barrier = shards, Barrier(learners)
        self.given: list[Tensor] = [torch.empty(0)] * learners
        self.calls = [0] * learners

    def of(self, rank: int) -> ThreadCollective:
        """Return the collective of a thread."""
        return ThreadCollective(self, rank)


class ThreadCollective:
    """One thread's side of a meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self._rank, self.shards = meeting, rank, meeting.shards
        learners = len(meeting.given)
        self.own = range(self.shards * rank // learners, self.shards * (rank + 1) // learners)

    def gather(self, rows: Tensor) -> Tensor:
        assert len(rows) == len(self.own)
        meeting = self._meeting
        meeting.calls[self._rank] += 1
        meeting.given[self._rank] = rows
        meeting.barrier.wait(PATIENCE_S)
        gathered = torch.cat(meeting.given)
        meeting.barrier.wait(PATIENCE_S)
        return gathered


def together(learn: Sequence[Callable[[], T]]) -> list[T]:
    """Call functions that meet in a collective, each in a thread; return what they return."""
    with ThreadPoolExecutor(len(learn)) as pool:
        return [future.result(PATIENCE_S) for future in [pool.submit(each) for each in learn]]
