"""Launch specs: the data that a worker process gets at its start, and how it prepares itself with them."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.core.allocator import keep_freed_memory
from offbeat.core.threads import limit_blas, set_affinity
from offbeat.envs import sending


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """Fields of all launch specs: of actors, lock-free workers and evaluators."""

    index: int
    """Index of the actor, worker or evaluator."""
    attempt: int
    """Number of recent deaths of the process with this index."""
    env: bytes
    """The env, as returned by `sending.package`."""
    parent: int
    """Process id of the parent."""
    cores: set[int]
    """Cores that the process may use. It does not inherit them: the learner may be pinned to one core by now."""
    threads: int
    """Number of threads for BLAS and torch."""
    own_bell: int
    """File descriptor of the bell that wakes this process; inherited, with the same number."""


def prepare_process(launch: LaunchSpec, cores: set[int] | None = None, nice: int | None = None) -> None:
    """Set the cores, niceness and threads of this process, and register its env.

    Args:
        launch: its launch spec.
        cores: cores to pin the process to; None: those of the launch spec.
        nice: niceness of the process; None: unchanged.
    """
    set_affinity(cores or launch.cores, nice)
    limit_blas(launch.threads)
    keep_freed_memory()
    sending.unpack(launch.env)
