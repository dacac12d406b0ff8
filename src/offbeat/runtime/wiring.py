"""The wiring diagram: which parts a run has, and what each is given.

envs -> actor -> unrolls | replay -> learner -> weights -> actor
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offbeat.algorithms.base import Algorithm, policy_of
from offbeat.algorithms.off_policy import ReplayConfig
from offbeat.config.config import Config
from offbeat.config.registry import algorithm_entry
from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slots
from offbeat.core.pace import Pace
from offbeat.core.threads import usable_cores
from offbeat.core.types import NO_DECISION, EnvSpec, Tree, env_fields
from offbeat.envs.check import preflight
from offbeat.memory.arena import SharedArena, private_arena, require_memory
from offbeat.memory.weights import Weights
from offbeat.metrics.bottleneck import Topology
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.runtime.acting import Acting, Plan
from offbeat.runtime.child import Child
from offbeat.runtime.processes import ProcessActing
from offbeat.runtime.serial import SerialActing
from offbeat.runtime.supervisor import Notify
from offbeat.runtime.threads import ThreadActing
from offbeat.workers.learner import Learner, UnrollLearner
from offbeat.workers.replay_learner import ReplayLearner
from offbeat.workers.updates import UpdateCounter


@dataclass(frozen=True)
class Parts:
    """Everything on the learner's side."""

    config: Config
    plan: Plan
    pace: Pace
    env: EnvSpec
    policy: PolicySpec
    algorithm: Algorithm
    arrays: Tree
    """What actors and learner share: see `Plan.slabs`."""
    arena: SharedArena | None
    """Where the arrays lie, if other processes are to see them."""
    slots: Slots
    weights: Weights
    learner: Learner
    timings: Timings
    """Of the learner; actors keep their own."""

    @property
    def threads(self) -> int:
        """Threads that the learner really has: those of the algorithm, where it shares out its updates."""
        return self.algorithm.threads or self.config.threads

    def snapshot(self) -> Tree:
        """Return views of all that has been learned."""
        return self.algorithm.weights()

    def close(self) -> None:
        self.algorithm.close()
        if self.arena:
            self.arena.close()


def build(config: Config, notify: Callable[[str], None] = lambda _text: None) -> Parts:
    """Make the learner's side of a run, after a few steps in the env, which show whether it works at all.

    Args:
        config: all settings.
        notify: is given how much memory will be taken, where that is much.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or memory does not suffice.
    """
    runtime, memory = config.runtime, config.memory
    env = env_of(config)
    policy = policy_of(config.settings, env)
    algorithm = algorithm_entry(config.run.algorithm).algorithm_class().for_run(config, policy, device_of(config))
    fields = (*env_fields(env), *algorithm.fields())
    plan = Plan(config.run, config.env, runtime, env, policy, fields, memory, config.actor_threads)
    require_memory(plan.slabs(), memory.purpose, memory.remedy)
    if news := memory.describe(fields):
        notify(news)
    arena = SharedArena(plan.slabs()) if runtime.entry.in_processes else None
    arrays = arena.arrays if arena else private_arena(plan.slabs())
    slots, weights, timings = plan.slots(arrays), plan.weights(arrays), Timings()
    learner = learner_of(config, algorithm, slots, weights, timings)
    return Parts(config, plan, plan.pace, env, policy, algorithm, arrays, arena, slots, weights, learner, timings)


def env_of(config: Config) -> EnvSpec:
    """Return what the envs of an actor look like, after a few steps in one.

    Raises:
        ConfigError: it cannot be made or stepped, or the algorithm cannot learn from it.
    """
    env = replace(preflight(config.run.env, config.env), columns=config.runtime.envs_per_actor)
    if env.no_decision and config.settings.learns_from == "replay":
        raise ConfigError(
            f"{env.id} has {NO_DECISION} in its infos, moments in which there is nothing to decide, but a replay "
            f"cannot go on over these: run offbeat train ppo {env.id}, or step through them in the env itself"
        )
    return env


def learner_of(
    config: Config, algorithm: Any, slots: Any, weights: Weights, timings: Timings, counter: UpdateCounter | None = None
) -> Learner:
    """Make the learner that suits what is remembered; `counter` where others learn the same parameters."""
    shared: dict[str, Any] = {
        "seed": config.run.seed, "device": device_of(config), "timings": timings, "counter": counter,
    }  # fmt: skip
    if config.settings.learns_from == "replay":
        settings = config.settings_as(ReplayConfig)
        shared["saves_replay"] = settings.save_replay
        return ReplayLearner(algorithm, settings.replay(slots), settings.memory(config.runtime).pace, weights, **shared)
    return UnrollLearner(algorithm, slots, weights, **shared)


def acting_of(parts: Parts, learned: int, notify: Notify, show: Callable[[Sequence[Child]], None]) -> Acting:
    """Make the actors' side of a run, which acts from the first ticket on that learning step `learned` takes in.

    Args:
        parts: the learner's side.
        learned: learning steps that are finished; the first ticket keys the episodes that begin there.
        notify: tells the user what has happened.
        show: is given the actor processes, whenever they have changed.

    Raises:
        ConfigError: the env cannot be made, or cannot be sent to another process.
    """
    if parts.arena is not None:
        return ProcessActing(parts.plan, parts.arena, learned, parts.timings, notify, show)
    if parts.config.runtime.entry.overlaps:
        return ThreadActing(parts.plan, parts.arrays, learned, parts.timings)
    return SerialActing(parts.plan, parts.arrays, learned)


def topology_of(config: Config, threads: int) -> Topology:
    """Return who works in a run, and on what; `threads` are the learner's."""
    ahead = config.memory.pace.versions - 1
    return Topology(config.runtime.entry, config.actors, threads, usable_cores(), ahead, config.settings.lag_flag)


def device_of(config: Config) -> str:
    """Return the torch device of the learner.

    Raises:
        ConfigError: a GPU was asked for and there is none.
    """
    import torch

    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: pass --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"
