"""`offbeat bench` and auto layout measure worlds with several agents, and all policies of a run together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.runs import SMALL
from tests.support.thorough import thorough

from offbeat.api.train import train
from offbeat.config.config_file import load
from offbeat.config.resolve import resolve
from offbeat.core.types import ENV_STEP
from offbeat.runtime.acting import Acting
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import build
from offbeat.tuning import bench, costs, run_speed
from offbeat.tuning.auto_layout import with_measured_topology
from offbeat.tuning.costs import MeasuredPolicy, act_cost, learn_cost
from offbeat.tuning.recorded_envs import RecordedEnvs, random_slot

CARTS, MIXED, NIM = (f"offbeat.envs.testing.{path}" for path in ("worlds:CartPoles", "worlds:MixedSpaces", "games:Nim"))
ONE_FROZEN = {"first": {"agents": ["cart_0"]}, "frozen": {"agents": ["*"], "train": False, "init_from": "earlier"}}
KEYS = ("c_env_us", "c_act_us", "c_learn_us", "achieved_sps", "achieved_agent_sps")


def small(env: str, **flags: Any) -> Any:
    return resolve("ppo", env, flags={**SMALL, **flags})


def acted(begun: Callable[..., Any], env: str, **flags: Any) -> tuple[PacedParts, Acting]:
    """Return the parts of a serial run, and its actors, which have acted the tickets of the first learning step."""
    parts, acting = begun(env, **flags)
    acting.wait(parts.pace.acted_before_learn(0))
    return parts, acting


@pytest.mark.usefixtures("measured_briefly")
@pytest.mark.parametrize(
    ("env", "flags"),
    [
        (CARTS, {"runtime": "hogwild", "workers": 1}),
        (CARTS, {"runtime": "processes", "policies": ONE_FROZEN}),
        (NIM, {"runtime": "serial", "league.snapshot_every": 2}),
        *thorough((CARTS, {"runtime": "serial"}), (NIM, {"runtime": "serial"})),
    ],
)
def test_bench_measures_worlds_with_all_policies(env, flags):
    result = bench.report(small(env, **flags), 0.0, print)
    assert min(result[key] for key in KEYS) > 0


@pytest.mark.usefixtures("measured_briefly")
def test_agent_steps_per_second_are_the_decisions_of_all_policies_that_learn():
    separate = bench.report(small(MIXED, runtime="threads", policies="separate"), 0.0, print)
    assert min(separate[key] for key in KEYS) > 0
    assert separate["achieved_agent_sps"] == pytest.approx(3 * separate["achieved_sps"]), "three agents always decide"


def test_acting_without_a_learner_is_measured_in_env_steps_of_worlds():
    assert bench.sampling_sps(small(MIXED, runtime="serial", policies="separate"), 0.0, print) > 0


def test_every_policy_learns_in_each_measured_learning_step(begun):
    parts, acting = acted(begun, CARTS, policies={"first": {"agents": ["cart_0"]}, "second": {"agents": ["*"]}})
    before = [{name: array.copy() for name, array in policy.algorithm.weights().items()} for policy in parts.policies]
    step = next(run_speed._learned(parts, acting, print))
    assert (step.number, step.env_steps) == (0, 4 * 16)
    for policy, weights in zip(parts.policies, before, strict=True):
        assert any(not np.array_equal(policy.algorithm.weights()[name], array) for name, array in weights.items())
        assert policy.weights.newest == 1


def noting(calls: list[Any], note: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that notes each call, and calls `call`."""

    def noted(*arguments: Any) -> Any:
        calls.append(note)
        return call(*arguments)

    return noted


def test_learning_costs_are_those_of_all_policies_and_restore_their_weights(begun, monkeypatch):
    parts, _ = acted(begun, MIXED, policies="separate")
    before = [{name: array.copy() for name, array in policy.algorithm.weights().items()} for policy in parts.policies]
    rehearsed: list[str] = []
    for policy in parts.policies:
        monkeypatch.setattr(policy.learner, "rehearse", noting(rehearsed, policy.name, policy.learner.rehearse))
    assert learn_cost(parts, 0, 0.01).cpu > 0
    assert set(rehearsed) == {"driver", "gunner", "scout"}
    for policy, weights in zip(parts.policies, before, strict=True):
        assert all(np.array_equal(policy.algorithm.weights()[name], array) for name, array in weights.items())


def test_random_rows_have_one_env_step_per_world_and_row():
    parts = build(small(CARTS, runtime="serial", envs_per_actor=2))
    (plan,) = parts.plan.policies
    slot = random_slot(plan, plan.env_spec)
    assert slot[ENV_STEP].astype(int).tolist() == [[1, 0, 0, 1, 0, 0]] * len(slot["valid"])
    outcome = RecordedEnvs(plan.env_spec, slot).recv()
    assert outcome.env_step is not None
    assert outcome.env_step.sum() == 2
    parts.close()


def test_the_cost_of_acting_is_per_step_of_the_world(monkeypatch):
    counted: list[float] = []
    cost = costs.Meter.cost

    def counting(meter: costs.Meter, steps: float) -> costs.Cost:
        counted.append(steps)
        return cost(meter, steps)

    monkeypatch.setattr(costs.Meter, "cost", counting)
    parts = build(small(MIXED, runtime="serial", policies="separate", envs_per_actor=2, unroll_length=16))
    policies = [
        MeasuredPolicy(plan.spec, plan.env_spec, policy.weights.open(0), random_slot(plan, plan.env_spec))
        for plan, policy in zip(parts.plan.policies, parts.policies, strict=True)
    ]
    act_cost(policies, 0.0)
    assert 2 * 16 in counted, "one unroll of two worlds, not of their six columns"
    parts.close()


@pytest.mark.parametrize(("env", "policies"), [(CARTS, ONE_FROZEN), *thorough((CARTS, "shared"), (MIXED, "separate"))])
def test_auto_layout_divides_worlds_over_actors_and_keeps_their_number(env, policies):
    chosen, reason, *_ = with_measured_topology(
        small(env, runtime="threads", split="measured", envs_per_actor=6, policies=policies)
    )
    assert chosen.runtime.split == "given"
    assert chosen.runtime.batch_unrolls * chosen.runtime.envs_per_actor == 6
    assert reason.startswith(f"{chosen.runtime.actors} actor")


def test_a_measured_run_with_several_policies_in_processes_starts_and_ends(tmp_path):
    run = train(
        "ppo", MIXED, steps=256, policies="separate", runtime="processes", envs_per_actor=4, unroll_length=16,
        minibatch_size=32, eval_every=0, run_dir=tmp_path / "run", progress="none",
    )  # fmt: skip
    assert run.exit_code == 0
    assert load(run.path / "config.toml").runtime.split == "given"
