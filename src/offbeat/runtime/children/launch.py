"""Launch specs: what a worker process gets at its start. It is started, and prepares itself, with its spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offbeat.config.registry import algorithm_entry
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import pin, raise_niceness, set_blas_thread_count
from offbeat.envs import sending
from offbeat.runtime.children.child import Child, start_child
from offbeat.runtime.children.child_main import Report

if TYPE_CHECKING:  # an actor process does not load it
    from offbeat.config.config import Config
    from offbeat.runtime.evaluation.plan import EvaluationPlan
    from offbeat.runtime.plan import Plan


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """Fields of the launch specs of all worker processes: actors, lock-free workers, learners and others."""

    index: int
    """Index of the process among those of its kind."""
    attempt: int
    """Number of recent deaths of the process with this index."""
    code: bytes
    """The env and the encoders, as returned by `sent_code`."""
    parent: int = field(default_factory=os.getpid)
    """Process id of the parent, which makes this spec."""
    cores: set[int]
    """Cores that the process may use. It does not inherit them: the learner may be pinned to one core by now."""
    threads: int
    """Number of threads for BLAS and torch."""
    own_bell: int
    """File descriptor of the bell that wakes this process; inherited, with the same number."""


def sent_code(plan: Plan | EvaluationPlan) -> bytes:
    """Return the data from which another process registers the env and the encoders, for a launch spec.

    Raises:
        NotSendable: the env or an encoder cannot be sent to another process.
    """
    encoders = (policy.spec.encoder for policy in plan.policies)
    return sending.package(plan.run.env, plan.run.imports, plan.env_config.wrappers, encoders)


def sent_algorithm(config: Config) -> type[Any]:
    """Return the class of a run's algorithm, for a launch spec.

    Raises:
        ConfigError: another process cannot import this class, or that of its settings.
    """
    algorithm = algorithm_entry(config.run.algorithm).algorithm_class()
    for code in (algorithm, type(config.algorithm_settings)):
        sending.require_importable(f"{config.run.algorithm}, the class {code.__qualname__},", code)
    return algorithm


def start_worker(
    module: str,
    launch: LaunchSpec,
    inherited: Sequence[int],
    notify: Callable[[], None],
    on_report: Callable[[Report], None] = lambda _report: None,
) -> Child:
    """Start a worker process: see `start_child`. `inherited`: file descriptors besides that of its own bell."""
    return start_child(
        module,
        launch,
        (launch.own_bell, *inherited),
        index=launch.index,
        threads=launch.threads,
        on_report=on_report,
        notify=notify,
    )


def prepare_process(launch: LaunchSpec, cores: set[int] | None = None, nice: int | None = None) -> None:
    """Set the cores, niceness and threads of this process, and register its env.

    Args:
        launch: its launch spec.
        cores: cores to pin the process to; None: those of the launch spec.
        nice: niceness of the process; None: unchanged.
    """
    pin(cores or launch.cores)
    raise_niceness(nice)
    set_blas_thread_count(launch.threads)
    keep_freed_memory()
    sending.unpack(launch.code)
