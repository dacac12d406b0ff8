"""The runtimes: a record of each says what differs between it and the others.

Outside of offbeat/runtime no code compares a runtime's name. What differs is a field or a method of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offbeat.core.errors import unknown

OPTIONAL_KEYS = (
    *("learner_cores", "learner_nice", "actor_cores", "actor_nice", "start_together", "actor_threads"),
    *("workers", "hogwild", "hogwild_moments"),
)
"""Keys of [runtime] that are `none` by default and that only some runtimes support."""


@dataclass(frozen=True)
class RuntimeEntry:
    """A runtime: where it is built, which keys it supports, and what it does at the same time."""

    module: str
    """Where it is built; imported only when it is used."""
    summary: str = ""
    """A line for `offbeat list runtimes`."""
    overlaps: bool = False
    """Whether actors act while the learner learns."""
    workers_learn: bool = False
    """Whether those who act also learn, lock-free on shared parameters; then there is no other learner."""
    in_processes: bool = False
    """Whether actors are processes of their own, so that what they share must lie on shared memory."""
    default_max_lag: int = 0
    """The default of `max_lag`."""
    supports: tuple[str, ...] = ()
    """Which of OPTIONAL_KEYS it supports."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Other keys of [runtime] that it does not support -> why, or what to pass."""
    name: str = ""
    """As it is typed; set where it is registered."""

    @property
    def role(self) -> str:
        """What those who act are called."""
        return "worker" if self.workers_learn else "actor"

    @property
    def runs_in_order(self) -> bool:
        """Whether one thing is done after another, as the pace orders it: nobody waits for anybody."""
        return not (self.overlaps or self.workers_learn)

    def busy_cores(self, actors: int, learning: int) -> int:
        """Return how many cores a run can keep busy.

        Args:
            actors: of the run.
            learning: threads that learn, over all processes.
        """
        return learning + (actors if self.overlaps else 0)


_TAKE_TURNS = "each worker acts and learns by turns"
RUNTIMES: dict[str, RuntimeEntry] = {
    name: replace(entry, name=name)
    for name, entry in {
        "serial": RuntimeEntry("offbeat.runtime.serial", "one thread acts and learns in the pace's order"),
        "threads": RuntimeEntry(
            "offbeat.runtime.threads",
            "actors in threads beside the learner",
            overlaps=True,
            default_max_lag=1,
            supports=("learner_cores", "learner_nice", "actor_cores", "actor_nice"),
        ),
        "processes": RuntimeEntry(
            "offbeat.runtime.processes",
            "actors in processes beside the learner",
            overlaps=True,
            in_processes=True,
            default_max_lag=1,
            supports=(
                *("learner_cores", "learner_nice", "actor_cores", "actor_nice"),
                *("start_together", "actor_threads"),
            ),
        ),
        "hogwild": RuntimeEntry(
            "offbeat.runtime.hogwild.loop",
            "workers that act and learn, lock-free on shared parameters",
            workers_learn=True,
            supports=("actor_cores", "actor_nice", "start_together", "workers", "hogwild", "hogwild_moments"),
            refuses={
                "actors": f"pass --workers N: {_TAKE_TURNS}",
                "max_lag": f"{_TAKE_TURNS}; what others change meanwhile is reported as gradient_staleness",
                "lag": "what workers do to one another depends on the clock",
                "split": "pass --workers N",
            },
        ),
    }.items()
}
"""name -> runtime."""


def runtime_entry(name: str) -> RuntimeEntry:
    """Return the record of a runtime.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in RUNTIMES:
        return RUNTIMES[name]
    own = "for one of your own pass --import my_module, which registers it"
    raise unknown("runtime", name, RUNTIMES, f"There are {', '.join(RUNTIMES)}; {own}.")


def supporting(key: str) -> list[str]:
    """Return the names of the runtimes that support one of OPTIONAL_KEYS."""
    return [name for name, entry in RUNTIMES.items() if key in entry.supports]
