"""From a config to the parts of a run: read it from top to bottom.

    config -> env -> for each policy: spec and algorithm -> plan -> arrays -> for each policy: feed and learner

The runtime's own module makes the rest: actors or workers, and the loop that waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from offbeat.algorithms.base import Algorithm, policy_of
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.config import Config
from offbeat.config.registry import algorithm_entry
from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slots
from offbeat.core.threads import usable_cores
from offbeat.core.types import DEFAULT_POLICY, NO_DECISION, EnvSpec, env_fields
from offbeat.envs.check import preflight
from offbeat.memory.arena import SharedArena, private_arena, require_memory
from offbeat.memory.weights import Weights
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage
from offbeat.runtime.parts import LearnedPolicy, PacedParts, PolicyParts
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.workers.feed import Feed, ReplayFeed, Staging, UnrollFeed
from offbeat.workers.learner import Learner, UnrollLearner
from offbeat.workers.replay_learner import ReplayLearner
from offbeat.workers.updates import UpdateCounter


def build_paced(config: Config, notify: Callable[[str], None], *, shared: bool) -> PacedParts:
    """Make the learner's side of a run with one learner, after a few steps in the env, which show whether it works.

    Args:
        config: all settings.
        notify: is given how much memory will be taken, where that is much.
        shared: whether other processes are to see what actors and learner share.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or memory does not suffice.
    """
    env = env_of(config)
    return paced_parts(config, env, [policy_parts(config, env)], notify, shared=shared)


def policy_parts(
    config: Config, env: EnvSpec, name: str = DEFAULT_POLICY, storage: Storage | None = None
) -> PolicyParts:
    """Make a policy that owns all columns of an env, and its algorithm; what that learns lies in `storage`, or here."""
    spec = policy_of(config.settings, env)
    return PolicyParts(name=name, env=env, spec=spec, algorithm=algorithm_of(config, spec, storage))


def paced_parts(
    config: Config, env: EnvSpec, policies: Sequence[PolicyParts], notify: Callable[[str], None], *, shared: bool
) -> PacedParts:
    """Make what the policies of a run need beside their algorithms: memory, feeds and learners.

    Arguments and errors are as in `build_paced`.
    """
    plan = plan_of(config, policies, config.actor_threads)
    memory_shape = plan.policies[0].memory
    require_memory(plan.slabs(), memory_shape.purpose, memory_shape.remedy)
    for own in plan.policies:
        if news := own.memory.describe(own.fields):
            notify(news)
    arena = SharedArena(plan.slabs()) if shared else None
    arrays = arena.arrays if arena else private_arena(plan.slabs())
    memory, timings = plan.memory(arrays), Timings()
    learned = [
        _learned(config, policy, place, slots, weights, timings)
        for place, (policy, (slots, weights)) in enumerate(zip(policies, memory.policies, strict=True))
    ]
    return PacedParts(
        config=config,
        env=env,
        policies=tuple(learned),
        timings=timings,
        plan=plan,
        arrays=arrays,
        arena=arena,
        memory=memory,
    )


def _learned(
    config: Config, policy: PolicyParts, place: int, slots: Slots, weights: Weights, timings: Timings
) -> LearnedPolicy:
    """Make the learner of the policy that is at this place among those of the run."""
    return LearnedPolicy(
        name=policy.name,
        env=policy.env,
        spec=policy.spec,
        algorithm=policy.algorithm,
        slots=slots,
        weights=weights,
        learner=learner_of(config, policy.algorithm, slots, weights, timings, place=place),
    )


def env_of(config: Config) -> EnvSpec:
    """Return what the envs of an actor look like, after a few steps in one.

    Raises:
        ConfigError: it cannot be made or stepped, or the algorithm cannot learn from it.
    """
    env = replace(preflight(config.run.env, config.env), columns=config.runtime.envs_per_actor)
    if env.no_decision and config.settings.learns_from == "replay":
        raise ConfigError(
            f"{env.id} has steps without a decision ({NO_DECISION} in its infos), which are not supported with a "
            f"replay: run offbeat train ppo {env.id}, or skip these steps in the env"
        )
    return env


def algorithm_of(config: Config, policy: PolicySpec, storage: Storage | None = None) -> Algorithm:
    """Make the algorithm of a run; what it learns lies in `storage`, or in this process."""
    made: Algorithm = (
        algorithm_entry(config.run.algorithm).algorithm_class().for_run(config, policy, device_of(config), storage)
    )
    return made


def device_of(config: Config) -> str:
    """Return the torch device of the learner.

    Raises:
        ConfigError: a GPU was asked for and there is none.
    """
    import torch

    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: pass --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"


def plan_of(config: Config, policies: Sequence[PolicyParts], actor_threads: int) -> Plan:
    """Return what actors are made from."""
    plans = (
        PolicyPlan(own.name, own.env, own.spec, (*env_fields(own.env), *own.algorithm.fields()), config.memory)
        for own in policies
    )
    return Plan(config.run, config.env, config.runtime, tuple(plans), actor_threads)


def learner_of(
    config: Config,
    algorithm: Any,
    slots: Slots,
    weights: Weights,
    timings: Timings,
    counter: UpdateCounter | None = None,
    place: int = 0,
) -> Learner:
    """Make the learner that suits what is remembered.

    Args:
        config: all settings.
        algorithm: what is learned.
        slots: what was acted.
        weights: where versions are published.
        timings: what the time goes into.
        counter: where others learn the same parameters.
        place: of the policy among those of the run: it keys the random streams.
    """
    learner = ReplayLearner if config.settings.learns_from == "replay" else UnrollLearner
    return learner(
        algorithm, feed_of(config, slots), weights, seed=config.run.seed, timings=timings, counter=counter, place=place
    )


def feed_of(config: Config, slots: Any) -> Feed:
    """Make the feed that suits what is remembered."""
    staging = Staging(device_of(config))
    if config.settings.learns_from == "replay":
        settings = config.settings_as(ReplayConfig)
        pace = settings.memory(config.runtime).pace
        return ReplayFeed(settings.replay(slots), pace, staging, saved=settings.save_replay)
    return UnrollFeed(slots, staging)


def topology_of(config: Config, threads: int) -> Topology:
    """Return who works in a run, and on what; `threads` are the learner's."""
    ahead = config.memory.pace.versions - 1
    return Topology(config.runtime.entry, config.actors, threads, usable_cores(), ahead, config.settings.lag_flag)
