"""Warns of runs that make no update: before they start, as far as the settings say so, and at their end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offbeat.metrics.counters import Counters
    from offbeat.runtime.parts import Parts


def expected(parts: Parts, *, env_steps: int = 0, counts_anew: bool = True) -> str:
    """Return the message that a run will make no update; '' if it will make some, or only evaluate.

    Args:
        parts: the parts of the run.
        env_steps: env steps that it has learned from, if it is resumed.
        counts_anew: whether its replay is empty, so that a warm-up starts.
    """
    config = parts.config
    ticket = config.runtime.envs_per_actor * config.memory.length
    ends = config.run.last_step
    left = math.ceil((ends - env_steps) / ticket) * ticket
    if left <= 0:
        return ""
    texts = []
    for policy in parts.policies:
        if not policy.trained:
            continue
        settings = config.of_policy(policy.name).algorithm_settings
        agents = policy.env_spec.columns // config.runtime.envs_per_actor
        counted = 0 if counts_anew else env_steps
        at_end = counted + left
        needed = settings.next_update(counted * agents)
        if at_end * agents >= needed:
            return ""
        remedy = settings.remedy_without_updates(resumed=env_steps > 0)
        if ends < config.run.steps:
            remedy = f"this part of the run ends at --stop-at {ends}: pass a larger one, or resume the run later"
        texts.append(
            f"nothing will be learned: the run has {at_end * agents} transitions at its end, but the first update is "
            f"made after {needed}; {remedy}"
        )
    return texts[0] if texts else ""


def found(before: Counters, after: Counters, parts: Parts, *, resumed: bool) -> str:
    """Return as the reason of its end that a run has learned nothing; '' if it has, or only evaluated.

    Args:
        before: the counters at its start, or when it was resumed.
        after: the counters now.
        parts: the parts of the run.
        resumed: whether it was resumed.
    """
    updates, env_steps = after.updates - before.updates, after.env_steps - before.env_steps
    refused = after.updates_refused - before.updates_refused
    if updates > refused or not env_steps:
        return ""
    if refused:
        from offbeat.models.acting import IF_NOT_FINITE

        return (
            f"no update was made in full: all {refused} were refused, because the loss or a gradient was NaN or "
            f"infinity. {IF_NOT_FINITE}"
        )
    settings = next(
        parts.config.of_policy(policy.name).algorithm_settings for policy in parts.policies if policy.trained
    )
    remedy = f"; {settings.remedy_without_updates(resumed=True)}" if settings.next_update() else ""
    since = " since the run was resumed" if resumed else ""
    return f"nothing was learned: no update was made in {env_steps} env steps{since}{remedy}"
