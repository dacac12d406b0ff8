"""The registry of runtimes. The entry of each has the properties in which runtimes differ.

Outside of offbeat/runtime no code compares a runtime's name: it uses a field or a method of the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offbeat.core.argument_notation import for_reader
from offbeat.core.errors import unknown

OPTIONAL_KEYS = (
    *("learner_cores", "learner_nice", "actor_cores", "actor_nice", "start_together", "actor_threads"),
    *("learner_workers", "load_ahead", "devices", "workers", "hogwild", "hogwild_moments"),
    *("inference_workers", "inference_device"),
    *("inference_batching", "inference_timeout_ms", "inference_max_requests"),
    *("ray_address", "ray_cpus", "ray_gpus", "ray_resources", "ray_placement", "ray_runtime_env"),
    "ray_object_store_mb",
)
"""Keys of [runtime] that are `none` by default and that only some runtimes support."""


@dataclass(frozen=True)
class RuntimeEntry:
    """A runtime: its module, the keys that it supports, and its properties."""

    module: str
    """The module that builds it; imported only when the runtime is used."""
    summary: str = ""
    """One line for `offbeat list runtimes`."""
    overlaps: bool = False
    """Whether actors act while the learner learns."""
    workers_learn: bool = False
    """Whether workers both act and learn, lock-free on shared parameters. There is no other learner then."""
    in_processes: bool = False
    """Whether actors are separate processes, so that data must be in shared memory."""
    one_machine: bool = True
    """Whether all actors are on the machine of the learner."""
    default_max_lag: int = 0
    """The default of `max_lag`."""
    supports: tuple[str, ...] = ()
    """The keys of OPTIONAL_KEYS that it supports."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Other keys of [runtime] that it does not support -> the reason, or what to pass instead."""
    no_leagues: str = ""
    """Why it does not support leagues, to follow its name; '' if it does."""
    name: str = ""
    """The name for `--runtime`; the registry sets it."""

    @property
    def role(self) -> str:
        """The role of the children that act: "actor" or "worker"."""
        return "worker" if self.workers_learn else "actor"

    @property
    def has_inference_workers(self) -> bool:
        """Whether inference workers are processes. Elsewhere actors compute the batches of their inference groups."""
        return "inference_batching" in self.supports

    @property
    def runs_in_order(self) -> bool:
        """Whether acting and learning take place one after the other, in the order of the pace, without waits."""
        return not (self.overlaps or self.workers_learn)

    def busy_cores(self, actors: int, learning: int) -> int:
        """Return how many cores a run can keep busy.

        Args:
            actors: number of actors.
            learning: number of threads that learn, over all processes.
        """
        return learning + (actors if self.overlaps else 0)


_IN_ACTORS = ("inference_workers", "inference_device")
"""Keys of inference groups whose batches actors compute themselves, where there are no inference workers."""
_TAKE_TURNS = "each worker acts and learns in turn"
RUNTIMES: dict[str, RuntimeEntry] = {
    name: replace(entry, name=name)
    for name, entry in {
        "serial": RuntimeEntry(
            "offbeat.runtime.serial",
            "one thread acts and learns in the order of the pace",
            supports=_IN_ACTORS,
        ),
        "threads": RuntimeEntry(
            "offbeat.runtime.threads",
            "actors in threads, concurrent with the learner",
            overlaps=True,
            default_max_lag=1,
            supports=("learner_cores", "learner_nice", "actor_cores", "actor_nice", "load_ahead", *_IN_ACTORS),
        ),
        "processes": RuntimeEntry(
            "offbeat.runtime.processes",
            "actors in processes, concurrent with the learner",
            overlaps=True,
            in_processes=True,
            default_max_lag=1,
            supports=(
                *("learner_cores", "learner_nice", "actor_cores", "actor_nice"),
                *("start_together", "actor_threads", "learner_workers", "load_ahead", "devices", *_IN_ACTORS),
                *("inference_batching", "inference_timeout_ms", "inference_max_requests"),
            ),
        ),
        "ray": RuntimeEntry(
            "offbeat.runtime.ray.acting",
            "actors on a Ray cluster, concurrent with the learner",
            overlaps=True,
            in_processes=True,
            one_machine=False,
            default_max_lag=1,
            supports=(
                *("learner_cores", "learner_nice", "actor_threads", "learner_workers", "load_ahead", "devices"),
                *_IN_ACTORS,
                *("ray_address", "ray_cpus", "ray_gpus", "ray_resources", "ray_placement", "ray_runtime_env"),
                "ray_object_store_mb",
            ),
            no_leagues="whose actors get the newest weights only, but in a league they also act with frozen opponents",
            refuses={"split": "how many actors are fastest depends on the cluster: pass --actors N"},
        ),
        "hogwild": RuntimeEntry(
            "offbeat.runtime.hogwild.loop",
            "workers that act and learn, lock-free on shared parameters",
            workers_learn=True,
            supports=("actor_cores", "actor_nice", "start_together", "workers", "hogwild", "hogwild_moments"),
            no_leagues=(
                "whose workers have no common version of the weights, but a league draws opponents for each version"
            ),
            refuses={
                "actors": f"{_TAKE_TURNS}, and --workers N is their number",
                "max_lag": f"{_TAKE_TURNS}; updates by other workers in between are reported as gradient_staleness",
                "lag": "the order of the workers' updates depends on timing",
                "split": "--workers N is the number of workers",
                "shards": "each worker makes updates of its own",
            },
        ),
    }.items()
}
"""name -> runtime."""


def runtime_entry(name: str) -> RuntimeEntry:
    """Return the entry of a runtime.

    Raises:
        ConfigError: the name is not registered.
    """
    if name in RUNTIMES:
        return RUNTIMES[name]
    remedy = for_reader("pass --import my_module if that module registers it", "import the module that registers it")
    own = f"for your own runtime {remedy}"
    raise unknown("runtime", name, RUNTIMES, f"There are {', '.join(RUNTIMES)}; {own}.")


def supporting(key: str) -> str:
    """Return the runtimes that support one of OPTIONAL_KEYS, as arguments for a message."""
    names = (name for name, entry in RUNTIMES.items() if key in entry.supports)
    return " or ".join(for_reader(f"--runtime {name}", f'runtime="{name}"') for name in names)
