"""The measured split chooses a layout from costs; it keeps the batch's columns and changes nothing that is random."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.env_zoo import Wanderer
from tests.reference.runs import SMALL, small_run, weights_of

from offbeat.config.resolve import load, resolve
from offbeat.core.errors import EnvFailed
from offbeat.core.threads import limit, usable_cores
from offbeat.tuning import auto_layout
from offbeat.tuning.auto_layout import ACTORS_PER_CORE, NEAR_ENOUGH, Option, choose, divisions, with_measured_topology
from offbeat.tuning.costs import Cost

REASON = (
    r"\d+ actors? x \d+ envs?, \d+ learner threads?: env [\d.]+ us, act [\d.]+ us, learn [\d.]+ us per env step on "
    r"\d+ cores?; bound by the (machine|actors|learner)"
)
BATCH: dict[str, Any] = {"envs_per_actor": 24, "split": "measured"}


def computing(us: float) -> Cost:
    return Cost(us, us)


def options(env: float, act: float, learn: float, *actors: int, threads: int = 1) -> list[Option]:
    return [Option(number, threads, computing(env), computing(act), computing(learn)) for number in actors]


def measured(env: str = "CartPole-v1", **settings: Any) -> Any:
    return resolve("ppo", env, flags={**SMALL, "runtime": "threads", **BATCH, **settings})


class Waiting(Wanderer):
    """Waits a millisecond for each step, as for a simulator elsewhere."""

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        return super().step(action)


class SlowToMake(Wanderer):
    """Takes a while to make."""

    made = 0

    def __init__(self) -> None:
        SlowToMake.made += 1
        time.sleep(0.3)


class Failing(Wanderer):
    """Raises in the 20th step of its life, which preflight does not reach, as long as there are failures left."""

    left = 0
    age = 0

    def step(self, action: Any) -> Any:
        self.age += 1
        if self.age == 20 and Failing.left:
            Failing.left -= 1
            raise ConnectionError("the simulator is gone")
        return super().step(action)


ENVS: dict[str, Any] = {
    "split/Waiting-v0": Waiting,
    "split/SlowToMake-v0": SlowToMake,
    "split/Failing-v0": Failing,
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
def test_the_smallest_layout_is_chosen_that_is_about_as_quick_as_the_quickest(costs, cores, max_lag, actors):
    assert choose(options(*costs, 1, 2, 4, 8, 16), cores, max_lag).actors == actors


def test_actors_that_wait_are_worth_more_than_there_are_cores():
    waiting = [replace(option, env=Cost(10, 1000, waits=True)) for option in options(0, 1, 5, 1, 2, 4, 8)]
    assert choose(waiting, cores=2, max_lag=1).actors == 8
    assert waiting[0].limits(2)["actors"] == pytest.approx(1e6 / 1001)


@pytest.mark.parametrize(("cpu", "wall", "threads"), [(44, 22, 2), (60, 30, 2), (120, 39, 1), (41, 40, 1)])
def test_threads_for_the_learner_must_win_more_than_they_take_from_the_actors(cpu, wall, threads):
    wider = [replace(option, learn=Cost(cpu, wall), learner_threads=2) for option in options(2, 1, 40, 1, 2)]
    assert choose([*options(2, 1, 40, 1, 2), *wider], cores=2, max_lag=1).learner_threads == threads


prices = st.floats(0.1, 1000)


@given(st.tuples(prices, prices, prices), st.integers(1, 64), st.integers(0, 2), st.floats(1, 10))
def test_dearer_envs_never_get_fewer_actors_and_the_choice_is_near_the_best(costs, cores, max_lag, factor):
    numbers = (1, 2, 4, 8, 16, 32)
    env, act, learn = costs
    cheap = choose(options(env, act, learn, *numbers), cores, max_lag)
    dear = choose(options(factor * env, act, learn, *numbers), cores, max_lag)
    assert dear.actors >= cheap.actors
    best = max(option.sps(cores, max_lag) for option in options(env, act, learn, *numbers))
    assert cheap.sps(cores, max_lag) >= NEAR_ENOUGH * best


@given(st.integers(1, 8), st.integers(1, 60), st.integers(1, 20))
def test_actors_share_the_columns_evenly_and_in_whole_groups(groups, of_each, most):
    columns = groups * of_each
    numbers = divisions(columns, groups, most)
    assert numbers[0] == 1
    assert max(numbers) <= most
    assert all(columns % number == 0 and columns // number % groups == 0 for number in numbers)


# --- measuring ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["threads", "processes"])
@pytest.mark.parametrize("env", ["CartPole-v1", "HalfCheetah-v5"])
def test_the_columns_of_a_batch_stay_as_they_are(env, runtime):
    config = measured(env, runtime=runtime, env_groups=2, unrolls_per_batch=2, envs_per_actor=6)
    chosen, reason = with_measured_topology(config)
    layout = chosen.runtime
    assert layout.split == "given"
    assert layout.batch_unrolls * layout.envs_per_actor == 12
    assert layout.unrolls_per_batch == layout.actors <= usable_cores()
    assert layout.envs_per_actor % 2 == 0
    assert re.fullmatch(REASON, reason)
    assert reason.startswith(f"{layout.actors} actor")
    unsettled = {"split", "actors", "envs_per_actor", "unrolls_per_batch", "learner_threads"}
    before, after = config.tables()["runtime"], chosen.tables()["runtime"]
    assert {key for key in before if before[key] != after[key]} <= unsettled


def test_a_layout_that_was_given_is_not_measured():
    config = measured(split="given")
    assert with_measured_topology(config) == (config, "")


def test_more_actors_than_cores_are_considered_only_for_envs_that_wait():
    config = measured("split/Waiting-v0", envs_per_actor=8 * usable_cores() * ACTORS_PER_CORE)
    assert with_measured_topology(config)[0].runtime.actors > usable_cores()


def test_envs_that_take_long_to_make_are_not_made_for_every_layout():
    SlowToMake.made = 0
    with_measured_topology(measured("split/SlowToMake-v0"))
    assert SlowToMake.made == 2, "one before anything begins, and one that is measured"


@pytest.mark.parametrize(("settings", "budget"), [({}, 5), ({"runtime": "processes", "restart_budget": 2}, 2)])
def test_an_env_that_fails_while_a_layout_is_measured_is_tried_again_within_the_budget(settings, budget):
    said: list[str] = []
    Failing.left = budget
    with_measured_topology(measured("split/Failing-v0", **settings), said.append)
    assert Failing.left == 0
    assert [text.splitlines()[0].rpartition("; ")[2] for text in said] == [
        f"{n} of {budget}" for n in range(1, budget + 1)
    ]
    assert all("while the layout was measured" in text for text in said)
    assert "raise ConnectionError" in said[0]


def test_an_env_that_fails_too_often_while_a_layout_is_measured_ends_the_run_and_says_when():
    Failing.left = 10**9
    with pytest.raises(
        EnvFailed, match=r"while the layout was measured: .*simulator is gone.*budget of 1 is"
    ) as caught:
        with_measured_topology(measured("split/Failing-v0", runtime="processes", restart_budget=1))
    Failing.left = 0
    assert "raise ConnectionError" in "".join(caught.value.__notes__)


def test_threads_for_the_learner_that_were_given_are_kept(monkeypatch):
    monkeypatch.setattr(auto_layout, "UPDATE_US", 0.0)
    assert with_measured_topology(measured(learner_threads=1))[0].runtime.learner_threads == 1


def test_threads_for_the_learner_are_tried_where_updates_are_large(monkeypatch):
    tried: list[int] = []

    def noted(threads: int) -> None:
        tried.append(threads)
        limit(threads)

    monkeypatch.setattr(auto_layout, "limit", noted)
    monkeypatch.setattr(auto_layout, "usable_cores", lambda: 2)
    with_measured_topology(measured())
    assert tried == [1]
    monkeypatch.setattr(auto_layout, "UPDATE_US", 0.0)
    with_measured_topology(measured())
    assert tried == [1, 1, 2]


# --- in a run -----------------------------------------------------------------------------------------------


def test_a_measured_run_records_its_layout_and_its_reason_and_equals_a_run_that_was_given_it(tmp_path):
    by_turns = {**BATCH, "runtime": "threads", "max_lag": 0}
    chosen = small_run(tmp_path / "measured", **by_turns)
    layout = load(chosen.path / "config.toml").runtime
    assert layout.split == "given"
    assert re.search(
        r"actors? x \d+ envs?, 1 learner thread: .*; the sides take turns", (chosen.path / "log.txt").read_text()
    )
    same = {
        key: getattr(layout, key)
        for key in ("actors", "envs_per_actor", "unrolls_per_batch", "learner_threads", "split")
    }
    given = small_run(tmp_path / "given", **{**by_turns, **same})
    assert weights_of(given.path) == weights_of(chosen.path)
