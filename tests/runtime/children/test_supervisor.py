"""Actors that are killed: no ticket is lost or written twice, and what begins anew begins at a marked cut."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest
from tests.support.scenes import Scene, cuts_between, scene
from tests.support.thorough import thorough

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import RunFailed
from offbeat.core.types import Tree
from offbeat.memory.arena import private_arena
from offbeat.runtime.actor_process import ActorLaunch
from offbeat.runtime.board import Board, board_slabs
from offbeat.runtime.children import supervisor
from offbeat.runtime.children.supervised import Supervised, wait_until_ready
from offbeat.runtime.children.supervisor import Supervisor
from offbeat.runtime.deadline import Span
from offbeat.runtime.processes import ProcessActing
from offbeat.runtime.reporting import Reporting


@pytest.mark.parametrize("lag", ["exact", *thorough("bounded")])
def test_no_ticket_is_lost_or_written_twice_when_actors_are_killed(lag):
    random, kills, steps = Random(0), 3, 120
    moments = sorted(random.sample(range(10, steps - 50), kills))
    with scene(actors=2, max_lag=2, lag=lag, unroll_length=8) as it:
        it.begin()
        of_actor: dict[int, list[Tree]] = defaultdict(list)
        for step in range(steps):
            if step in moments:
                it.kill(random.randrange(2))
            for index, unroll in enumerate(it.next_batch(step)):
                of_actor[index].append(unroll)
                lags = step - unroll["behavior_version"]
                assert 0 <= lags.min() <= lags.max() <= 2
        assert it.acting.restarts == kills == len(it.said)
        assert sum(cuts_between(unrolls) for unrolls in of_actor.values()) == kills
        assert all("started again, at a marked cut" in text for text in it.said)
        assert all(("no longer exact" in text) == (lag == "exact") for text in it.said)


@pytest.mark.usefixtures("fresh_children")
def test_an_actor_killed_at_any_moment_of_its_start_is_restarted():
    random = Random(1)
    with scene(actors=2, restart_budget=100) as it:
        killer = threading.Thread(target=kill_while_it_starts, args=(it, random, done := threading.Event()))
        killer.start()
        it.begin()
        done.set()
        killer.join()
        assert it.acting.restarts > 1
        unrolls = [it.next_batch(step) for step in range(5)]
        assert all(cuts_between(of_actor) <= 1 for of_actor in zip(*unrolls, strict=True))


def kill_while_it_starts(it: Scene, random: Random, done: threading.Event) -> None:
    kills = 0
    while kills < 6 and not done.wait(random.uniform(0.02, 0.3)):
        if it.pids:
            it.kill(random.randrange(len(it.pids)))
            kills += 1


def test_an_inference_worker_killed_while_actors_start_is_replaced_before_all_of_them_are_ready(monkeypatch):
    show, workers = Scene._show, list[int]()

    def kill_worker(it: Scene, role: str, processes: Sequence[Supervised]) -> None:
        show(it, role, processes)
        if role == "actor":
            os.kill(worker := workers.pop(), signal.SIGKILL)
            os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)  # else the actor may be ready first
        elif not it.said:
            workers[:] = it.pids

    monkeypatch.setattr(Scene, "_show", kill_worker)
    monkeypatch.setattr("offbeat.runtime.children.supervised.POLL_EVERY_S", 0.0)
    with scene(actors=1, inference="worker") as it:
        it.begin()
        assert it.acting.restarts == 1
        assert it.said[0].startswith("inference worker 0")


def test_an_actor_killed_during_a_pause_leaves_no_snapshot_and_its_replacement_continues():
    with scene(actors=2, max_lag=1) as it:
        it.begin()
        it.acting.pause_at(4)
        of_actor = [list(unrolls) for unrolls in zip(it.next_batch(0), it.next_batch(1), strict=True)]
        it.kill(0)
        assert it.acting.snapshots() == [None, None]  # Numbered has none
        it.acting.pause_at(None)
        for step in (2, 3):
            for index, unroll in enumerate(it.next_batch(step)):
                of_actor[index].append(unroll)
        assert [cuts_between(unrolls) for unrolls in of_actor] == [1, 0]


def test_an_exhausted_restart_budget_ends_the_run():
    with scene(actors=1, restart_budget=2, max_lag=1) as it:
        it.begin()
        with pytest.raises(RunFailed, match=r"actor 0 .* SIGKILL.* restart_budget of 2 is used up"):
            kill_before_each_batch(it)
        assert it.acting.restarts == 2


def kill_before_each_batch(it: Scene) -> None:
    for step in range(10_000):
        it.kill(0)
        it.next_batch(step)


class FakeProcess:
    """A process that is dead at the first look, and pauses at ticket 8 when its reports are taken."""

    name, pid, ready, has_ended = "process 1", 1, True, False
    failure = explained = no_restart_reason = ""
    index = 0
    paused: tuple[int, Any] = (4, {"state": "earlier"})

    def take_reports(self, seconds: float = 0.0) -> None:  # noqa: ARG002
        self.paused = 8, {"state": "present"}

    def kill(self) -> None: ...

    def is_alive(self) -> bool:
        return False

    def exits_within(self, seconds: float) -> bool:  # noqa: ARG002
        return True

    def exit_reason(self) -> str:
        return "has died"


class Starting(FakeProcess):
    """A process that is ready after it was asked for its reports some times."""

    def __init__(self, asked: int) -> None:
        self.ready, self._left = False, asked

    def take_reports(self, seconds: float = 0.0) -> None:  # noqa: ARG002
        self._left -= 1
        self.ready = self._left <= 0


def test_actors_that_start_slowly_are_reported(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(Scene, "_say", lambda _scene, text, _details="": said.append(text))
    monkeypatch.setattr("offbeat.runtime.children.supervised.SLOW_START_S", 0.0)
    with scene(actors=2) as it:
        it.begin()
    assert said[0] in {f"{ready} of 2 actors ready after 0 s" for ready in range(2)}


def test_the_message_about_a_slow_start_counts_all_actors_that_are_ready(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("offbeat.runtime.children.supervised.SLOW_START_S", 0.0)
    wait_until_ready([Starting(9), Starting(1), Starting(1)], lambda: None, said.append, "actor", 4)
    assert said[0] == "2 of 4 actors ready after 0 s"


def supervisor_of(start: Callable[..., FakeProcess], board: Board) -> Supervisor[FakeProcess]:
    reporting, runtime = Reporting(lambda *_: None, lambda *_: None), RuntimeConfig(restart_budget=2)
    return Supervisor(start, board, runtime, reporting, role="actor", work="ticket", changes_result=True)


@pytest.mark.parametrize(
    ("window_s", "progress", "attempts", "failures"),
    [(600.0, 1, [0, 1, 2], 1), (1.5, 1, [0, 1, 1, 1], 0), (1.5, 0, [0, 1, 2], 1)],
    ids=["within the window", "before the window, with progress", "before the window, without progress"],
)
def test_deaths_count_within_the_window_and_without_progress(monkeypatch, window_s, progress, attempts, failures):
    monkeypatch.setattr(supervisor, "RESTART_WINDOW_S", window_s)
    clock = count()  # a second passes between two looks at it
    for module in ("supervisor", "supervised"):
        monkeypatch.setattr(f"offbeat.runtime.children.{module}.monotonic", lambda: float(next(clock)))
    board, starts = Board(private_arena(board_slabs(1)), 1), []

    def start(*given: Any) -> FakeProcess:
        starts.append(given)
        return FakeProcess()

    supervised = supervisor_of(start, board)
    supervised.start(1)
    for _ in attempts[1:]:
        supervised.watch()
        board.next[0][0] += progress
    for _ in range(failures):
        with pytest.raises(RunFailed, match="restart_budget of 2 is used up"):
            supervised.watch()
    assert starts == [(0, attempt) for attempt in attempts]
    assert supervised.restarts == len(attempts) - 1


def test_a_restarted_actor_starts_new_episodes_at_its_open_ticket(monkeypatch):
    launches: list[ActorLaunch] = []

    def start(_module: str, launch: ActorLaunch, *_: Any) -> FakeProcess:
        launches.append(launch)
        return FakeProcess()

    monkeypatch.setattr("offbeat.runtime.processes.start_worker", start)
    with scene(actors=1) as it:
        assert isinstance(it.acting, ProcessActing)
        it.acting.origin = 3
        it.acting.start([{"state": 1}])
        it.acting.board.next[0][0] = 7
        while len(launches) < 2:
            it.acting._supervisor.watch()
    assert [(launch.origin, launch.snapshot) for launch in launches] == [(3, {"state": 1}), (7, None)]


def test_the_state_of_envs_is_that_of_the_present_pause():
    supervised = supervisor_of(lambda *_: FakeProcess(), Board(private_arena(board_slabs(1)), 1))
    supervised.start(1)
    assert supervised.snapshots(8, lambda: None) == [{"state": "present"}]


@pytest.mark.parametrize(("span", "seconds"), [(Span.STEP, supervisor.ENV_CLOSE_S), (Span.WORK, supervisor.CLOSE_S)])
def test_a_child_in_an_env_call_has_less_time_to_end(monkeypatch, span, seconds):
    clock, waits = count(), list[float]()  # a second passes between two looks at it
    monkeypatch.setattr(supervisor, "monotonic", lambda: float(next(clock)))

    class Hangs(FakeProcess):
        def exits_within(self, seconds: float) -> bool:
            waits.append(seconds)
            return False

    board = Board(private_arena(board_slabs(1)), 1)
    board.deadlines[0].set(span, 60.0)
    supervised = supervisor_of(lambda *_: Hangs(), board)
    supervised.processes.append(Hangs())
    supervised.close()
    assert len(waits) == seconds - 1


def test_all_processes_are_killed_if_one_does_not_end_and_warnings_are_errors():
    killed: list[int] = []

    class Immortal(FakeProcess):
        def kill(self) -> None:
            killed.append(1)
            raise RuntimeWarning("was killed, but has not ended")

    supervised = supervisor_of(lambda *_: Immortal(), Board(private_arena(board_slabs(2)), 2))
    supervised.processes += [Immortal(), Immortal()]
    with pytest.raises(RuntimeWarning):
        supervised.close()
    assert len(killed) == 2


def test_a_restart_that_is_not_possible_ends_the_run_with_the_reason_of_the_death_and_is_not_counted(monkeypatch):
    def fail(*_arguments: Any) -> Any:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with scene(actors=1) as it:
        it.begin()
        assert isinstance(it.acting, ProcessActing)
        monkeypatch.setattr(it.acting._supervisor, "_start", fail)
        it.kill(0)
        with pytest.raises(RunFailed, match=r"actor 0 .* SIGKILL.* could not be started again \(Resource temporarily"):
            it.acting.wait(1_000_000)
        assert it.acting.restarts == 0


def test_an_error_after_which_an_actor_is_not_restarted_is_raised_with_its_traceback():
    with scene(actors=1) as it:
        it.begin()
        assert isinstance(it.acting, ProcessActing)
        (actor,) = it.acting._supervisor.processes
        actor.kill()
        actor.no_restart_reason, actor.explained = "no work is left", "RunFailed: no work is left\nline 3 of own.py"
        actor.failure = "Traceback: in own.py"
        with pytest.raises(RunFailed, match=r"^actor 0: no work is left\nline 3 of own.py$") as raised:
            it.acting.wait(1_000_000)
    assert "in own.py" in str(raised.value.__cause__)
