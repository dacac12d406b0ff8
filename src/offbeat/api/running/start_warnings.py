"""Warnings about a run that has just started or been resumed: that it learns nothing, that its first batch is larger
than the run, that its league has only one snapshot, that its env has unsaved statistics, or that some of its settings
have no effect.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from offbeat.api.running import no_updates
from offbeat.core.argument_notation import value_for_reader
from offbeat.core.errors import (
    FewSnapshots,
    LargeBatch,
    LearnsNothing,
    RunWarning,
    UnprovenMemoryOrder,
    UnsavedStatistics,
    WithoutEffect,
)
from offbeat.core.field_definitions import defaults_of
from offbeat.metrics.text import counted

if TYPE_CHECKING:
    from offbeat.config.changes import Changed
    from offbeat.config.config import Config
    from offbeat.config.runtime_config import RuntimeConfig
    from offbeat.config.settings import AlgorithmSettings
    from offbeat.core.types import EnvSpec
    from offbeat.runtime.parts import Parts

X86_64 = ("x86_64", "amd64")
"""Names of processors on which the order of memory is proven, see docs/concepts/architecture.md."""
LARGE = 2
"""A run is warned of a batch that has at least this many times the env steps after which it ends."""


def start_warnings(parts: Parts) -> tuple[RunWarning, ...]:
    """Return the warnings about a new run."""
    nothing = no_updates.expected(parts)
    own = (*_large_batch(parts), *_few_snapshots(parts), *_without_effect(parts))
    return (*_always(parts, nothing), *own)


def resume_warnings(parts: Parts, changed: Changed, *, env_steps: int, counts_anew: bool) -> tuple[RunWarning, ...]:
    """Return the warnings about a run that is resumed.

    Args:
        parts: the parts of the run.
        changed: the settings that differ from those of the run so far: only of these it is said that they have no
            effect.
        env_steps: as for `no_updates.expected`.
        counts_anew: as for `no_updates.expected`.
    """
    nothing = no_updates.expected(parts, env_steps=env_steps, counts_anew=counts_anew)
    return (*_always(parts, nothing), *_without_effect(parts, changed))


def _always(parts: Parts, nothing: str) -> tuple[RunWarning, ...]:
    """Return the warnings of both; `nothing`: the message that no update will be made, or ''."""
    learns_nothing = (LearnsNothing(nothing),) if nothing else ()
    return (*learns_nothing, *_unsaved_statistics(parts.env_spec), *unproven_memory_order(parts.config))


def _unsaved_statistics(env: EnvSpec) -> Iterator[RunWarning]:
    """Yield a warning for each kind of values that wrappers of the env normalise."""
    from offbeat.envs.normalizers import normalizer_notes

    for problem, remedy in normalizer_notes(env.normalizers):
        yield UnsavedStatistics(f"{problem}. {remedy[0].upper()}{remedy[1:]}")


def unproven_memory_order(config: Config) -> tuple[RunWarning, ...]:
    """Return a warning if processes share memory on a processor with another order of memory than x86-64."""
    processor, runtime = platform.machine(), config.runtime
    entry, devices = runtime.entry, runtime.devices or ()
    remedies = []
    if entry.workers_learn or (entry.in_processes and entry.one_machine):
        remedies.append("--runtime threads without devices" if devices else "--runtime threads")
    elif len(devices) > 1:  # learners are processes of one machine, wherever the actors are
        remedies.append(f"--set devices={devices[0]}")
    if remedies or (config.run.evaluation_interval > 0 and config.run.evaluator == "process"):
        remedies.append("--set evaluator=inline")
    if processor.lower() in X86_64 or not remedies:
        return ()
    return (
        UnprovenMemoryOrder(
            f"on this processor, {processor}, it is not proven that processes read shared memory in the right order: "
            f"results may be wrong. Pass {' and '.join(remedies)}"
        ),
    )


def _large_batch(parts: Parts) -> tuple[RunWarning, ...]:
    """Return a warning if the first batch may have many more env steps than the run was given."""
    run, runtime, memory = parts.config.run, parts.config.runtime, parts.config.memory
    limit, ends = min((("steps", run.steps), ("stop_at", run.stop_at or run.steps)), key=lambda each: each[1])
    batch = len(memory.pace.tickets_of(0)) * memory.length * runtime.envs_per_actor
    if batch < LARGE * ends:
        return ()
    return (
        LargeBatch(
            f"{limit} is {ends}, but the first batch alone has up to {counted(batch, 'env step')}, and the run learns "
            "from whole batches: it collects this batch, and ends after it. To learn from fewer, make the batch "
            "smaller, as with fewer envs"
        ),
    )


def _few_snapshots(parts: Parts) -> tuple[RunWarning, ...]:
    """Return a warning if a league that draws snapshots ends before its second one can be drawn.

    With one side that learns there is no second one: the opponents of this side are policies that are not trained.
    """
    plan = parts.league_plan
    if plan is None or plan.learning_sides < 2 or plan.config.opponents == "latest" or plan.config.latest_ratio == 1:
        return ()
    league, steps = plan.config, _learning_steps(parts.config)
    if league.snapshot_every < steps:
        return ()
    return (
        FewSnapshots(
            f"the run has about {counted(steps, 'learning step')}, and a snapshot is taken every "
            f"{league.snapshot_every} of them: all opponents are the newest policies and their initial weights. For "
            f"others, pass --set league.snapshot_every={max(1, steps // league.window)}, or more --steps"
        ),
    )


def _learning_steps(config: Config) -> int:
    """Return after how many learning steps a run has learned from `steps` env steps, if each row is learned from."""
    memory = config.memory
    tickets = math.ceil(config.run.steps / (memory.length * config.runtime.envs_per_actor))
    return memory.pace.step_of(tickets - 1) + 1


def _without_effect(parts: Parts, among: Container[str] | None = None) -> tuple[RunWarning, ...]:
    """Return a warning for each setting of the algorithm that has no effect for any policy that learns.

    `among`: the keys of the settings that are looked at; None: all.
    """
    texts = [
        _effectless(parts.config.of_policy(policy.name).algorithm_settings, policy.env_spec, parts.config.runtime)
        for policy in parts.policies
        if policy.trained
    ]
    return tuple(
        WithoutEffect(text)
        for key, text in texts[0].items()
        if (among is None or key in among) and all(key in other for other in texts)
    )


def _effectless(settings: AlgorithmSettings, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
    """Return key -> message, for the settings of a policy that have no effect, and of which a run warns."""
    defaults, always = defaults_of(type(settings)), settings.warned_at_default(env)
    return {
        key: f"{key} is {value_for_reader(getattr(settings, key))}, which has no effect {why}"
        for key, why in settings.without_effect(env, runtime).items()
        if key in always or getattr(settings, key) != defaults[key]
    }
