"""Warnings about a run that has just started: that it learns nothing, or that some of its settings have no effect."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from offbeat.api import no_updates
from offbeat.core.errors import LearnsNothing, RunWarning, UnprovenMemoryOrder, UnsavedTensor, WithoutEffect
from offbeat.core.field_definitions import defaults_of
from offbeat.core.typed_text import as_text

if TYPE_CHECKING:
    from offbeat.config.config import Config
    from offbeat.config.settings import AlgorithmSettings
    from offbeat.core.types import EnvSpec
    from offbeat.runtime.parts import Parts

X86_64 = ("x86_64", "amd64")
"""Names of processors on which the order of memory is proven, see docs/concepts/architecture.md."""


def start_warnings(parts: Parts, *, env_steps: int = 0, counts_anew: bool = True) -> tuple[RunWarning, ...]:
    """Return the warnings: no update will be made, an algorithm has unsaved tensors, the processor is not supported.

    Arguments are those of `no_updates.expected`.
    """
    nothing = no_updates.expected(parts, env_steps=env_steps, counts_anew=counts_anew)
    learns_nothing = (LearnsNothing(nothing),) if nothing else ()
    return (*learns_nothing, *map(UnsavedTensor, parts.warnings), *_unproven_memory_order(parts.config))


def _unproven_memory_order(config: Config) -> tuple[RunWarning, ...]:
    """Return a warning if processes share memory on a processor with another order of memory than x86-64."""
    processor = platform.machine()
    entry = config.runtime.entry
    in_processes = entry.workers_learn or (entry.in_processes and entry.one_machine)
    evaluates = config.run.evaluation_interval > 0 and config.run.evaluator == "process"
    if processor.lower() in X86_64 or not (in_processes or evaluates):
        return ()
    threads = "--runtime threads and " if in_processes else ""
    return (
        UnprovenMemoryOrder(
            f"on this processor, {processor}, it is not proven that processes read shared memory in the right order: "
            f"results may be wrong. Pass {threads}--set evaluator=inline"
        ),
    )


def without_effect(parts: Parts) -> tuple[RunWarning, ...]:
    """Return a warning for each setting of the algorithm that has no effect for any policy that learns."""
    texts = [
        _without_effect(parts.config.of_policy(policy.name).settings, policy.env)
        for policy in parts.policies
        if policy.trained
    ]
    return tuple(WithoutEffect(text) for key, text in texts[0].items() if all(key in other for other in texts))


def _without_effect(settings: AlgorithmSettings, env: EnvSpec) -> dict[str, str]:
    """Return key -> message, for the settings of a policy that have no effect and not their default."""
    defaults = defaults_of(type(settings))
    return {
        key: f"{key} is {as_text(getattr(settings, key))}, which has no effect {why}"
        for key, why in settings.without_effect(env).items()
        if getattr(settings, key) != defaults[key]
    }
