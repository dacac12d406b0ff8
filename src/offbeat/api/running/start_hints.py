"""What a new run says about its speed and its observations when it starts, if there is something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbeat.config.config import Config
from offbeat.core.process.threads import usable_cores
from offbeat.metrics.text import counted

if TYPE_CHECKING:
    from offbeat.runtime.parts import Parts

MOST_PER_CORE = 4
"""Number of actors or workers per core above which there is a hint."""


def start_hints(parts: Parts) -> tuple[str, ...]:
    """Return the hints: many processes, gradients of autograd, and images that cost much memory."""
    from offbeat.algorithms import fast_paths
    from offbeat.envs.observations import image_notes

    notices = [fast_paths.autograd_notice(policy.algorithm) for policy in parts.policies]
    images = [
        f"{problem}: {remedy}"
        for policy in parts.policies
        for problem, remedy in image_notes(policy.env_spec.observation)
    ]
    return tuple(filter(None, dict.fromkeys((process_hint(parts.config), *notices, *images))))


def process_hint(config: Config) -> str:
    """Return the hint that a run has many more actors or workers than there are cores.

    It is no refusal: envs that wait, for example for a simulator or a device, keep few cores busy. It is '' if the run
    has fewer processes, or none of its own on this machine.
    """
    entry, cores = config.runtime.entry, usable_cores()
    has_processes = entry.workers_learn or (entry.in_processes and entry.one_machine)
    if not has_processes or config.actors <= MOST_PER_CORE * cores:
        return ""
    fewer = "fewer --workers" if entry.workers_learn else "fewer --actors with more --envs-per-actor"
    return (
        f"{config.actors} {entry.role}s share {counted(cores, 'core')}: unless their envs wait, for example for a "
        f"simulator, {fewer} are as fast and need less memory"
    )
