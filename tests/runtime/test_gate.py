"""The gate keeps the pace whatever the order of events, and slots and weights are whole because of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from random import Random
from time import monotonic
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.gates import (
    PATIENCE_S,
    ActorPool,
    Layout,
    Processes,
    SimulatedLearner,
    Simulation,
    Threads,
    pauses,
)
from tests.support.process_state import open_descriptors
from tests.support.thorough import examples, thorough

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import Closed
from offbeat.core.pace import OnPolicyPace
from offbeat.memory.arena import SharedArena, private_arena
from offbeat.metrics.timings import OTHER_WORK, Timings
from offbeat.runtime.board import POLL_INTERVAL_S, Bell
from offbeat.runtime.gate import ACTIVITIES, ActorGate, LearnerGate, PaceBoard, first_ticket, pace_board_slabs

STEPS = 8
PACE = OnPolicyPace(2, 0)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    unrolls, max_lag = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    return Layout(
        unrolls_per_batch=unrolls,
        max_lag=max_lag,
        actors=draw(st.integers(1, min(4, unrolls * (max_lag + 1)))),
        length=draw(st.integers(1, 3)),
        lag=draw(st.sampled_from(["bounded", "exact"])),
    )


seeds = st.integers(0, 2**32 - 1)

# --- any order of events, without a clock -------------------------------------------------------------------


@examples(50)
@given(layouts(), seeds)
def test_each_batch_has_the_rows_of_its_actors_acted_with_weights_that_the_pace_allows(layout, seed):
    simulation = Simulation(layout, Random(seed))
    simulation.run(learn_all)
    assert (simulation.arrays["seen/closed"] == 1).all()


def learn_all(simulation: Simulation) -> None:
    for _ in range(STEPS):
        simulation.learner.learn(watch=nothing)


def nothing() -> None: ...


@examples(30)
@given(layouts(), seeds, st.sampled_from([0.002, 0.02]))
def test_a_ticket_whose_actor_dies_is_repeated_and_learned_once(layout, seed, deaths):
    Simulation(layout, Random(seed), deaths).run(learn_all)


@examples(30)
@given(layouts(), seeds, st.sampled_from([0.0, 0.005]))
def test_a_pause_stops_all_actors_at_one_ticket_with_all_earlier_ones_learned(layout, seed, deaths):
    random = Random(seed)
    simulation = Simulation(layout, random, deaths)
    pauses_set = 0

    def learn_with_pauses(simulation: Simulation) -> None:
        nonlocal pauses_set
        while simulation.learner.learned < STEPS:
            if random.random() < 0.3:
                simulation.learner.learn_up_to_a_pause(watch=nothing)
                pauses_set += 1
            else:
                simulation.learner.learn(watch=nothing)

    simulation.run(learn_with_pauses)
    paused = simulation.arrays["seen/pauses"]
    assert (paused >= pauses_set).all() if simulation.deaths else (paused == pauses_set).all()


@examples(30)
@given(layouts(), seeds, st.integers(0, 200), st.sampled_from([0.0, 0.01]))
def test_closing_the_gate_at_any_moment_ends_all_actors_and_starts_no_ticket(layout, seed, pauses, deaths):
    simulation = Simulation(layout, Random(seed), deaths)

    def close_early(simulation: Simulation) -> None:
        for _ in range(pauses):
            simulation.schedule.pause()
        simulation.gate.close()

    simulation.run(close_early)
    assert (simulation.arrays["seen/closed"] == 1).all()


# --- the same in threads and in processes -------------------------------------------------------------------


class Stage(NamedTuple):
    """A pool and the learner that it acts for."""

    pool: ActorPool
    learner: SimulatedLearner
    board: PaceBoard
    gate: LearnerGate
    arena: SharedArena

    def watch(self) -> None:
        self.pool.watch()

    def wait_until_begun(self, *tickets: int) -> None:
        deadline = monotonic() + PATIENCE_S
        while self.arena.arrays["seen/begun"].tolist() != list(tickets):
            assert monotonic() < deadline
            self.watch()
            time.sleep(0.001)


@pytest.fixture(params=[Threads, Processes])
def pool_kind(request) -> type[ActorPool]:
    kind: type[ActorPool] = request.param
    return kind


@pytest.fixture
def stages(monkeypatch) -> Iterator[list[Stage]]:
    """What a test begins is put here, and ended after it. Nobody wakes up by himself: bells alone do it."""
    monkeypatch.setattr("offbeat.runtime.gate.POLL_INTERVAL_S", PATIENCE_S)
    begun: list[Stage] = []
    yield begun
    for stage in begun:
        stage.gate.close()
        stage.pool.join()
        stage.gate.discard()
        stage.arena.close()


def begin(stages: list[Stage], kind: type[ActorPool], layout: Layout, seconds: float = 0.0) -> Stage:
    """Start all actors; a pause takes `seconds` on average."""
    arena = SharedArena(layout.slabs())
    arena.arrays["seen/begun"][:] = -1
    board = PaceBoard(arena.arrays, layout.actors)
    board.reset(0, 0)
    gate = LearnerGate(board, layout.pace, Timings())
    learner = SimulatedLearner(layout, arena.arrays, board, gate, pauses(seconds, -1))
    pool = kind(layout, arena, gate, seconds)
    stages.append(Stage(pool, learner, board, gate, arena))
    for index in range(layout.actors):
        pool.start(index)
    return stages[-1]


LAYOUTS = [
    Layout(1, 0, 1, lag="exact"),
    Layout(2, 0, 2),
    Layout(2, 1, 2, lag="exact"),
    Layout(1, 3, 3, lag="exact"),
    Layout(3, 3, 2, length=5),
    *thorough(Layout(2, 1, 3)),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_batches_are_complete_when_actors_run_in_parallel(stages, pool_kind, layout):
    stage = begin(stages, pool_kind, layout, 0.0003)
    for _ in range(40):
        stage.learner.learn(stage.watch)


@pytest.mark.parametrize("lag", ["exact", *thorough("bounded")])
def test_actors_that_run_in_parallel_stop_at_a_pause(stages, pool_kind, lag):
    stage = begin(stages, pool_kind, Layout(2, 1, 3, lag=lag), 0.0005)
    for number in range(1, 6):
        stage.learner.learn(stage.watch)
        stage.learner.learn_up_to_a_pause(stage.watch)
        assert stage.arena.arrays["seen/pauses"].tolist() == [number] * 3


def test_actors_wait_where_the_pace_stops_them_and_closing_wakes_them(stages, pool_kind):
    stage = begin(stages, pool_kind, Layout(2, 1, 3))
    stage.gate.wait(4, stage.watch)
    stage.wait_until_begun(3, 1, 2)  # of 0 1 2 3, the last that each may begin
    assert [int(ticket[0]) for ticket in stage.board.next] == [6, 4, 5]
    stage.gate.close()
    stage.pool.join()
    assert stage.arena.arrays["seen/begun"].tolist() == [3, 1, 2]
    assert stage.arena.arrays["seen/closed"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("lag", ["exact", *thorough("bounded")])
def test_a_killed_process_ends_no_other_and_its_ticket_is_repeated(stages, lag):
    layout, random = Layout(2, 1, 2, length=20, lag=lag), Random(0)
    stage = begin(stages, Processes, layout, 0.0005)
    assert isinstance(stage.pool, Processes)
    for kill in range(4):
        stage.learner.learn(stage.watch)
        victim = kill % layout.actors
        time.sleep(random.uniform(0, 0.02))
        stage.pool.kill(victim)
        stage.pool.start(victim)
    for _ in range(5):
        stage.learner.learn(stage.watch)


# --- bells --------------------------------------------------------------------------------------------------


@pytest.fixture
def bell() -> Iterator[Bell]:
    bell = Bell.make()
    yield bell
    bell.close()


def slept(bell: Bell, seconds: float) -> bool:
    """Whether nobody rang."""
    begun = monotonic()
    bell.sleep(seconds)
    return monotonic() - begun >= 0.9 * seconds


def test_a_bell_that_rings_before_a_wait_is_not_lost(bell):
    bell.ring()
    assert not slept(bell, PATIENCE_S)


def test_a_bell_wakes_a_waiting_thread(bell):
    ringer = threading.Timer(0.05, bell.ring)
    ringer.start()
    assert not slept(bell, PATIENCE_S)
    ringer.join()


def test_several_rings_before_a_wait_wake_it_once(bell):
    for _ in range(3):
        bell.ring()
    assert not slept(bell, PATIENCE_S)
    assert slept(bell, 0.05)


def test_ringing_a_bell_never_blocks_without_a_listener(bell):
    for _ in range(100_000):
        bell.ring()
    assert not slept(bell, PATIENCE_S)


def test_ringing_a_bell_whose_reader_is_closed_raises_nothing():
    bell = Bell.make()
    os.close(bell.reader)
    bell.reader = -1
    bell.ring()
    bell.close()


def test_closing_a_bell_closes_both_file_descriptors(bell):
    before = open_descriptors()
    Bell.make().close()
    Bell(-1, os.dup(bell.writer)).close()
    assert open_descriptors() == before


# --- the board ----------------------------------------------------------------------------------------------


def board_of(actors: int, origin: int = 0, learned: int = 0) -> PaceBoard:
    board = PaceBoard(private_arena(pace_board_slabs(actors)), actors)
    board.reset(origin, learned)
    return board


@given(st.integers(1, 6), st.integers(0, 50))
def test_the_first_tickets_of_actors_are_assigned_without_gaps(actors, origin):
    first = [first_ticket(actor, actors, origin) for actor in range(actors)]
    assert [ticket % actors for ticket in first] == list(range(actors))
    assert sorted(first) == list(range(origin, origin + actors))


@given(st.integers(1, 5), st.integers(0, 20), st.lists(st.integers(0, 6), min_size=5, max_size=5), st.integers(0, 40))
def test_acted_counts_tickets_up_to_the_first_gap_and_committed_counts_all(actors, origin, advances, beyond):
    board = board_of(actors, origin)
    done = set(range(origin))
    for actor in range(actors):
        own = range(int(board.next[actor][0]), 10**6, actors)[: advances[actor]]
        done |= set(own)
        board.next[actor][0] += actors * len(own)
    assert board.acted == next(ticket for ticket in range(10**6) if ticket not in done)
    first = origin + beyond
    assert board.committed(first) == sum(ticket >= first for ticket in done)


def test_slots_filled_is_the_fraction_of_slots_that_are_not_yet_learned_from():
    board = board_of(2)
    gate = LearnerGate(board, OnPolicyPace(2, 1), Timings())
    assert gate.slots_filled(0) == 0
    board.next[0][0], board.next[1][0] = 4, 1  # 0 and 2 are committed
    assert gate.slots_filled(0) == 0.5
    assert gate.slots_filled(1) == 0.25
    gate.discard()


def test_every_counter_has_a_cache_line_of_its_own():
    arrays = private_arena(pace_board_slabs(3))
    lines = [array.__array_interface__["data"][0] // 64 for array in arrays.values()]
    assert len(set(lines)) == len(arrays)


@pytest.mark.parametrize(("lag", "version"), [("bounded", 3), ("exact", 1)])
def test_a_ticket_starts_with_the_newest_weights_or_the_exact_version(lag, version):
    layout = Layout(1, 2, 1, lag=lag)
    board = board_of(1, origin=3, learned=3)
    gate = ActorGate(board, layout.pace, layout.runtime, 0, Bell(-1, -1), Bell(-1, -1))
    assert gate.open_ticket == 3
    assert gate.start(3, nothing) == version


# --- time ---------------------------------------------------------------------------------------------------


def gate_of(board: PaceBoard, **settings: float) -> ActorGate:
    runtime = RuntimeConfig(runtime="threads", **settings)  # type: ignore[arg-type]
    return ActorGate(board, PACE, runtime, 0, Bell(-1, -1), Bell(-1, -1))


@pytest.mark.parametrize(("resets", "seconds"), [(False, 60), (True, 300)])
def test_every_env_call_has_its_own_deadline(resets, seconds):
    board = board_of(1)
    gate = gate_of(board)
    begun = monotonic()
    gate.deadline.enter(resets=resets)
    assert 0 <= board.deadlines[0].time - begun - seconds < 10
    gate.deadline.leave()
    assert 0 <= board.deadlines[0].time - begun - 120 < 10


def test_an_actor_waiting_at_the_gate_renews_its_deadline():
    board = board_of(1)
    moments: list[float] = []

    class Napping(Bell):
        def sleep(self, seconds: float) -> None:
            assert seconds <= POLL_INTERVAL_S
            moments.append(board.deadlines[0].time)
            time.sleep(0.001)
            board.pause[0] = len(moments) // 3  # ended at the third nap

    gate = ActorGate(board, PACE, RuntimeConfig(actors=1), 0, Napping(-1, -1), Bell(-1, -1))
    board.pause[0] = 0
    gate.start(0, lambda: None)
    assert len(moments) == 3
    assert moments == sorted(set(moments))
    assert board.deadlines[0].time > moments[-1]


def test_an_actor_reports_the_state_of_its_envs_once_however_often_the_pause_moves_while_it_waits():
    board, reports = board_of(1), list[int]()

    class Napping(Bell):
        def sleep(self, seconds: float) -> None:  # noqa: ARG002
            board.pause[0] += 1

    gate = ActorGate(board, PACE, RuntimeConfig(actors=1), 0, Napping(-1, -1), Bell(-1, -1))
    board.pause[0] = -3
    gate.start(0, lambda: reports.append(int(board.pause[0])))
    assert reports == [-3]


def test_no_env_is_called_after_the_gate_is_closed():
    board = board_of(1)
    gate = gate_of(board)
    learner = LearnerGate(board, OnPolicyPace(1, 0), Timings())
    learner.close()
    with pytest.raises(Closed):
        gate.deadline.enter(resets=False)
    assert board.deadlines[0].time == 0
    learner.discard()


def test_a_commit_publishes_the_timings_of_the_actor():
    board, bell = board_of(2), Bell.make()
    gate = ActorGate(board, PACE, RuntimeConfig(actors=2), 1, bell, bell)
    timings = Timings()
    for name, seconds in (("act", 1.0), ("env", 2.0), ("wait/actor", 3.0), ("wait/inference", 4.0), ("other", 9.0)):
        timings.add(name, seconds)
    gate.commit(1, timings.seconds, 0.5)
    none = {"act": 0, "env": 0, "wait/actor": 0, "wait/inference": 0, "wait/messages": 0, "wait/actor/other_work": 0}
    assert board.spent(0) == none
    assert board.spent(1) == none | {"act": 1, "env": 2, "wait/actor": 3, "wait/inference": 4}
    assert board.longest_stall == 0.5
    assert int(board.next[1][0]) == 3
    bell.close()


def test_the_spans_of_other_work_are_added_up(monkeypatch):
    board, times = board_of(1), iter([1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr("offbeat.runtime.gate.monotonic", lambda: next(times))
    for _span in range(2):
        board.start_other_work()
        board.end_other_work()
    assert board.other_work_s == 2.0 + 4.0


def test_a_restarted_actor_adds_to_the_other_work_of_the_process_that_died():
    board, bell = board_of(1), Bell.make()
    board.seconds[0][ACTIVITIES.index(OTHER_WORK)] = 2.0
    ActorGate(board, PACE, RuntimeConfig(), 0, bell, bell).commit(0)
    assert board.spent(0)[OTHER_WORK] == 2.0
    bell.close()


def test_actors_measure_how_long_they_wait_while_the_learner_is_between_learning_steps():
    board, pace = board_of(1), OnPolicyPace(1, 0)
    learner = LearnerGate(board, pace, Timings())
    gate = ActorGate(board, pace, RuntimeConfig(runtime="threads"), 0, learner.acting_bells[0], learner.own_bell)
    board.next[0][0] = 1

    def learn() -> None:
        learner.wait(1, nothing)
        time.sleep(0.3)  # learning: the actor waits for it
        learner.pause_at(1)
        learner.finish(1)
        time.sleep(0.3)  # an evaluation or a checkpoint: the actor waits at the pause
        learner.pause_at(None)

    thread, begun = threading.Thread(target=learn), monotonic()
    thread.start()
    gate.start(1, nothing)
    waited = monotonic() - begun
    thread.join()
    gate.commit(1)
    assert 0.3 <= board.spent(0)["wait/actor/other_work"] <= waited - 0.3
    learner.wait(1, nothing)
    counted = board.other_work_s
    time.sleep(0.01)
    assert board.other_work_s == counted, "nothing is counted while the learner waits or learns"
    learner.discard()


def test_the_wait_of_the_learner_is_timed_and_watched():
    board, timings = board_of(1), Timings()
    gate = LearnerGate(board, OnPolicyPace(1, 0), timings)
    looks = []

    def commit_at_the_third_look() -> None:
        looks.append(monotonic())
        board.next[0][0] = len(looks) // 3

    gate.wait(1, commit_at_the_third_look)
    assert len(looks) == 3
    assert timings.seconds["wait/learner"] >= looks[2] - looks[0] > 0
    gate.wait(1, lambda: looks.append(0.0))
    assert len(looks) == 4, "one look, however long nothing has to be waited for"
    gate.discard()


def test_an_exception_of_the_watch_ends_the_wait():
    gate = LearnerGate(board_of(1), OnPolicyPace(1, 0), Timings())

    def dead() -> None:
        raise LookupError("an actor is dead")

    with pytest.raises(LookupError):
        gate.wait(1, dead)
    gate.discard()
