"""Draws the parts of a plan that are about the pipeline between envs and learner: batches, loaders, inference workers.

They are drawn last, with random numbers of their own, so that the rest of a plan does not depend on them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from benchmarks.soak.choices import INFERENCE, INFERENCE_HARMED, INFERENCE_MISHAPS, LOADERS, SEVERAL_PASSES
from benchmarks.soak.plan import Plan


def with_pipeline(plan: Plan, dice: random.Random) -> Plan:
    """Return a plan with these settings. Lock-free runs do not have them."""
    if plan.lock_free or plan.members:
        return plan
    plan = replace(plan, **_passes(plan, dice), load_ahead=_load_ahead(plan, dice))
    return plan if plan.league else _with_inference(plan, dice)


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
    if plan.runtime == "processes" and plan.mishap != "none" and dice.random() < INFERENCE_HARMED:
        mishaps = tuple(INFERENCE_MISHAPS)
        return replace(plan, mishap=dice.choices(mishaps, [INFERENCE_MISHAPS[mishap] for mishap in mishaps])[0])
    return plan
