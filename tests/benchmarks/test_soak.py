"""The plans of the soak: each can be run, they follow from seed and index, and together they cover everything."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import benchmarks.soak.envs  # noqa: F401 - registers what is trained on
import pytest
from benchmarks.soak import __main__ as soak
from benchmarks.soak.choices import (
    BEHAVIOURS,
    INFERENCE_MISHAPS,
    KINDS,
    LEARNER_MISHAPS,
    MISHAPS,
    POLICIES,
    POPULATION_MISHAPS,
    SIZES,
    WORLDS,
)
from benchmarks.soak.draw import draw
from benchmarks.soak.plan import TABLES, Plan
from benchmarks.soak.report import Report
from tests.support import survivors

from offbeat.config.assignments import parse_assignments
from offbeat.config.config import Config
from offbeat.config.env import EnvConfig
from offbeat.config.resolve import resolve
from offbeat.core.frozen_table import PlainTable
from offbeat.envs.checking.check import check_env

PLANS = [draw(1, index) for index in range(500)]


def config_of(plan: Plan) -> Config:
    """Return the config that a plan's command line makes, without the seconds that reading 500 of them would take."""
    _, algorithm, env, *rest = plan.train("run")
    flags, assignments = rest[: rest.index("--set")], rest[rest.index("--set") + 1 :]
    given: dict[str, Any] = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(flags[::2], flags[1::2], strict=True)
    }
    for name in ("progress", "run_dir", "import"):
        del given[name]
    if given.get("policies") == TABLES:
        given["policies"] = tomllib.loads(plan.tables())["policies"]
    return resolve(algorithm, env, flags=given, assignments=parse_assignments(assignments))


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_a_plan_of_each_algorithm_and_runtime_is_a_valid_command(kind):
    for plan in [plan for plan in PLANS if (plan.algorithm, plan.runtime) == kind]:
        config = config_of(plan)
        assert config.memory is not None  # a replay holds what the first sample needs
        assert config.run.steps == plan.steps
        assert config.runtime.runtime == plan.runtime


def test_a_plan_is_determined_by_seed_and_index():
    assert [draw(1, index) for index in range(500)] == PLANS
    assert draw(2, 0) != PLANS[0]


def test_five_hundred_plans_cover_every_algorithm_runtime_env_policy_and_fault():
    assert {(plan.algorithm, plan.runtime) for plan in PLANS} == set(KINDS)
    assert {(plan.kind, plan.behaviour) for plan in PLANS} == {(kind, b) for kind in SIZES for b in BEHAVIOURS}
    alone = [plan for plan in PLANS if not plan.members]
    processes = {plan.mishap for plan in alone if plan.runtime == "processes"}
    assert {plan.mishap for plan in alone if plan.hogwild} == set(MISHAPS)
    assert processes == {*MISHAPS, *INFERENCE_MISHAPS, *LEARNER_MISHAPS}
    assert {plan.mishap for plan in PLANS if plan.members} == set(POPULATION_MISHAPS)
    assert {(plan.world, plan.policies) for plan in PLANS if plan.runtime == "processes"} >= {
        *((world, policies) for world in ("parallel", "late", "turns") for policies in POLICIES),
        *(("none", "shared"), ("mixed", "separate")),
    }
    assert "drawn" in {plan.policies for plan in PLANS}
    assert {plan.world for plan in PLANS if plan.league} == {*WORLDS} - {"none"}


def test_five_hundred_plans_cover_the_pipeline_in_every_runtime():
    for runtime in ("serial", "threads", "processes"):
        plans = [plan for plan in PLANS if plan.runtime == runtime and not plan.members]
        assert {plan.passes for plan in plans} == {1, 2, 3}
        assert {plan.resident_batches for plan in plans if plan.passes > 1} == {1, 2, 3}
        assert {plan.inference_workers for plan in plans} == {0, 1, 2}
        assert {plan.load_ahead for plan in plans} == ({0} if runtime == "serial" else {0, 1, 2, 3})
        assert any(plan.inference_workers and plan.env_groups == 2 for plan in plans)
        assert {plan.shards for plan in plans} == {1, 2, 3}
        assert {plan.learners for plan in plans} == ({1, 2, 3} if runtime == "processes" else {1})
        assert any(plan.arrival for plan in plans) == (runtime == "processes")


@pytest.mark.parametrize("world", ["Team", "Late", "Turns"])
def test_the_worlds_of_the_soak_pass_offbeat_check(world):
    settings = EnvConfig(kwargs=PlainTable({"shapes": "Vector,Box,Image", "behaviour": "plain"}))
    assert check_env(f"benchmarks.soak.worlds:{world}", steps=200, settings=settings) == []


def test_an_interrupted_soak_keeps_the_results_of_the_one_before_and_can_be_continued(tmp_path, monkeypatch):
    begun = list[int]()

    def done(plans: list[Plan], *_: Any) -> Iterator[Report]:
        for plan in plans:
            if len(begun) == 1:
                raise KeyboardInterrupt
            begun.append(plan.index)
            yield Report(plan)

    (tmp_path / "soak.json").write_text("of an earlier soak")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(survivors, "mark_and_watch", lambda: None)
    monkeypatch.setattr(soak, "_done", done)
    monkeypatch.setattr(sys, "argv", ["soak", "--runs", "2", "--out", str(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        soak.main()
    assert (tmp_path / "soak.json").read_text() == "of an earlier soak"
    monkeypatch.setattr(soak, "_done", lambda plans, *_: map(Report, plans))
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--again"])
    assert soak.main() == 0
    assert [run["index"] for run in json.loads((tmp_path / "soak.json").read_text())["runs"]] == [0, 1]
    assert not (tmp_path / soak.UNFINISHED).exists()
