"""Draws the parts of a plan that are about the pipeline between envs and learner: batches, loaders,
inference workers, shards.

They are drawn last, with random numbers of their own, so that the rest of a plan does not depend on them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from benchmarks.soak.choices import (
    INFERENCE,
    INFERENCE_HARMED,
    INFERENCE_MISHAPS,
    LEARNER_HARMED,
    LEARNER_MISHAPS,
    LOADERS,
    SEVERAL_PASSES,
    SHARDS,
    Mishap,
)
from benchmarks.soak.plan import Plan


def with_pipeline(plan: Plan, dice: random.Random) -> Plan:
    """Return a plan with these settings. Lock-free runs do not have them."""
    if plan.hogwild or plan.members:
        return plan
    plan = replace(plan, **_passes(plan, dice), load_ahead=_load_ahead(plan, dice))
    return _with_shards(plan if plan.league else _with_inference(plan, dice), dice)


def _passes(plan: Plan, dice: random.Random) -> dict[str, Any]:
    """Draw how often a batch is used, and how many batches stay resident."""
    drawn = {"passes": dice.choice((2, 3)), "resident_batches": dice.choice((1, 2, 3))}
    by_turns = any("team_change_every" in setting for setting in plan.league)  # a turn must be whole groups of batches
    return {} if plan.replayed or by_turns or dice.random() >= SEVERAL_PASSES else drawn


def _load_ahead(plan: Plan, dice: random.Random) -> int:
    """Draw how far the learner loads ahead; 0: it has no loader."""
    return dice.choice((1, 2, 3)) if plan.runtime != "serial" and dice.random() < LOADERS else 0


def _with_inference(plan: Plan, dice: random.Random) -> Plan:
    """Draw inference workers, how they make batches, and sometimes a mishap of theirs."""
    if dice.random() >= INFERENCE:
        return plan
    in_processes = plan.runtime == plan.resumes_in == "processes"
    arrival = in_processes and plan.lag == "bounded" and dice.random() < 0.7
    plan = replace(plan, inference_workers=dice.randint(1, min(2, plan.actors)), arrival=arrival)
    return _harmed(plan, dice, INFERENCE_HARMED, INFERENCE_MISHAPS) if plan.runtime == "processes" else plan


def _with_shards(plan: Plan, dice: random.Random) -> Plan:
    """Draw shards, how many learners compute them, and sometimes a mishap of a learner."""
    most = min(3, plan.most_shards)
    if dice.random() >= SHARDS or most == 1:
        return plan
    plan = replace(plan, shards=dice.randint(2, most))
    if plan.runtime != "processes" or plan.learner_workers > 1:
        return plan
    plan = replace(plan, learners=dice.randint(1, plan.shards))
    return _harmed(plan, dice, LEARNER_HARMED, LEARNER_MISHAPS) if plan.learners > 1 else plan


def _harmed(plan: Plan, dice: random.Random, share: float, weights: dict[Mishap, int]) -> Plan:
    """Return a plan in which, if anything happens at all, one of these mishaps may happen instead."""
    if plan.mishap == "none" or dice.random() >= share:
        return plan
    mishap: Mishap = dice.choices(tuple(weights), tuple(weights.values()))[0]
    return replace(plan, mishap=mishap)
