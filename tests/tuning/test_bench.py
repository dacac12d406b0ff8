"""`bench` runs the real runtimes, and its results follow from the costs as the documentation says."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import gymnasium as gym
import pytest
from tests.sample_envs.env_zoo import Wanderer
from tests.support.process_state import open_descriptors
from tests.support.runs import SMALL, unrolls_of

from offbeat.cli.bench import _table
from offbeat.config.resolve import resolve
from offbeat.config.runtimes import runtime_entry
from offbeat.core.errors import RunFailed
from offbeat.metrics.speed_model import Topology
from offbeat.runtime import runtimes
from offbeat.runtime.acting import Acting
from offbeat.runtime.assembly import topology_of
from offbeat.runtime.board import Bell
from offbeat.runtime.runtimes import build
from offbeat.tuning import bench, run_speed
from offbeat.tuning.bench import Costs, results
from offbeat.tuning.layouts import MeasuredLayout
from offbeat.tuning.run_speed import Speed, acting_speed, hogwild_sps, learning_speed

RUNTIMES = ("serial", "threads", "processes")
COSTS = Costs(env=30.0, act=2.0, learn=8.0, learn_wall=8.0)
"""25,000 env steps/s on one core."""
MEASURES_LONG = re.compile(
    r"a learning step and its env steps take about \S+ s, so this measurement takes about \d+ s more"
)


class Tires(Wanderer):
    """Fails after more steps than are taken before anything begins."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 300:
            raise RuntimeError("out of breath")
        return super().step(action)


class FailsOnce(Wanderer):
    """The second one of a process fails once: in the main process, that is the first whose costs are measured."""

    made = 0
    failures = 0

    def __init__(self) -> None:
        FailsOnce.made += 1
        self.is_second = FailsOnce.made == 2

    def step(self, action: Any) -> Any:
        if self.is_second and FailsOnce.failures:
            FailsOnce.failures -= 1
            raise RuntimeError("out of breath")
        return super().step(action)


ENVS: dict[str, Any] = {"bench/Tires-v0": Tires, "bench/FailsOnce-v0": FailsOnce}
for env_id, entry in ENVS.items():
    gym.register(env_id, entry)


def topology(**changes: Any) -> Topology:
    runtime = runtime_entry(changes.pop("runtime", "processes"))
    return replace(Topology(runtime, actors=1, learner_threads=1, cores=2, max_lag=1), **changes)


def small(**settings: Any) -> Any:
    return resolve("ppo", settings.pop("env", "CartPole-v1"), flags={**SMALL, **settings})


def test_results_follow_from_costs_and_speed():
    costs = replace(COSTS, learn_wall=64.0)
    result = results(topology(), costs, Speed(25_000, 25_000, 0.5, 1.0, last_step=9))
    assert (result["c_env_us"], result["c_act_us"], result["c_learn_us"]) == (30.0, 2.0, 8.0)
    assert result["limit_sps"] == pytest.approx(50_000)
    assert result["serial_limit_sps"] == pytest.approx(25_000)
    assert result["layout_limit_sps"] == pytest.approx(31_250), "its learner is limited by CPU time"
    assert result["bound_by"] == "actors"
    assert result["fraction"] == pytest.approx(0.5)
    assert result["layout_fraction"] == pytest.approx(0.8)
    assert result["overlap_gain_max"] == pytest.approx(96 / 64)
    assert (result["policy_lag_mean"], result["policy_lag_max"]) == (0.5, 1.0)
    waiting = results(topology(), replace(costs, env_wait=968.0), Speed(900, 900, 0.5, 1.0, last_step=9))
    assert (waiting["c_env_us"], waiting["env_wait_us"]) == (30.0, 968.0)
    assert waiting["layout_limit_sps"] == pytest.approx(1000), "one actor waits in one env step after the other"


@pytest.mark.parametrize("actors", [1, 2, 3])
def test_the_time_in_which_an_env_waits_is_shown_with_what_more_actors_may_gain(actors):
    layout = {"layouts": [asdict(MeasuredLayout("processes", actors, 2, 1, 900.0, 900.0))], "failed_layouts": []}
    of_table = {**layout, "advice": "", "other_cores": None}
    busy, waiting = (
        _table(results(topology(), costs, Speed(900, 900, 0.5, 1.0, last_step=9)) | of_table)
        for costs in (COSTS, replace(COSTS, env_wait=968.0))
    )
    assert "waits" not in busy
    assert "an env step takes 998.00 us, in 968.00 us of which the env waits" in waiting
    assert ("more actors than cores" in waiting) is (actors <= 2)


def test_a_speed_above_the_limit_is_refused_as_measured_wrongly():
    results(topology(), COSTS, Speed(1.04 * 31_250, 0, 0, 0, last_step=9))
    with pytest.raises(RunFailed, match=r"achieved 33125 .* limit of 31250 .* measured wrongly"):
        results(topology(), COSTS, Speed(1.06 * 31_250, 0, 0, 0, last_step=9))


@pytest.mark.usefixtures("measured_briefly")
@pytest.mark.parametrize("name", RUNTIMES)
def test_every_paced_runtime_is_measured_with_its_own_topology_and_lag(name):
    result = bench.report(small(runtime=name, actors=2, max_lag=2), 0.0, print)
    costs = Costs(result["c_env_us"], result["c_act_us"], result["c_learn_us"], learn_wall=0.0)
    ideal = costs.speed_model(topology_of(small(runtime=name, actors=2, max_lag=2), 1)).with_ideal_learner()
    assert result["layout_limit_sps"] == pytest.approx(ideal.limit_sps)
    assert result["bound_by"] == ideal.bound_by
    assert min(costs.env, costs.act, costs.learn, result["achieved_sps"]) > 0
    assert 0 <= result["policy_lag_mean"] <= result["policy_lag_max"] <= 2


@pytest.mark.parametrize("name", RUNTIMES)
def test_an_act_only_measurement_does_not_learn(name):
    config = small(runtime=name, actors=2, env="Pendulum-v1")
    assert bench.sampling_sps(config, 0.0, print) > 0
    parts = build(config)
    try:
        before = {name: array.copy() for name, array in parts.policy.algorithm.weights().items()}
        acting_speed(parts, 0.0, print)
        assert all((parts.policy.algorithm.weights()[name] == array).all() for name, array in before.items())
    finally:
        parts.close()


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_last_learned_batch_is_unchanged_after_the_actors_have_ended(name):
    parts = build(small(runtime=name, actors=2, max_lag=1))
    try:
        last = learning_speed(parts, 0.0, print).last_step
        versions = unrolls_of(parts).arrays_of(last)["behavior_version"]
        assert versions.min() >= last - 1
        assert versions.max() <= last
    finally:
        parts.close()


def test_the_last_batch_has_env_steps_where_every_second_one_has_only_resets():
    one_row = {"unroll_length": 1, "minibatch_size": 1, "normalize_advantages": False}
    parts = build(small(env="offbeat/Bandit-v0", kwargs={"pulls": 1}, **one_row))
    try:
        last = learning_speed(parts, 0.0, print).last_step
        assert parts.trained[0].learner.feed.env_steps_per_use(last) > 0
    finally:
        parts.close()


@pytest.mark.parametrize("name", RUNTIMES)
def test_an_env_that_fails_ends_the_benchmark_with_its_error(name):
    config = small(runtime=name, env="bench/Tires-v0")
    if name == "processes":
        config = replace(config, runtime=replace(config.runtime, restart_budget=0))
    with pytest.raises(RunFailed) as caught:
        bench.report(config, 30.0, print)
    assert "out of breath" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))


@pytest.mark.usefixtures("measured_briefly")
def test_an_env_that_fails_while_its_cost_is_measured_is_created_again(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(FailsOnce, "made", 0)
    monkeypatch.setattr(FailsOnce, "failures", 1)
    result = bench.report(small(runtime="processes", env="bench/FailsOnce-v0"), 0.0, lambda *text: said.append(text[0]))
    assert result["achieved_sps"] > 0
    assert FailsOnce.failures == 0
    assert "out of breath" in said[0]
    assert "; restart 1 of 5" in said[0]


@pytest.mark.usefixtures("measured_briefly")
@pytest.mark.parametrize("learning_steps_are_slow", [False, True])
def test_a_benchmark_that_takes_longer_than_planned_says_how_long(learning_steps_are_slow, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(run_speed, "CLEAR_S", 0.0)
    monkeypatch.setattr(run_speed, "SLOW_S", -1e9 if learning_steps_are_slow else 1e9)
    with closing(build(small(runtime="serial"))) as parts:
        learning_speed(parts, 0.0, lambda *text: said.append(text[0]))
    assert len(said) == learning_steps_are_slow
    assert all(MEASURES_LONG.fullmatch(text) for text in said)


@pytest.mark.usefixtures("measured_briefly")
def test_a_benchmark_shows_what_it_measures():
    shown: list[str] = []
    bench.report(small(runtime="processes"), 0.0, print, show=shown.append)
    assert shown == [
        "measuring the run",
        "measuring the costs of its parts",
        "measuring the run with inference workers",
        "measuring other layouts",
    ]


def test_lock_free_workers_that_cannot_be_made_leave_nothing_open(monkeypatch):
    def fail(_number: int) -> None:
        raise OSError("Too many open files")

    monkeypatch.setattr(Bell, "make_several", fail)
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        hogwild_sps(small(runtime="hogwild", workers=2), 0.1, print)
    assert open_descriptors() == before


def test_the_thread_that_loads_ahead_has_ended_when_the_actors_are_closed(monkeypatch):
    loaders: list[str] = []

    def acting_of(*arguments: Any) -> Acting:
        acting = runtimes.acting_of(*arguments)
        close = acting.close

        def note_and_close() -> None:
            loaders.extend(thread.name for thread in threading.enumerate() if "loader" in thread.name)
            close()

        monkeypatch.setattr(acting, "close", note_and_close)
        return acting

    monkeypatch.setattr("offbeat.tuning.run_speed.acting_of", acting_of)
    parts = build(small(runtime="threads", max_lag=1, load_ahead=1))
    try:
        learning_speed(parts, 0.0, print)
        assert parts.timings.seconds["learn/load_wait"] > 0
    finally:
        parts.close()
    assert not loaders
