"""A collective of real threads: what each learner gives is added up where all of them have met."""

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

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = Barrier(size)
        self.given: list[Tensor] = [torch.empty(0)] * size
        self.calls = [0] * size


class ThreadCollective:
    """One thread's side of a meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self.rank, self.size = meeting, rank, meeting.size

    def sum_(self, values: Tensor) -> Tensor:
        meeting = self._meeting
        meeting.calls[self.rank] += 1
        meeting.given[self.rank] = values.clone()
        meeting.barrier.wait(PATIENCE_S)
        values.copy_(torch.stack(meeting.given).sum(dim=0))
        meeting.barrier.wait(PATIENCE_S)
        return values

    def all_(self, flag: bool) -> bool:
        return bool(self.sum_(torch.tensor([flag], dtype=torch.float64)) == self.size)


def together(learn: Sequence[Callable[[], T]]) -> list[T]:
    """Call functions that meet in a collective, each in a thread; return what they return."""
    with ThreadPoolExecutor(len(learn)) as pool:
        return [future.result(PATIENCE_S) for future in [pool.submit(each) for each in learn]]
