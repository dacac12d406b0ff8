"""An actor on a cluster, as the learner's process sees it. The actor is not a real one: its answers come on demand."""

from __future__ import annotations

import sys
from collections import defaultdict
from concurrent.futures import Future
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from offbeat.runtime.deadline import ROW, Deadline, Span
from offbeat.runtime.ray import proxy as ray_proxy
from offbeat.runtime.ray.cluster import Cluster, own_versions
from offbeat.runtime.ray.messages import ActedTickets, Alive, Assignment, Started, TicketRows
from offbeat.runtime.ray.proxy import ActorProxy


class Answers:
    """The answers of an actor, which also lets it be placed."""

    def __init__(self) -> None:
        self.futures: defaultdict[str, list[Future[Any]]] = defaultdict(list)
        """Of each method: the answers to its calls, oldest first."""
        self.placed = 0
        """How often the actor was placed."""

    def place(self) -> Handle:
        self.placed += 1
        return Handle(self.futures)


class Handle:
    """Stands for Ray's handle of an actor."""

    def __init__(self, futures: defaultdict[str, list[Future[Any]]]) -> None:
        self.futures = futures

    def __getattr__(self, method: str) -> Any:
        return Method(self.futures[method])


class Method:
    """Stands for a method of the handle, and for a reference to its answer."""

    def __init__(self, futures: list[Future[Any]]) -> None:
        self.futures = futures

    def options(self, **_options: object) -> Method:
        return self

    def remote(self, *_arguments: object) -> Method:
        self.futures.append(Future())
        return self

    def future(self) -> Future[Any]:
        return self.futures[-1]


def proxy_of(answers: Answers, deadline: Deadline | None = None) -> tuple[ActorProxy, Deadline]:
    """Return a proxy whose answers are handled at once, and its deadline."""
    deadline = deadline or Deadline(np.zeros(ROW))
    cluster = cast(Cluster, None)
    place = answers.place
    return ActorProxy(0, place, cluster, deadline, 100.0, lambda answer: answer(), lambda _proxy: None), deadline


def rows_of(ticket: int) -> ActedTickets:
    return ActedTickets((TicketRows(ticket, 0, ()),), 0.0, {}, 0.0)


WAITING = Alive(Span.WORK, 100.0, has_stalled=False, waits=True)


def test_rows_that_arrive_before_those_of_an_earlier_ticket_are_passed_on_after_them():
    answers, passed = Answers(), list[int]()
    proxy, _ = proxy_of(answers)
    for ticket in (0, 2, 4):
        proxy.act([Assignment(ticket, 0, 0.0)], [], lambda acted, _: passed.append(acted.tickets[0].ticket))
    first, second, third = answers.futures["act"]
    second.set_result(rows_of(2))
    assert passed == []
    assert len(proxy.sent) == 3
    first.set_result(rows_of(0))
    assert passed == [0, 2]
    third.set_result(rows_of(4))
    assert passed == [0, 2, 4]
    assert not proxy.sent


def test_an_actor_that_waits_while_its_rows_do_not_arrive_gets_no_new_deadline():
    answers = Answers()
    proxy, deadline = proxy_of(answers)
    deadline.set(Span.WORK, 1.0)
    proxy.act([Assignment(0, 0, 0.0)], [], lambda *_: None)
    (asked,), before = answers.futures["alive"], deadline.time
    asked.set_result(WAITING)
    assert deadline.time == before
    answers.futures["act"][0].set_result(rows_of(0))
    proxy._take_alive(WAITING)
    assert deadline.time > before + 50


def test_an_actor_that_waits_while_the_state_of_its_envs_does_not_arrive_gets_no_new_deadline():
    answers = Answers()
    proxy, deadline = proxy_of(answers)
    answers.futures["start"][0].set_result(Started(1, "node", "127.0.0.1", own_versions()))
    deadline.set(Span.WORK, 1.0)
    proxy.ask_snapshot(8)
    before = deadline.time
    proxy._take_alive(WAITING)
    assert deadline.time == before
    answers.futures["snapshot"][0].set_result({})
    proxy._take_alive(WAITING)
    assert deadline.time > before + 50


def test_a_deadline_that_an_actor_has_passed_is_not_changed_by_its_later_answers():
    proxy, deadline = proxy_of(Answers())
    stalled = Alive(Span.STEP, -5.0, has_stalled=True, waits=False)
    proxy._take_alive(stalled)
    passed = deadline.time
    assert deadline.has_passed
    proxy._take_alive(stalled)
    assert deadline.time == passed


def test_answers_of_a_killed_actor_do_not_change_the_deadline_which_is_that_of_the_next_one():
    answers = Answers()
    proxy, deadline = proxy_of(answers)
    proxy.has_ended = True
    deadline.set(Span.START, 600.0)
    before = deadline.time
    answers.futures["start"][0].set_result(Started(1, "node", "127.0.0.1", own_versions()))
    answers.futures["alive"][0].set_result(Alive(Span.STEP, 5.0, has_stalled=False, waits=False))
    proxy._take_alive(Alive(Span.STEP, -5.0, has_stalled=True, waits=False))
    assert (deadline.time, deadline.span) == (before, Span.START)


class DeadlineOfTheKilled(Deadline):
    """While it is set, another thread kills the actor."""

    proxy: ActorProxy
    killer: Thread | None = None

    def set(self, span: Span, seconds: float) -> None:
        if self.killer is not None:
            self.killer.start()
            self.killer.join(0.1)
            assert not self.proxy.has_ended, "the next actor with its index may have set the deadline by now"
        super().set(span, seconds)


def test_an_actor_is_not_killed_while_its_deadline_is_set(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(kill=lambda _actor: None))
    answers, deadline = Answers(), DeadlineOfTheKilled(np.zeros(ROW))
    deadline.proxy, _ = proxy_of(answers, deadline)
    deadline.killer = Thread(target=deadline.proxy.kill)
    answers.futures["alive"][0].set_result(Alive(Span.STEP, 5.0, has_stalled=False, waits=False))
    deadline.killer.join()
    assert deadline.proxy.has_ended
    assert deadline.span == Span.STEP


def test_the_deadline_of_an_actor_that_has_started_is_the_one_for_work():
    answers = Answers()
    _, deadline = proxy_of(answers)
    of_start = deadline.time
    answers.futures["start"][0].set_result(Started(1, "node", "127.0.0.1", own_versions()))
    assert deadline.time < of_start - 400
    assert deadline.span == Span.WORK


LOST = RuntimeError("The actor died unexpectedly.\nThe actor died because its node has died. Node Id: 1")
CANCELLED = RuntimeError("SchedulingCancelled: Actor creation cancelled.")


@pytest.mark.parametrize("lost", [LOST, CANCELLED])
def test_an_actor_whose_node_is_lost_before_it_runs_is_placed_again_and_has_not_died(lost, monkeypatch):
    monkeypatch.setattr(ray_proxy, "PLACE_AGAIN_S", 0.0)
    answers = Answers()
    proxy, _ = proxy_of(answers)
    answers.futures["start"][0].set_exception(lost)
    proxy.ask()
    assert (answers.placed, len(answers.futures["start"])) == (2, 2)
    answers.futures["alive"][0].set_exception(lost)  # also of the actor that was lost
    proxy.ask()
    assert answers.placed == 2
    assert proxy.is_alive()
    answers.futures["alive"][1].set_result(WAITING)
    answers.futures["start"][1].set_exception(LOST)
    assert not proxy.is_alive()
    assert proxy.exit_reason() == "was lost with its node"


def test_an_actor_whose_nodes_are_lost_before_it_runs_ends_the_run_after_the_time_to_place_it(monkeypatch):
    answers = Answers()
    proxy, _ = proxy_of(answers)
    answers.futures["start"][0].set_exception(CANCELLED)
    monkeypatch.setattr(ray_proxy, "PLACE_S", 0.0)
    assert not proxy.is_alive()
    assert "no node had room for it" in proxy.no_restart_reason


def test_an_actor_that_was_killed_is_not_placed_again(monkeypatch):
    monkeypatch.setattr(ray_proxy, "PLACE_AGAIN_S", 0.0)
    answers = Answers()
    proxy, _ = proxy_of(answers)
    answers.futures["start"][0].set_exception(LOST)
    proxy.has_ended = True
    proxy.ask()
    assert answers.placed == 1


def test_an_actor_that_has_died_is_reported_with_the_reason_of_ray():
    answers = Answers()
    proxy, _ = proxy_of(answers)
    reason = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
    answers.futures["start"][0].set_exception(RuntimeError(f"The actor died unexpectedly.\n\tpid: 1\n{reason}"))
    assert (proxy.exit_reason(), proxy.explained) == ("died", reason)


def test_an_actor_whose_connection_is_lost_is_reported_without_the_error_of_the_network():
    answers = Answers()
    proxy, _ = proxy_of(answers)
    answers.futures["start"][0].set_exception(
        RuntimeError(
            "The actor f3bf45 is unavailable: The actor is temporarily unavailable: RpcError: RPC error: "
            "recvmsg:Connection reset by peer rpc_code: 14. The task may or may not have been executed on the actor."
        )
    )
    assert (proxy.exit_reason(), proxy.explained) == ("died", "it does not answer: its process or its node is lost")


def test_an_actor_that_was_killed_is_reported_without_the_error_that_follows_from_it():
    answers = Answers()
    proxy, _ = proxy_of(answers)
    proxy.has_ended = True
    answers.futures["start"][0].set_exception(
        RuntimeError("The actor died unexpectedly.\nThe actor is dead because it was killed by `ray.kill`.")
    )
    assert (proxy.exit_reason(), proxy.explained, proxy.failure) == ("", "", "")
