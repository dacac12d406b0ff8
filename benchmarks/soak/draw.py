"""Draws the plan of a run from a seed and an index alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from benchmarks.soak.choices import (
    BEHAVIOURS,
    DRAWN,
    KINDS,
    LATEST,
    LEAGUES,
    MISHAPS,
    MOMENTS,
    MOST_ROWS_OF_REPLAY,
    POLICIES,
    POPULATION_MISHAPS,
    POPULATIONS,
    RUNTIMES,
    SIZES,
    WORLDS,
    Policies,
    World,
)
from benchmarks.soak.pipeline import with_pipeline
from benchmarks.soak.plan import Plan

MOST_SIDES = 3
"""Largest number of sides of the games in which leagues are drawn."""


def draw(seed: int, index: int) -> Plan:
    """Return the plan of a run."""
    plan = _with_worlds_for_all_sides(_draw(seed, index))
    return with_pipeline(plan, random.Random(f"{seed}/{index}/pipeline"))


def _draw(seed: int, index: int) -> Plan:
    """Return the plan without what `pipeline` draws."""
    dice = random.Random(f"{seed}/{index}")
    algorithm, runtime = _one_of(dice, KINDS)
    members = 2 if dice.random() < POPULATIONS else 0
    world: World = "none" if members else _one_of(dice, WORLDS)
    kind = _kind(dice, algorithm, world, members)
    if world == "mixed" and runtime == "hogwild":
        world = "parallel"  # lock-free workers share one policy
    policies: Policies = _policies(dice, world, runtime)
    league = _league(dice, policies) if world != "none" and runtime != "hogwild" and dice.random() < LEAGUES else ()
    if world == "turns" and algorithm in ("sac", "dqn"):  # refused, as it is with a replay and agents that take turns
        league = tuple(setting for setting in league if "team_change_every" not in setting)
    if league and policies == "teams" and random.Random(f"{seed}/{index}/drawn").random() < DRAWN:
        policies = "drawn"
        league = (*league, "league.draw_policies=true", "league.sides=red_*,blue_*")
    in_processes = runtime in ("processes", "hogwild")
    mishap = _one_of(dice, POPULATION_MISHAPS if members else _mishaps(in_processes=in_processes))
    rows, columns = _layout(dice, algorithm, kind)
    count = {"shared": 1, "separate": 3}.get(policies, 2)
    return Plan(
        index=index,
        members=members,
        algorithm=algorithm,
        runtime=runtime,
        kind=kind,
        behaviour="plain" if members else _one_of(dice, BEHAVIOURS),
        times=dice.choice((1, 1, 2)),
        world=world,
        policies=policies,
        league=league,
        starts_from=not members and dice.random() < 0.1,
        actors=dice.randint(1, 2 if in_processes and kind in ("image", "recurrent") else 3),
        max_lag=dice.randint(0, 3),
        lag=dice.choice(("bounded", "exact", "exact")),
        unroll_length=rows,
        envs_per_actor=columns,
        env_groups=2 if columns % 2 == 0 and dice.random() < 0.25 else 1,
        learner_workers=dice.randint(2, count) if runtime == "processes" and count > 1 and dice.random() < 0.5 else 1,
        synced=dice.random() < 0.5,
        learning_steps=dice.choice((40, 80, 150, 300)),
        evaluates=not members and (dice.random() < 0.4 or mishap.endswith("the evaluator")),
        mishap=mishap,
        kills=dice.choice((1, 1, 2)),
        moment=_one_of(dice, MOMENTS),
        progress=dice.uniform(0.0, LATEST),
        delay_s=dice.uniform(0.0, 0.5),
        victim=dice.random(),
        resumes_in=runtime if members or runtime == "hogwild" or dice.random() < 0.5 else dice.choice(RUNTIMES),
    )


def _with_worlds_for_all_sides(plan: Plan) -> Plan:
    """Replace latest_ratio 0, with which each side learns in its own worlds, if there are fewer worlds than sides."""
    if plan.actors * plan.envs_per_actor >= MOST_SIDES:
        return plan
    none, some = "league.latest_ratio=0", "league.latest_ratio=0.3"
    return replace(plan, league=tuple(some if setting == none else setting for setting in plan.league))


def _one_of(dice: random.Random, weights: dict[Any, int]) -> Any:
    return dice.choices(tuple(weights), tuple(weights.values()))[0]


def _mishaps(*, in_processes: bool) -> dict[Any, int]:
    return {mishap: weight for mishap, weight in MISHAPS.items() if in_processes or "a worker" not in mishap}


def _kind(dice: random.Random, algorithm: str, world: World, members: int) -> str:
    if world == "mixed":
        return "image"
    weights = {"vector": 2, "box": 2 * (algorithm != "dqn"), "image": int(not members), "recurrent": int(not members)}
    kind: str = _one_of(dice, weights)
    return kind


def _policies(dice: random.Random, world: World, runtime: str) -> Policies:
    """Draw the policies: agents with different spaces have one each, and lock-free workers share one policy."""
    drawn: Policies = _one_of(dice, POLICIES)
    if world == "none" or runtime == "hogwild":
        return "shared"
    return "separate" if world == "mixed" else drawn


def _layout(dice: random.Random, algorithm: str, kind: str) -> tuple[int, int]:
    """Draw the rows of a ticket and the envs of an actor."""
    size = SIZES[kind]
    rows = dice.choice([rows for rows in (8, 16, 32, 64) if rows <= size.rows])
    columns = dice.choice([columns for columns in (1, 2, 4, 8, 16) if columns <= size.columns])
    if algorithm in ("sac", "dqn"):
        rows = min(rows, 16)
        columns = min(columns, MOST_ROWS_OF_REPLAY // rows)
    return rows, columns


def _league(dice: random.Random, policies: Policies) -> tuple[str, ...]:
    """Draw the settings of a league."""
    opponents = dice.choice(("uniform", "prioritized", "latest"))
    settings = {
        "opponents": opponents,
        "window": dice.randint(1, 3),
        "snapshot_every": dice.choice((3, 5, 10)),
        "keep_all": dice.choice(("false", "true")),
    }
    if opponents != "latest":
        settings["latest_ratio"] = dice.choice((0, 0.3, 0.8))
    if opponents == "prioritized":
        settings["weighting"] = dice.choice(("squared", "variance", "linear"))
    if dice.random() < 0.4:
        settings["outcome"] = "won"
    if policies == "shared" and dice.random() < 0.5:
        settings["sides"] = "red_*,blue_*"
    if policies in ("separate", "teams") and dice.random() < 0.5:
        settings["team_change_every"] = dice.choice((2, 5))
    return tuple(f"league.{key}={value}" for key, value in settings.items())
