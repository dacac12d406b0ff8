"""Auto layout chooses a topology from costs; it does not change the batch's columns or any random stream."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sample_envs.env_zoo import Wanderer
from tests.support.runs import SMALL, small_run, weights_of
from tests.support.thorough import thorough

from offbeat.config.config_file import load
from offbeat.config.resolve import resolve
from offbeat.config.runtimes import RUNTIMES
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.process.threads import set_thread_count, usable_cores
from offbeat.metrics import expectation
from offbeat.metrics.speed_model import Topology
from offbeat.tuning import auto_layout
from offbeat.tuning.auto_layout import (
    ACTORS_PER_CORE,
    NEAR_BEST,
    Candidate,
    actor_counts,
    choose,
    with_measured_topology,
)
from offbeat.tuning.chosen_layout import ChosenLayout
from offbeat.tuning.costs import Cost, EnvStepper

REASON = (
    r"\d+ actors? x \d+ envs?, \d+ learner threads?: env [\d.]+ us, act [\d.]+ us, learn [\d.]+ us per env step on "
    r"\d+ cores?; bound by the (machine|actors|learner)"
)
BATCH: dict[str, Any] = {"envs_per_actor": 24, "split": "measured"}


Costs = tuple[float, float, float]


def computing(us: float) -> Cost:
    return Cost(us, us)


def candidates(costs: Costs, *actors: int, cores: int = 2, max_lag: int = 1) -> list[Candidate]:
    """Return topologies with these numbers of actors, and with costs of env, act and learn that are CPU time."""
    env, act, learn = map(computing, costs)
    return [Candidate(Topology(RUNTIMES["threads"], number, 1, cores, max_lag), env, act, learn) for number in actors]


def measured(env: str = "CartPole-v1", **settings: Any) -> Any:
    return resolve("ppo", env, flags={**SMALL, "runtime": "threads", **BATCH, **settings})


class SlowToMake(Wanderer):
    """Takes a while to make."""

    made = 0

    def __init__(self) -> None:
        SlowToMake.made += 1
        time.sleep(0.02)


class Failing(Wanderer):
    """Raises in its first step, as long as there are failures left. The first one that is made, by preflight, works."""

    left = 0
    made = 0

    def __init__(self) -> None:
        Failing.made += 1
        self.works = Failing.made == 1

    def step(self, action: Any) -> Any:
        if Failing.left and not self.works:
            Failing.left -= 1
            raise ConnectionError("the simulator is gone")
        return super().step(action)


ENVS: dict[str, Any] = {
    "auto_layout/SlowToMake-v0": SlowToMake,
    "auto_layout/Failing-v0": Failing,
}
for env_id, entry in ENVS.items():
    gym.register(env_id, entry)


# --- choosing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "cores", "max_lag", "actors"),
    [
        ((31.0, 1.2, 5.1), 2, 1, 2),  # 1 actor: 31 k; 2: 53.6 k, as both cores are busy
        ((31.0, 1.2, 5.1), 1, 1, 1),
        ((31.0, 1.2, 5.1), 16, 1, 8),  # the learner takes 196 k, 6.3 actors' worth
        ((0.9, 0.4, 6.0), 2, 1, 1),  # bound by the learner, whoever acts
        ((31.0, 1.2, 5.1), 2, 0, 2),  # by turns: 26.8 k or 47.2 k
        ((0.9, 0.4, 40.0), 2, 0, 1),  # by turns: 24.2 k or 24.6 k
    ],
)
def test_the_smallest_of_nearly_equally_fast_topologies_is_chosen(costs, cores, max_lag, actors):
    considered = candidates(costs, 1, 2, 4, 8, 16, cores=cores, max_lag=max_lag)
    assert choose(considered).topology.actors == actors


def test_more_actors_than_cores_are_chosen_for_envs_that_wait():
    waiting = [replace(candidate, env=Cost(10, 1000, waits=True)) for candidate in candidates((0, 1, 5), 1, 2, 4, 8)]
    assert choose(waiting).topology.actors == 8
    assert waiting[0].speed_model.bounds["actors"] == pytest.approx(1e6 / 1001)


@pytest.mark.parametrize(("cpu", "wall", "threads"), [(44, 22, 2), (60, 30, 2), (120, 39, 1), (41, 40, 1)])
def test_learner_threads_are_added_only_if_they_increase_the_speed(cpu, wall, threads):
    narrow = candidates((2, 1, 40), 1, 2)
    wider = [
        replace(candidate, learn=Cost(cpu, wall), topology=replace(candidate.topology, learner_threads=2))
        for candidate in narrow
    ]
    assert choose([*narrow, *wider]).topology.learner_threads == threads


prices = st.floats(0.1, 1000)


@given(st.tuples(prices, prices, prices), st.integers(1, 64), st.integers(0, 2), st.floats(1, 10))
def test_slower_envs_never_get_fewer_actors_and_the_choice_is_near_the_optimum(costs, cores, max_lag, factor):
    numbers = (1, 2, 4, 8, 16, 32)
    env, act, learn = costs
    considered = candidates(costs, *numbers, cores=cores, max_lag=max_lag)
    cheap = choose(considered)
    dear = choose(candidates((factor * env, act, learn), *numbers, cores=cores, max_lag=max_lag))
    assert dear.topology.actors >= cheap.topology.actors
    best = max(candidate.speed_model.attainable_sps for candidate in considered)
    assert cheap.speed_model.attainable_sps >= NEAR_BEST * best


@given(st.integers(1, 8), st.integers(1, 60), st.integers(1, 20))
def test_columns_are_divided_evenly_over_actors_and_env_groups(groups, of_each, most):
    columns = groups * of_each
    numbers = actor_counts(columns, groups, most)
    assert numbers[0] == 1
    assert max(numbers) <= most
    assert all(columns % number == 0 and columns // number % groups == 0 for number in numbers)


# --- measuring ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "runtime"),
    [
        *(("CartPole-v1", "threads"), ("HalfCheetah-v5", "processes")),
        *thorough(("CartPole-v1", "processes"), ("HalfCheetah-v5", "threads")),
    ],
)
def test_auto_layout_does_not_change_the_columns_of_a_batch(env, runtime):
    config = measured(env, runtime=runtime, env_groups=2, unrolls_per_batch=2, envs_per_actor=6)
    layout = with_measured_topology(config)
    chosen, reason = layout.config, layout.reason
    topology = chosen.runtime
    assert topology.split == "given"
    assert topology.batch_unrolls * topology.envs_per_actor == 12
    assert topology.unrolls_per_batch == topology.actors <= usable_cores()
    assert topology.envs_per_actor % 2 == 0
    assert re.fullmatch(REASON, reason)
    assert reason.startswith(f"{topology.actors} actor")
    assert layout.expectation is not None
    assert min(layout.expectation.sps, layout.expectation.acting, layout.expectation.learning) > 0
    assert layout.next_best is None or layout.next_best.runtime.batch_rows == topology.batch_rows
    unsettled = {"split", "actors", "envs_per_actor", "unrolls_per_batch", "learner_threads"}
    before, after = config.tables()["runtime"], chosen.tables()["runtime"]
    assert {key for key in before if before[key] != after[key]} <= unsettled


def test_auto_layout_says_whether_given_inference_workers_pay_and_has_an_actor_for_each():
    served: dict[str, Any] = {"runtime": "processes", "inference": "worker", "inference_workers": 2}
    layout = with_measured_topology(measured(**served))
    assert layout.config.runtime.actors >= 2
    assert re.search(r"inference workers (pay|do not pay|make no difference)\b.*, by these costs$", layout.reason)


def test_more_inference_workers_than_actors_that_divide_the_envs_are_refused():
    served: dict[str, Any] = {"runtime": "processes", "inference": "worker", "inference_workers": 5}
    with pytest.raises(ConfigError, match=r"of up to \d+ actors at most \d divide 24 envs in env_groups=1"):
        with_measured_topology(measured(**served))


def test_a_given_topology_is_not_measured():
    config = measured(split="given")
    assert with_measured_topology(config) == ChosenLayout(config)


@pytest.mark.parametrize("waits", [False, True])
def test_more_actors_than_cores_are_considered_only_for_envs_that_wait(monkeypatch, waits):
    considered: list[int] = []

    def noted(candidates: list[Candidate]) -> Candidate:
        considered.extend(candidate.topology.actors for candidate in candidates)
        return choose(candidates)

    monkeypatch.setattr(EnvStepper, "cost", lambda *_: Cost(10.0, 1000.0, waits))
    monkeypatch.setattr(auto_layout, "choose", noted)
    with_measured_topology(measured(envs_per_actor=8 * usable_cores() * ACTORS_PER_CORE))
    assert max(considered) == usable_cores() * (ACTORS_PER_CORE if waits else 1)


def test_envs_that_are_slow_to_create_are_not_created_for_every_topology(monkeypatch):
    monkeypatch.setattr(auto_layout, "ENVS_S", 0.1)
    SlowToMake.made = 0
    with_measured_topology(measured("auto_layout/SlowToMake-v0"))
    assert SlowToMake.made == 2, "one before anything begins, and one that is measured"


@pytest.mark.parametrize(("settings", "budget"), [({}, 5), ({"runtime": "processes", "restart_budget": 2}, 2)])
def test_an_env_that_fails_during_measurement_is_recreated_within_the_restart_budget(settings, budget, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(Failing, "made", 0)
    monkeypatch.setattr(Failing, "left", budget)
    with_measured_topology(measured("auto_layout/Failing-v0", **settings), said.append)
    assert Failing.left == 0
    assert [text.splitlines()[0].rpartition("; ")[2] for text in said] == [
        f"restart {n} of {budget}" for n in range(1, budget + 1)
    ]
    assert all("while the envs were measured" in text for text in said)
    assert "raise ConnectionError" in said[0]


def test_an_env_that_fails_too_often_during_measurement_ends_the_run_with_a_message(monkeypatch):
    monkeypatch.setattr(Failing, "made", 0)
    monkeypatch.setattr(Failing, "left", 10**9)
    with pytest.raises(EnvFailed, match=r"while the envs were measured: .*simulator is gone.*budget of 1 is") as caught:
        with_measured_topology(measured("auto_layout/Failing-v0", runtime="processes", restart_budget=1))
    assert "raise ConnectionError" in "".join(caught.value.__notes__)


def test_given_learner_threads_are_not_changed(monkeypatch):
    monkeypatch.setattr(auto_layout, "UPDATE_US", 0.0)
    assert with_measured_topology(measured(learner_threads=1))[0].runtime.learner_threads == 1


@pytest.mark.parametrize(("learning_us", "expected"), [(1.0, [1]), (1e6, [1, 2])])
def test_learner_threads_are_measured_only_for_large_updates(learning_us, expected, monkeypatch):
    tried: list[int] = []

    def noted(threads: int) -> None:
        tried.append(threads)
        set_thread_count(threads)

    monkeypatch.setattr(auto_layout, "set_thread_count", noted)
    monkeypatch.setattr(auto_layout, "learn_cost", lambda *_: Cost(learning_us, learning_us))
    monkeypatch.setattr("offbeat.runtime.assembly.usable_cores", lambda: 2)
    with_measured_topology(measured())
    assert tried == expected


def test_a_long_learning_step_is_measured_once_and_reported(monkeypatch):
    said: list[str] = []

    def repeated(*_: object) -> Cost:
        raise AssertionError("the learning step is repeated")

    monkeypatch.setattr(auto_layout, "learn_cost", repeated)
    monkeypatch.setattr(auto_layout, "LONG_STEP_S", 0.0)
    layout = with_measured_topology(measured(learner_threads=1), said.append)
    assert layout.config.runtime.split == "given"
    assert layout.expectation is not None
    assert layout.expectation.learning > 0
    assert len(said) == 1
    assert said[0].startswith("a learning step takes about ")


# --- in a run -----------------------------------------------------------------------------------------------


def test_a_run_with_auto_layout_saves_its_topology_and_equals_a_run_with_that_topology(tmp_path, monkeypatch):
    monkeypatch.setattr(expectation, "MIN_S", 0.0)
    by_turns = {**BATCH, "runtime": "threads", "max_lag": 0}
    chosen = small_run(tmp_path / "measured", **by_turns)
    topology = load(chosen.path / "config.toml").runtime
    assert topology.split == "given"
    log = (chosen.path / "log.txt").read_text()
    assert re.search(r"actors? x \d+ envs?, 1 learner thread: .*; acting and learning take turns", log)
    assert re.search(r"\nauto layout expected [\d,]+ env steps/s, and [\d,]+ were measured", log)
    same = {
        key: getattr(topology, key)
        for key in ("actors", "envs_per_actor", "unrolls_per_batch", "learner_threads", "split")
    }
    given = small_run(tmp_path / "given", **{**by_turns, **same})
    assert weights_of(given.path) == weights_of(chosen.path)
    assert "expected" not in (given.path / "log.txt").read_text()
