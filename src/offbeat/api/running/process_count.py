"""The hint that a run has many more actors or workers than there are cores.

It is no refusal: envs that wait, for example for a simulator or a device, keep few cores busy.
"""

from __future__ import annotations

from offbeat.config.config import Config
from offbeat.core.threads import usable_cores
from offbeat.metrics.text import counted

MOST_PER_CORE = 4
"""Number of actors or workers per core above which there is a hint."""


def hint(config: Config) -> str:
    """Return the hint; '' if the run has fewer processes, or none of its own on this machine."""
    entry, cores = config.runtime.entry, usable_cores()
    has_processes = entry.workers_learn or (entry.in_processes and entry.one_machine)
    if not has_processes or config.actors <= MOST_PER_CORE * cores:
        return ""
    fewer = "fewer --workers" if entry.workers_learn else "fewer --actors with more --envs-per-actor"
    return (
        f"{config.actors} {entry.role}s share {counted(cores, 'core')}: unless their envs wait, for example for a "
        f"simulator, {fewer} are as fast and need less memory"
    )
