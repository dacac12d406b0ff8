"""Tasks of a pool, a few at a time: after an error or Ctrl-C no other one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def results_of(
    pool: Executor,
    do: Callable[[Task], Result],
    tasks: Iterable[Task],
    at_a_time: int,
    until: float = float("inf"),
) -> Iterator[Result]:
    """Yield the result of each task when it has ended.

    Args:
        pool: does the tasks.
        do: does one of them.
        tasks: in the order in which they begin.
        at_a_time: a task begins when fewer than so many are under way.
        until: value of `time.monotonic()` after which none begins.
    """
    waiting, running = iter(tasks), set[Future[Result]]()
    while True:
        while len(running) < at_a_time and time.monotonic() < until:
            try:
                running.add(pool.submit(do, next(waiting)))
            except StopIteration:
                break
        if not running:
            return
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in ended)
