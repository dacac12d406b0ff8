"""The table [runtime]: how acting and learning are laid out; and which of its keys can be used together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from offbeat.config.runtimes import OPTIONAL_KEYS, RUNTIMES, RuntimeEntry, runtime_entry, supporting
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, Flag, Name, Natural, Nice, Positive
from offbeat.core.threads import usable_core_numbers


@dataclass(frozen=True)
class RuntimeConfig:
    """How acting and learning are laid out. With `lag = "exact"` the result's bits follow from the config alone."""

    runtime: Annotated[Name, Flag("|".join(RUNTIMES))] = "serial"
    """serial: one thread acts and learns in the pace's order; threads, processes: actors act while the learner learns;
    hogwild: workers act and learn, lock-free on shared parameters. Or one that a module of yours registers."""
    actors: Annotated[Count, Flag()] = 1
    """Workers that step envs; each has its own envs and random streams."""
    workers: Annotated[Count | None, Flag("W")] = None
    """Processes that act and learn, each on envs_per_actor envs; by default one a core. Only for hogwild."""
    hogwild: Literal["shared", "synced"] | None = None
    """shared: workers act and differentiate on the shared parameters themselves; synced: on a copy, which is renewed at
    each learning step's, or update's, start; none: shared. Only for hogwild."""
    hogwild_moments: Literal["shared", "per_worker"] | None = None
    """Whose Adam's moments are; none: shared. Only for hogwild."""
    envs_per_actor: Annotated[Count, Flag()] = 8
    """Envs of an actor: its columns, N."""
    env_groups: Count = 1
    """Groups that an actor's columns are stepped in by turns; envs that step in the background overlap so."""
    unroll_length: Count = 32
    """Env steps of one column in an unroll, T."""
    unrolls_per_batch: Count | None = None
    """Unrolls in a batch, S; none: one per actor."""
    max_lag: Annotated[Natural, Flag("D")] = 0
    """Learning steps that the weights which act may be behind those which learn, D; outside of serial 1 by default."""
    lag: Annotated[Literal["bounded", "exact"], Flag("bounded|exact")] = "bounded"
    """bounded: act with the newest weights; exact: with those of exactly max_lag steps ago. Serial is both."""
    split: Literal["given", "measured"] = "given"
    """measured: actors, envs_per_actor and learner_threads are chosen at start for the same columns of a batch."""
    decorrelate: bool = False
    """Begin each env at another moment of its first episode, after up to unroll_length random env steps."""
    device: Annotated[Literal["auto", "cpu", "cuda"], Flag("auto|cpu|cuda")] = "auto"
    """Where the learner's tensors live; auto: cpu, as small networks are quicker there."""
    learner_threads: Count | None = None
    """Threads of the learner; none: 1, or what auto layout chooses; on a replay 2, whose bits are those of 1. In
    hogwild of each worker; none: 1."""
    learner_cores: tuple[Natural, ...] | None = None
    """Cores that the learner may run on; none: any. Not for serial."""
    learner_nice: Nice | None = None
    """Niceness of the learner, from 0 to 19 (the lowest priority); none: as it is. One that is nicer already stays so.
    Not for serial."""
    actor_threads: Count | None = None
    """Threads that BLAS and OpenMP may use in an actor process, its envs included; none: 1. Processes, bounded lag."""
    actor_cores: tuple[Natural, ...] | None = None
    """Cores that actors are pinned to, one each by turns; none: any. Not for serial."""
    actor_nice: Nice | None = None
    """Niceness of the actors, likewise; none: as it is; of actor processes learner_nice, or 10 more than the learner
    where they can fill all cores. Not for serial."""
    step_timeout_s: Positive | None = None
    """Seconds after which a call of a worker's envs counts as hung; none: 60. In serial only of evaluations."""
    reset_timeout_s: Positive | None = None
    """The same for a call in which an episode begins; none: 300. In serial only of evaluations."""
    stall_timeout_s: Positive | None = None
    """Seconds after which a worker counts as hung that makes no progress outside of its envs; none: 120. In serial only
    of evaluations."""
    start_together: Count | None = None
    """Processes that are started at the same time, for slow envs; none: all. For processes and hogwild."""
    restart_budget: Natural | None = None
    """Restarts of one process within 10 minutes before the run is given up, or, of an evaluator, the evaluation; none:
    5. In serial and threads only of evaluations."""

    def __post_init__(self) -> None:
        runtime_entry(self.runtime)

    @property
    def entry(self) -> RuntimeEntry:
        """The record of the runtime: what differs between it and the others."""
        return runtime_entry(self.runtime)

    @property
    def batch_unrolls(self) -> int:
        """Unrolls in a batch, S."""
        return self.actors if self.unrolls_per_batch is None else self.unrolls_per_batch

    @property
    def batch_rows(self) -> int:
        """Rows in a batch, reset rows included."""
        return self.batch_unrolls * self.unroll_length * self.envs_per_actor


def require_supported(runtime: RuntimeConfig) -> None:
    """Refuse settings that the runtime does not support or that contradict each other, and cores that are not there.

    Raises:
        ConfigError: with the remedy.
    """
    entry = runtime.entry
    for key in OPTIONAL_KEYS:
        if getattr(runtime, key) is not None and key not in entry.supports:
            others = " or --runtime ".join(supporting(key))
            raise ConfigError(
                f"{key} is {getattr(runtime, key)}, which is not supported by the {entry.name} runtime: leave it out, "
                f"or pass --runtime {others}"
            )
    unused = RuntimeConfig()
    for key in entry.refuses:
        if getattr(runtime, key) != getattr(unused, key):
            raise refused_key(key, getattr(runtime, key), entry)
    if runtime.split == "measured" and (not entry.overlaps or runtime.lag == "exact"):
        raise ConfigError(
            f"split is measured, but with runtime {entry.name} and lag {runtime.lag} nothing is measured, so that "
            "the result follows from the config: leave it out"
        )
    if runtime.actor_threads is not None and runtime.lag == "exact":
        raise ConfigError(
            "actor_threads is given, but with lag exact actors use learner_threads, as in serial: leave it out"
        )
    _require_cores(runtime)


def refused_key(key: str, value: object, entry: RuntimeEntry) -> ConfigError:
    """Return the error for a key that a runtime refuses."""
    return ConfigError(
        f"{key} is {value}, which is not supported by the {entry.name} runtime: {entry.refuses[key]}. Leave it out"
    )


def _require_cores(runtime: RuntimeConfig) -> None:
    """Refuse cores that this process may not run on."""
    for key in ("learner_cores", "actor_cores"):
        if getattr(runtime, key) is not None and not hasattr(os, "sched_setaffinity"):
            raise ConfigError(f"{key} is given, but this system cannot pin processes to cores: leave it out")
        missing = set(getattr(runtime, key) or ()) - usable_core_numbers()
        if missing:
            raise ConfigError(
                f"{key} names {', '.join(map(str, sorted(missing)))}, but this process may run on the cores "
                f"{', '.join(map(str, sorted(usable_core_numbers())))}: pass some of these"
            )
