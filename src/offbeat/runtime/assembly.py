"""Build the parts of a run from its config. Read this file from top to bottom.

    config -> env -> for each policy: spec and algorithm -> plan -> arrays -> for each policy: feed and learner

The module of the runtime then makes the actors or workers, and the training loop.
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
from offbeat.core.types import DEFAULT_POLICY, EnvSpec, env_fields
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
    """Build all parts of a run with one learner except the actors, after a few test steps in the env.

    Args:
        config: all settings.
        notify: is called with a message if the run needs much memory.
        shared: whether slots, weights and board are in shared memory, for actors in other processes.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or there is not enough memory.
    """
    env = env_of(config)
    return paced_parts(config, env, [policy_parts(config, env)], notify, shared=shared)


def policy_parts(
    config: Config, env: EnvSpec, name: str = DEFAULT_POLICY, storage: Storage | None = None
) -> PolicyParts:
    """Make a policy that owns all columns of an env, and its algorithm.

    The parameters are in `storage`; None: in private memory of this process.
    """
    spec = policy_of(config.settings, env)
    return PolicyParts(name=name, env=env, spec=spec, algorithm=algorithm_of(config, spec, storage))


def paced_parts(
    config: Config, env: EnvSpec, policies: Sequence[PolicyParts], notify: Callable[[str], None], *, shared: bool
) -> PacedParts:
    """Make the memory, feeds and learners of a run's policies.

    The other arguments and the errors are those of `build_paced`.
    """
    plan = plan_of(config, policies, config.actor_threads)
    memory_shape = plan.policies[0].memory
    require_memory(plan.slabs(), memory_shape.purpose, memory_shape.remedy)
    for policy_plan in plan.policies:
        if message := policy_plan.memory.describe(policy_plan.fields):
            notify(message)
    arena = SharedArena(plan.slabs()) if shared else None
    arrays = arena.arrays if arena else private_arena(plan.slabs())
    memory, timings = plan.memory(arrays), Timings()
    learned = [
        _learned(config, policy, index, slots, weights, timings)
        for index, (policy, (slots, weights)) in enumerate(zip(policies, memory.policies, strict=True))
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
    config: Config, policy: PolicyParts, index: int, slots: Slots, weights: Weights, timings: Timings
) -> LearnedPolicy:
    """Make the learner of a policy; `index`: of the policy in the run's policies."""
    return LearnedPolicy(
        name=policy.name,
        env=policy.env,
        spec=policy.spec,
        algorithm=policy.algorithm,
        slots=slots,
        weights=weights,
        learner=learner_of(config, policy.algorithm, slots, weights, timings, policy_index=index),
    )


def env_of(config: Config) -> EnvSpec:
    """Return the spec of an actor's envs, after a few test steps in one env.

    Raises:
        ConfigError: the env cannot be made or stepped.
    """
    return replace(preflight(config.run.env, config.env), columns=config.runtime.envs_per_actor)


def algorithm_of(config: Config, policy: PolicySpec, storage: Storage | None = None) -> Algorithm:
    """Make the algorithm of a run. Its parameters are in `storage`; None: in private memory of this process."""
    algorithm: Algorithm = (
        algorithm_entry(config.run.algorithm).algorithm_class().for_run(config, policy, device_of(config), storage)
    )
    return algorithm


def device_of(config: Config) -> str:
    """Return the torch device of the learner.

    Raises:
        ConfigError: the config requires a GPU, and torch finds none.
    """
    import torch

    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: pass --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"


def plan_of(config: Config, policies: Sequence[PolicyParts], actor_threads: int) -> Plan:
    """Return the plan from which actors are built."""
    plans = (
        PolicyPlan(
            policy.name,
            policy.env,
            policy.spec,
            (*env_fields(policy.env), *policy.algorithm.fields()),
            config.memory,
        )
        for policy in policies
    )
    return Plan(config.run, config.env, config.runtime, tuple(plans), actor_threads)


def learner_of(
    config: Config,
    algorithm: Any,
    slots: Slots,
    weights: Weights,
    timings: Timings,
    counter: UpdateCounter | None = None,
    policy_index: int = 0,
) -> Learner:
    """Make the learner of one policy: for a replay or for unrolls, as the algorithm needs.

    Args:
        config: all settings.
        algorithm: the algorithm, with the parameters to learn.
        slots: the slots that actors write.
        weights: the versions of the weights are published here.
        timings: the time of each learning step is added here.
        counter: counts the updates of all learners, if other learners change the same parameters (Hogwild).
        policy_index: index of the policy in the run's policies. The random streams depend on it.
    """
    learner = ReplayLearner if config.settings.learns_from == "replay" else UnrollLearner
    return learner(
        algorithm,
        feed_of(config, slots),
        weights,
        seed=config.run.seed,
        timings=timings,
        counter=counter,
        policy_index=policy_index,
    )


def feed_of(config: Config, slots: Any) -> Feed:
    """Make the feed of a learner: from a replay or from unrolls, as the algorithm needs."""
    staging = Staging(device_of(config))
    if config.settings.learns_from == "replay":
        settings = config.settings_as(ReplayConfig)
        pace = settings.memory(config.runtime).pace
        return ReplayFeed(settings.replay(slots), pace, staging, saved=settings.save_replay)
    return UnrollFeed(slots, staging)


def topology_of(config: Config, threads: int) -> Topology:
    """Return the topology of a run: runtime, actors, cores and threads; `threads`: those of the learner."""
    ahead = config.memory.pace.versions - 1
    return Topology(config.runtime.entry, config.actors, threads, usable_cores(), ahead, config.settings.lag_flag)
