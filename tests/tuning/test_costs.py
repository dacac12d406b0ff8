"""Costs are measured for the right work, with the right clocks."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import closing
from itertools import chain, count, repeat
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support.matrix import CARTS
from tests.support.runs import SMALL, small_run, unrolls_of

from offbeat.config.resolve import resolve
from offbeat.envs.call_watch import UNWATCHED
from offbeat.envs.make import make_envs
from offbeat.models.acting import make_policy
from offbeat.runtime.runtimes import build
from offbeat.tuning.costs import (
    Cost,
    EnvStepper,
    MeasuredPolicy,
    Meter,
    _empty_block_s,
    _SchedulerTimes,
    act_cost,
    learn_cost,
)
from offbeat.tuning.recorded_envs import RecordedEnvs


def test_the_cost_is_the_cpu_time_of_computation_and_the_wall_time_of_waiting():
    assert Cost(cpu=10, wall=11).time == 10
    assert Cost(cpu=10, wall=90).time == 10
    assert Cost(cpu=10, wall=90, waits=True).time == 90
    assert Cost(cpu=20, wall=11).time == 11, "two threads, side by side"


def computing_cost() -> Cost:
    """The cost of a computation that is much shorter than the time for which a process has a core."""
    computing = Meter()
    with computing:
        sum(number * number for number in range(10_000))
    return computing.cost(1)


def test_a_meter_distinguishes_sleeping_from_computing():
    sleeping = Meter()
    for _ in range(20):
        with sleeping:
            time.sleep(0.002)
    assert sleeping.cost(20).waits
    assert not all(computing_cost().waits for _ in range(100))  # another process may have the core for a while


def test_waiting_for_a_core_is_not_waiting_for_something_else(monkeypatch, tmp_path):
    """Of 10 ms per env step, 0.2 ms are computed; then 6 ms, or 9.6 ms, are spent waiting for a core.

    One of two threads waits for the other one, which waits for a core.
    """
    monkeypatch.setattr("offbeat.tuning.costs.THREADS", tmp_path)
    stepping, computing = (tmp_path / name / "schedstat" for name in ("1", "2"))
    for times in (stepping, computing):
        times.parent.mkdir()
        times.write_text("1000 50000000 3\n")
    meter = Meter()
    with meter:
        computing.write_text("2000 110000000 30\n")
    meter.cpu, meter.wall, meter._entered = 0.002, 0.1, 0
    cost = meter.cost(10)
    assert cost.waits
    assert cost.time == pytest.approx(4000)
    meter.without_core = 0.096
    cost = meter.cost(10)
    assert not cost.waits
    assert cost.time == pytest.approx(200)
    assert cost.wall == pytest.approx(10_000)


def test_a_thread_that_an_env_starts_in_a_measurement_has_its_time_of_waiting_for_a_core(monkeypatch, tmp_path):
    monkeypatch.setattr("offbeat.tuning.costs.THREADS", tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("1000 50000000 3\n")
    meter = Meter()
    with meter:
        (tmp_path / "2").mkdir()
        (tmp_path / "2" / "schedstat").write_text("2000 96000000 30\n")
    meter.cpu, meter.wall, meter._entered = 0.002, 0.1, 0
    cost = meter.cost(10)
    assert not cost.waits
    assert cost.time == pytest.approx(200)


@pytest.mark.parametrize(("given_up", "taken_away"), [(3, 40), (40, 3)])
def test_without_times_of_waiting_for_a_core_work_waits_only_if_it_gives_up_its_core(
    monkeypatch, tmp_path, given_up, taken_away
):
    switches = chain([(100, 100)], repeat((100 + given_up, 100 + taken_away)))
    monkeypatch.setattr("offbeat.tuning.costs.THREADS", tmp_path / "missing")
    monkeypatch.setattr(
        "offbeat.tuning.costs.getrusage",
        lambda _who: SimpleNamespace(**dict(zip(("ru_nvcsw", "ru_nivcsw"), next(switches), strict=True))),
    )
    meter = Meter()
    meter.cpu, meter.wall, meter._entered = 0.002, 0.1, 0
    assert meter.cost(10).waits == (given_up > taken_away)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells these times")
def test_a_thread_that_ends_in_a_measurement_keeps_its_time_of_waiting_for_a_core():
    ending = threading.Event()
    thread = threading.Thread(target=ending.wait)
    thread.start()
    times = _SchedulerTimes()
    threads = len(times._without_core_ns)
    before = times.without_core_s()
    ending.set()
    thread.join()
    assert threads > 1
    assert times.without_core_s() >= before > 0


def test_the_overhead_of_the_meter_is_subtracted_and_the_cost_is_never_negative(monkeypatch):
    monkeypatch.setattr("offbeat.tuning.costs._empty_block_s", lambda: (0.05, 0.1))
    meter = Meter()
    meter.cpu, meter.wall, meter._entered = 1.0, 2.0, 4
    cost = meter.cost(10)
    assert cost.cpu == pytest.approx(80_000)
    assert cost.wall == pytest.approx(160_000)
    monkeypatch.setattr("offbeat.tuning.costs._empty_block_s", lambda: (1e3, 1e3))
    assert meter.cost(10)[:2] == (0, 0)


def test_waiting_for_a_core_is_no_overhead_of_the_meter(monkeypatch):
    now = count()
    monkeypatch.setattr("offbeat.tuning.costs.perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(_SchedulerTimes, "without_core_s", lambda _: float(next(now)))  # all the time that passes
    assert _empty_block_s()[1] == 0


def test_all_env_groups_are_stepped_in_a_measurement(begun):
    parts, _ = begun("CartPole-v1", envs_per_actor=4, env_groups=2)
    policy = make_policy(parts.policy.spec)
    policy.load(parts.policy.weights.read(0))
    with closing(make_envs("CartPole-v1", 4, seed=0, groups=2, role="measure")) as envs:
        stepper = EnvStepper([(envs, policy)], seed=0, watch=UNWATCHED)
        (columns,) = stepper._columns
        before = columns._observation["observation"].copy()
        assert stepper.cost(0.0).cpu > 0
        assert (columns._observation["observation"] != before).any(axis=1).all(), "every column has moved"


def test_recorded_envs_replay_the_rows_of_an_unroll_repeatedly(begun):
    parts, acting = begun("CartPole-v1")
    acting.wait(1)
    slot = {name: array.copy() for name, array in parts.policy.slots.open(0).items()}
    envs = RecordedEnvs(parts.env_spec, slot)
    assert (envs.reset()["observation"] == slot["observation"][0]).all()
    length = len(slot["reward"]) - 1
    for row in [*range(length), 0, 1]:
        outcome = envs.recv()
        assert (outcome.observation["observation"] == slot["observation"][row + 1]).all()
        assert (outcome.reward == slot["reward"][row]).all()
        assert (outcome.valid == slot["valid"][row]).all()


def test_measuring_acting_does_not_change_the_recorded_unroll(begun):
    parts, acting = begun("CartPole-v1")
    acting.wait(1)
    slot = parts.policy.slots.open(0)
    before = {name: array.copy() for name, array in slot.items()}
    policy = MeasuredPolicy(parts.policy.spec, parts.env_spec, parts.policy.weights.read(0) + 1, slot)
    assert act_cost([policy], 0.01).cpu > 0
    assert all((slot[name] == array).all() for name, array in before.items())


def test_every_measurement_of_learning_starts_from_the_same_weights(begun):
    parts, acting = begun("CartPole-v1")
    acting.wait(1)
    before = {name: array.copy() for name, array in parts.policy.algorithm.weights().items()}
    assert learn_cost(parts, 0, 0.05).cpu > 0
    after = parts.policy.algorithm.weights()
    assert all(np.array_equal(after[name], array) for name, array in before.items())


def test_the_cost_of_learning_can_be_measured_at_a_later_use_of_a_batch_and_for_a_frozen_policy(begun, tmp_path):
    trained = small_run(tmp_path / "trained", CARTS, runtime="serial", steps=64).path
    frozen = {"agents": "*", "train": False, "init_from": str(trained)}
    parts, acting = begun(CARTS, passes=2, policies={"own": {"agents": "cart_0"}, "frozen": frozen})
    for step in range(2):
        acting.wait(parts.pace.acted_before_learn(step))
        for policy in parts.policies:
            policy.learner.learn(step, 0.0)
        acting.finish(step + 1)
    assert parts.trained[0].learner.feed.env_steps(1) == 0
    assert learn_cost(parts, 1, 0.01).time > 0


@pytest.mark.parametrize("load_ahead", [0, 1])
def test_the_time_that_a_loader_takes_beside_the_learner_is_known(load_ahead):
    parts = build(resolve("ppo", "CartPole-v1", flags={**SMALL, "runtime": "threads", "load_ahead": load_ahead}))
    with closing(parts):
        parts.policy.learner.publish(0)
        unrolls_of(parts).open(0)["valid"][:] = True
        cost = learn_cost(parts, 0, 0.01)
        assert 0 < cost.loading < cost.wall if load_ahead else cost.loading == 0
