"""The thread that handles the messages of actors: one that hangs in a call of Ray is noticed, and does not keep a run
from ending.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.core.errors import RunFailed
from offbeat.runtime.gate import LearnerGate, PaceBoard
from offbeat.runtime.ray import dispatcher
from offbeat.runtime.ray.dispatcher import Dispatcher
from offbeat.runtime.ray.messages import ActedTickets, TicketRows
from offbeat.runtime.runtimes import build


@pytest.fixture
def hanging() -> Iterator[tuple[Dispatcher, Event]]:
    """Yield a dispatcher whose only actor is asked in a call that does not return, and the event of this call."""
    flags = {**SMALL, "runtime": "threads", "actors": 1, "stall_timeout_s": 0.05}
    parts: Any = build(resolve("ppo", "CartPole-v1", flags=flags))
    board = PaceBoard(parts.arrays, 1)
    board.reset(0, 0)
    gate = LearnerGate(board, parts.plan.pace, parts.timings, 1)
    bell, logs = gate.acting_bells[0], ": look at the logs"
    started = Dispatcher(parts.plan, parts.memory, board, bell, gate.own_bell, lambda: None, logs)
    asked, released = Event(), Event()

    def ask() -> None:
        asked.set()
        released.wait(60)

    proxy: Any = SimpleNamespace(index=0, ready=False, ask=ask)
    started.add(proxy)
    started.start()
    assert asked.wait(20)
    yield started, released
    released.set()
    started.end()
    gate.discard()
    parts.close()


def test_a_dispatcher_that_hangs_ends_the_run(hanging):
    started, _ = hanging

    def wait() -> None:
        for _ in range(1000):
            started.watch()
            time.sleep(0.01)

    with pytest.raises(RunFailed, match=r"were not handled within 0\.05 s \(stall_timeout_s\).*: look at the logs$"):
        wait()


def test_the_end_of_a_run_does_not_wait_for_a_dispatcher_that_hangs(hanging):
    started, released = hanging
    with patch.object(dispatcher, "CLOSE_S", 0.01):
        started.end()
    assert not released.is_set()
    assert not started.has_ended


def test_a_dispatcher_ends_after_its_call(hanging):
    started, released = hanging
    released.set()
    started.end()
    assert started.has_ended


def test_rows_of_an_actor_that_was_replaced_are_refused(hanging):
    started, _ = hanging
    replaced, successor = started._proxies[0], SimpleNamespace(index=0, ready=False, ask=lambda: None)
    started.remove(replaced)
    started.add(successor)
    started._commit(replaced, ActedTickets((TicketRows(0, 0, ({},)),), 0.0, {}, 0.0), 0.0)
    assert started.refused == 1


def test_the_seconds_of_an_actor_include_those_before_it_was_replaced(hanging):
    started, _ = hanging
    started._spent[0] = {"act": 5.0}
    assert started._seconds(0, {"act": 2.0})["act"] == 7.0
