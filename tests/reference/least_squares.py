"""Linear least squares as a tiny algorithm, whose solution is known, and processes that solve it together lock-free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from time import sleep
from typing import NamedTuple, cast

import numpy as np
import torch
from tests.support.children import take_reports_until
from torch import nn

from offbeat.algorithms.base import Algorithm, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.core.types import F64
from offbeat.memory.arena import SharedArena, attach
from offbeat.models.collective import ALONE, Collective
from offbeat.models.flat import FlatParameters
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.runtime.children.child import Child, start_child
from offbeat.runtime.children.child_main import ChildContext
from offbeat.runtime.hogwild.board import WorkersBoard, WorkerUpdateCounter
from offbeat.runtime.hogwild.shared_state import SharedStateShape, SharedStorage, write_initial
from offbeat.workers.updates import UpdateMetrics, Updates

ROWS, COLUMNS, MINIBATCH = 64, 6, 32
RATE = 0.1
"""Adam's step size at the start; it goes down to 0."""


class Problem:
    """X w = y with some noise, so that no w fits all rows."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        w = np.linspace(-2, 2, COLUMNS)
        self.y = (self.x @ w + random.normal(scale=0.004, size=ROWS)).astype(np.float32)

    def solution(self) -> F64:
        solution: F64 = np.linalg.lstsq(self.x.astype(np.float64), self.y.astype(np.float64), rcond=None)[0]
        return solution

    def minibatch(self, seed: Sequence[int]) -> Minibatch:
        rows = np.random.default_rng(seed).choice(ROWS, MINIBATCH, replace=False)
        return {"x": torch.from_numpy(self.x[rows]), "y": torch.from_numpy(self.y[rows])}


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(COLUMNS))


class LeastSquares:
    """One group, one stage; the loss is half the mean squared error."""

    collective: Collective = ALONE

    def __init__(self, storage: Storage | None = None) -> None:
        self.line = Line()
        self.flat = FlatParameters(self.line, "line", storage)
        self.groups: Mapping[str, ParameterGroup] = {"line": ParameterGroup(self.flat, 1e9, 1e-8)}
        self.stages: tuple[Stage, ...] = (Stage("line", "line", self.loss),)
        self._losses = 0

    def loss(self, minibatch: Minibatch) -> LossResult:
        loss = (minibatch["x"] @ self.line.w - minibatch["y"]).square().mean() / 2
        self._losses += 1
        if self._losses % 16 == 0:
            os.sched_yield()  # between reading and writing, others have their turn
        return LossResult(loss, {"loss": loss.detach()})

    def as_algorithm(self) -> Algorithm:
        """Updates need no more of an algorithm than groups and stages."""
        return cast(Algorithm, self)


def solve(updates: Updates, problem: Problem, seed: int, count: int) -> dict[str, float]:
    """Make so many updates; return what they report."""
    metrics = UpdateMetrics()
    updates.pull()
    for number in range(count):
        updates.pull()
        rates = {"line": RATE * (1 - number / count)}
        assert updates.apply(number, problem.minibatch((seed, number)), rates, metrics)
    return metrics.summary()


# --- several processes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A way to solve it."""

    workers: int
    separate: bool
    share_moments: bool
    count: int
    """Updates of each worker."""

    def shape(self) -> SharedStateShape:
        made = PrivateStorage()
        Updates(LeastSquares(made).as_algorithm())
        return SharedStateShape.of(made, workers=self.workers, separate=self.separate, share_moments=self.share_moments)

    def __str__(self) -> str:
        moments = "shared" if self.share_moments else "own"
        return f"{self.workers}-{'synced' if self.separate else 'shared'}-{moments}-moments"


"""Seconds for a solver's next report."""


class Solved(NamedTuple):
    w: F64
    """As an onlooker sees it."""
    updates: list[int]
    """By worker."""
    metrics: list[dict[str, float]]
    """By worker."""


@dataclass(frozen=True)
class LaunchSpec:
    index: int
    parent: int
    cases: tuple[tuple[Case, int], ...]
    """With the file descriptors of their shared state."""


def main(launch: LaunchSpec, child: ChildContext) -> None:
    """Take a part in each case, when its turn comes."""
    torch.set_num_threads(1)
    problem = Problem()
    for case, fd in launch.cases:
        if launch.index >= case.workers:
            continue
        shape = case.shape()
        arrays = attach(fd, shape.slabs())
        board, storage = WorkersBoard(arrays, case.workers), SharedStorage(shape, arrays, launch.index)
        counter = WorkerUpdateCounter(board, launch.index)
        updates = Updates(LeastSquares(storage).as_algorithm(), counter)
        child.report("ready", None)
        while not board.limit[0]:  # all begin at the same moment
            sleep(0.0005)
        child.report("solved", solve(updates, problem, launch.index, case.count))


class Solver:
    """One of them."""

    def __init__(self, index: int, fds: tuple[tuple[Case, int], ...]) -> None:
        self._solved: SimpleQueue[dict[str, float]] = SimpleQueue()
        self.child: Child = start_child(
            "tests.reference.least_squares",
            LaunchSpec(index, os.getpid(), fds),
            [fd for _, fd in fds],
            on_report=lambda report: self._solved.put(report.content),
        )

    def wait_until_ready(self) -> None:
        take_reports_until(self.child, lambda: self.child.ready)
        self.child.ready = False  # it says so for each case

    def solved(self) -> dict[str, float]:
        take_reports_until(self.child, lambda: not self._solved.empty())
        return self._solved.get()


class Solvers:
    """Processes that solve cases together, one after the other."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._arenas = {case: SharedArena(case.shape().slabs()) for case in cases}
        fds = tuple((case, arena.fd) for case, arena in self._arenas.items())
        self._solvers = [Solver(index, fds) for index in range(max(case.workers for case in cases))]
        for arena in self._arenas.values():
            made = PrivateStorage()
            Updates(LeastSquares(made).as_algorithm())
            write_initial(arena.arrays, made)

    def solve(self, case: Case) -> Solved:
        """Let a case be solved: each once, in the order of the cases."""
        arrays = self._arenas[case].arrays
        board, storage = WorkersBoard(arrays, case.workers), SharedStorage(case.shape(), arrays)
        solvers = self._solvers[: case.workers]
        for solver in solvers:
            solver.wait_until_ready()
        board.limit[0] = 1
        metrics = [solver.solved() for solver in solvers]
        w = LeastSquares(storage).line.w.detach().numpy().astype(np.float64)
        return Solved(w, board.updates[:, 0].tolist(), metrics)

    def close(self) -> None:
        for solver in self._solvers:
            solver.child.kill()
        for arena in self._arenas.values():
            arena.close()


@contextmanager
def solvers(cases: Sequence[Case]) -> Iterator[Solvers]:
    made = Solvers(cases)
    try:
        yield made
    finally:
        made.close()
