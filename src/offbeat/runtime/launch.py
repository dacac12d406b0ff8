"""What every worker process is given at its start, and does first with it."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.core.allocator import keep_freed_memory
from offbeat.core.threads import limit_blas, set_affinity
from offbeat.envs import sending


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """What is the same for actors, lock-free workers and evaluators."""

    index: int
    attempt: int
    """How often this child has died of late."""
    env: bytes
    """From `sending.package`."""
    parent: int
    """The process that started it."""
    cores: set[int]
    """Where it may run: the learner may have been pinned since."""
    threads: int
    """That BLAS and torch may use."""
    own_bell: int
    """File descriptor, inherited under the same number."""


def prepare_process(launch: LaunchSpec, cores: set[int] | None = None, nice: int | None = None) -> None:
    """Make this process what its launch spec says: where it runs, on how many threads, and which envs it knows.

    Args:
        launch: what it was given.
        cores: to be pinned to; None: those of the launch spec.
        nice: its niceness; None: as it is.
    """
    set_affinity(cores or launch.cores, nice)
    limit_blas(launch.threads)
    keep_freed_memory()
    sending.unpack(launch.env)
