from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import closing
from unittest.mock import patch

import pytest
import torch

from offbeat.core.errors import RunFailed
from offbeat.fastpath.two_threads import TwoThreadExecutor

THREADS = pytest.mark.parametrize("threads", [1, 2])


def nothing() -> None:
    pass


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "offbeat update helper"]


def gone(thread: threading.Thread) -> bool:
    thread.join(5)
    return not thread.is_alive()


@THREADS
def test_every_task_runs_once_and_a_step_starts_after_the_one_before(threads):
    done: list[str] = []

    def slowly(name):
        time.sleep(0.01)
        done.append(name)

    with closing(TwoThreadExecutor(threads)) as executor:
        for _ in range(3):
            done.clear()
            executor.run(
                (lambda: slowly("a"), lambda: done.append("b")),
                (lambda: done.append("c"), lambda: slowly("d")),
                (lambda: done.append("e"), lambda: done.append("f")),
            )
            assert [set(done[i : i + 2]) for i in (0, 2, 4)] == [{"a", "b"}, {"c", "d"}, {"e", "f"}]


def test_a_helper_that_cannot_be_started_says_which_limit_to_raise():
    at_the_limit = patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread"))
    with at_the_limit, pytest.raises(RunFailed, match=r"'offbeat update helper' cannot be started .*ulimit -u"):
        TwoThreadExecutor(2)


def test_one_thread_runs_the_tasks_in_order():
    done: list[int] = []
    TwoThreadExecutor(1).run(*((lambda i=i: done.append(i), lambda i=i: done.append(-i)) for i in (1, 2, 3)))
    assert done == [1, -1, 2, -2, 3, -3]


def test_two_threads_run_the_tasks_in_parallel():
    meeting = threading.Barrier(2, timeout=10)
    who: list[threading.Thread] = []

    def meet():
        who.append(threading.current_thread())
        meeting.wait()

    with closing(TwoThreadExecutor(2)) as executor:
        executor.run((meet, meet), (meet, meet))
    assert len(set(who)) == 2
    assert threading.current_thread() in who


class Odd(Exception):
    """Is false."""

    def __bool__(self) -> bool:
        return False


@THREADS
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("error", [ValueError("of a part"), Odd(), KeyboardInterrupt()])
def test_an_exception_of_a_task_is_raised_and_no_further_step_starts(threads, side, error):
    def fail():
        raise error

    later: list[int] = []
    with closing(TwoThreadExecutor(threads)) as executor:
        for _ in range(3):  # the executor can be used again
            with pytest.raises(type(error)) as raised:
                executor.run(
                    (nothing, nothing), (nothing, fail) if side else (fail, nothing), (lambda: later.append(1),) * 2
                )
            assert raised.value is error
        assert not later
        executor.run((lambda: later.append(1),) * 2)
        assert later == [1, 1]


def test_of_two_exceptions_that_of_the_calling_thread_is_raised():
    def fail(name):
        raise ValueError(name)

    with closing(TwoThreadExecutor(2)) as executor, pytest.raises(ValueError, match="caller"):
        executor.run((lambda: fail("caller"), lambda: fail("helper")))


@THREADS
def test_a_closed_executor_refuses_tasks_and_leaves_no_thread(threads):
    before = set(helpers())
    executor = TwoThreadExecutor(threads)
    executor.run((nothing, nothing))
    started = set(helpers()) - before
    assert len(started) == threads - 1
    assert all(thread.daemon for thread in started)
    executor.close()
    executor.close()
    assert not set(helpers()) & started
    with pytest.raises(RuntimeError, match="closed"):
        executor.run((nothing, nothing))


def test_an_unreferenced_executor_ends_its_thread():
    class Worker:
        """Holds the executor whose parts are its own, as users of executors do."""

        def __init__(self) -> None:
            self.executor = TwoThreadExecutor(2)
            self.executor.run((self.part, self.part))

        def part(self) -> None:
            pass

    before = set(helpers())
    worker = Worker()
    (thread,) = set(helpers()) - before
    held = weakref.ref(worker)
    del worker
    gc.collect()
    assert held() is None
    assert gone(thread)


def test_several_executors_run_at_the_same_time():
    executors = [TwoThreadExecutor(2) for _ in range(3)]
    counts = [0] * 6

    def add(i):
        counts[i] += 1

    def use(k):
        for _ in range(200):
            executors[k].run((lambda: add(2 * k), lambda: add(2 * k + 1)))

    users = [threading.Thread(target=use, args=(k,)) for k in range(3)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    for executor in executors:
        executor.close()
    assert counts == [200] * 6


def test_an_interrupt_while_waiting_closes_the_executor(monkeypatch):
    executor = TwoThreadExecutor(2)
    finish = threading.Event()
    inbox = executor._queues.to_caller

    class Interrupted:
        put = inbox.put

        def get(self):
            finish.set()
            raise KeyboardInterrupt

    def wait():
        finish.wait(5)

    monkeypatch.setattr(executor._queues, "to_caller", Interrupted())
    (thread,) = [thread for thread in helpers() if thread is executor._thread]
    with pytest.raises(KeyboardInterrupt):
        executor.run((nothing, wait), (nothing, nothing))
    assert gone(thread)
    assert inbox.qsize()
    with pytest.raises(RuntimeError, match="closed"):
        executor.run((nothing, nothing))


def test_the_second_thread_uses_one_torch_thread_and_keeps_the_callers_thread_count():
    before = torch.get_num_threads()
    seen: list[int] = []
    try:
        torch.set_num_threads(2)
        with closing(TwoThreadExecutor(2)) as executor:
            executor.run((nothing, lambda: seen.append(torch.get_num_threads())))
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
