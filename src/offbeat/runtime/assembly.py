"""Build the parts of a run from its config. Read this file from top to bottom.

    config -> env -> for each policy: spec and algorithm -> plan -> arrays -> for each policy: feed and learner

The module of the runtime then makes the actors or workers, and the training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from offbeat.algorithms.base import Algorithm
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.algorithms.returned import policy_of
from offbeat.config.config import Config
from offbeat.config.policies import names_of
from offbeat.config.registry import algorithm_entry
from offbeat.core.closing import Closable, closed_on_error
from offbeat.core.errors import ConfigError
from offbeat.core.memory_shape import Slots
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.process.threads import usable_cores
from offbeat.core.seeding import derive_seed
from offbeat.core.types import INITIAL_STATE, LAST_NO_DECISION, EnvSpec, env_fields
from offbeat.core.visits import TASK
from offbeat.league.sides import EXAMPLE, message_of
from offbeat.memory.arena import SharedArena, arena_bytes, private_arena, require_bytes
from offbeat.memory.weights import Weights
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import Timings
from offbeat.models.collective import AllShards
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.runtime.devices import device_of, require_inference_devices
from offbeat.runtime.loop.league import League
from offbeat.runtime.main_thread import MainThreadWatch
from offbeat.runtime.parts import PacedParts, PacedPolicy, PolicyParts, blas_threads
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.runtime.tested_envs import TestedEnvs, tested_envs
from offbeat.workers.feed import Feed
from offbeat.workers.learner import Learner, UnrollLearner, UntrainedLearner
from offbeat.workers.loader import LoadAhead
from offbeat.workers.replay_feed import ReplayFeed
from offbeat.workers.replay_learner import ReplayLearner
from offbeat.workers.staging import Staging
from offbeat.workers.unroll_feed import UnrollFeed
from offbeat.workers.updates import UpdateCounter


def build_paced(config: Config, notify: Callable[[str], None], *, shared: bool) -> PacedParts:
    """Build all parts of a run with one learner per policy except the actors, after a few test steps in the env.

    Args:
        config: all settings.
        notify: is called with a message if the run needs much memory, a league has sides that nobody named, or a call
            of the tested env takes too long.
        shared: whether slots, weights and board are in shared memory, for actors in other processes.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or there is not enough memory.
    """
    require_inference_devices(config)
    return parts_of_tested(tested_envs(config, notify), notify, shared=shared)


def parts_of_tested(tested: TestedEnvs, notify: Callable[[str], None], *, shared: bool) -> PacedParts:
    """Build the same parts for envs that were tested.

    Args:
        tested: the tested envs, with the config.
        notify: is called with a message if the run needs much memory, or a league has sides that nobody named.
        shared: as for `build_paced`.

    Raises:
        ConfigError: the spaces of the env or the device do not suit the settings, or there is not enough memory.
    """
    config, made = tested.config, list[Closable]()
    with closed_on_error(made):
        policies = []
        for name, env in tested.policies.items():
            sides = tested.league.sides_of(name) if tested.league else ()
            policies.append(policy_parts(config, env, PrivateStorage(), name, sides))
            made.append(policies[-1].algorithm)
        plan = plan_of(tested, policies, _actor_threads(config, policies))
        _require_memory(plan, notify)
        if config.league is not None and not config.league.sides and tested.league:
            agents = [side.agents for side in tested.league.sides]
            if message := message_of(agents, what="league", example=EXAMPLE):
                notify(message)
        arena = SharedArena(plan.slabs()) if shared else None
        if arena:
            made.append(arena)
        return _parts_in(arena, tested, policies, plan)


def _require_memory(plan: Plan, notify: Callable[[str], None]) -> None:
    """Notify the user of policies that need much memory.

    Raises:
        ConfigError: there is not enough memory.
    """
    shape = plan.policies[0].memory_shape
    require_bytes(arena_bytes(plan.slabs()), shape.purpose, shape.remedy)
    for policy in plan.policies:
        if policy.trained and (message := policy.memory_shape.describe(policy.fields)):
            notify(f"policy {policy.name}: {message}" if len(plan.policies) > 1 else message)


def _parts_in(
    arena: SharedArena | None,
    tested: TestedEnvs,
    policies: Sequence[PolicyParts],
    plan: Plan,
) -> PacedParts:
    """Build the parts that read and write the arrays of a run: feeds, learners and league.

    Args:
        arena: has the arrays; None: they are in private memory.
        tested: the envs, with the config and the rules of the league.
        policies: in the order of the plan.
        plan: what actors are made from.
    """
    arrays = arena.arrays if arena else private_arena(plan.slabs())
    memory, timings = plan.memory(arrays), Timings()
    paced = [
        _paced_policy(tested.config, policy, index, *memory.policies[index], timings)
        for index, policy in enumerate(policies)
    ]
    league = None
    if tested.league is not None and memory.league is not None:
        weights = {policy.name: policy.weights for policy in paced}
        league = League(tested.league, plan.pace, memory.league, weights)
    return PacedParts(
        config=tested.config,
        env_spec=plan.policies[0].env_spec,
        policies=tuple(paced),
        timings=timings,
        main_thread=MainThreadWatch(tested.config.runtime),
        plan=plan,
        arrays=arrays,
        arena=arena,
        memory=memory,
        league=league,
    )


def _actor_threads(config: Config, policies: Sequence[PolicyParts]) -> int:
    """Return the threads that BLAS may use in an actor process; with lag exact as in the learner, which has the same
    bits.
    """
    if config.runtime.lag == "exact":
        return blas_threads(config, policies)
    return config.runtime.actor_threads or 1


# --- the policies -------------------------------------------------------------------------------------------


RECORDED = ("behavior_log_prob", INITIAL_STATE, LAST_NO_DECISION, TASK)
"""Names of the fields that actors can record for an algorithm. Others would be learned from as zeros."""


def policy_parts(
    config: Config,
    env: EnvSpec,
    storage: Storage,
    name: str = DEFAULT_POLICY,
    sides: tuple[tuple[str, ...], ...] = (),
) -> PolicyParts:
    """Make a policy that owns the columns of an env, and its algorithm.

    The parameters are in `storage`. `sides`: see `PolicyParts`.
    """
    own = config.of_policy(name)
    with config.naming(name):
        spec = policy_of(own.algorithm_settings, env)
    seeded = own.with_run(seed=_seed_of_weights(config, name))
    return PolicyParts(
        name=name,
        trained=config.trains(name),
        env_spec=env,
        sides=sides,
        spec=spec,
        algorithm=algorithm_of(seeded, spec, storage),
    )


def _seed_of_weights(config: Config, name: str) -> int:
    """Return the seed of a policy's initial weights: policies of the same shape must not begin as copies of one."""
    index = names_of(config.policies).index(name)
    return derive_seed(config.run.seed, "policy", index) if index else config.run.seed


def algorithm_of(config: Config, policy: PolicySpec, storage: Storage | None = None) -> Algorithm:
    """Make the algorithm of a run. Its parameters are in `storage`; None: in private memory of this process.

    Raises:
        ConfigError: the algorithm does not support the settings, or has a field that actors do not record, or the
            network needs more memory than is free.
    """
    _require_memory_of_network(policy)
    algorithm: Algorithm = (
        algorithm_entry(config.run.algorithm).algorithm_class().for_run(config, policy, device_of(config), storage)
    )
    if unknown := [field.name for field in algorithm.fields() if field.name not in RECORDED]:
        algorithm.close()
        raise ConfigError(
            f"{type(algorithm).__qualname__}.fields has {unknown[0]!r}, but besides the env's rows actors record "
            f"only {', '.join(RECORDED)}: leave it out"
        )
    if config.runtime.shards > 1:
        algorithm.collective = AllShards(config.runtime.shards)
    return algorithm


def _require_memory_of_network(policy: PolicySpec) -> None:
    """Refuse a network whose parameters, gradients and two moments of Adam alone need more memory than is free."""
    size = published_layout(policy).size
    require_bytes(
        4 * 4 * size,
        f"the network of the policy has {policy.inputs:,} inputs besides images, {policy.outputs:,} outputs and "
        f"{size:,} parameters, which with their gradients and Adam's moments need",
        "pass smaller hidden_sizes, or wrap the env: each choice of a discrete observation or action is an input or "
        "an output",
    )


def plan_of(tested: TestedEnvs, policies: Sequence[PolicyParts], actor_threads: int) -> Plan:
    """Return the plan from which actors are built."""
    config = tested.config
    plans = (
        PolicyPlan(
            name=policy.name,
            env_spec=policy.env_spec,
            spec=policy.spec,
            layout=published_layout(policy.spec),
            fields=(*env_fields(policy.env_spec), *policy.algorithm.fields()),
            memory_shape=config.of_policy(policy.name).memory_of(policy.env_spec.columns),
            visits=config.of_policy(policy.name).algorithm_settings.visits(config.runtime.actors),
            trained=policy.trained,
        )
        for policy in policies
    )
    return Plan(
        run=config.run,
        env_config=config.env,
        runtime=config.runtime,
        policies=tuple(plans),
        actor_threads=actor_threads,
        world=tested.world,
        league=tested.league,
        tasks=config.tasks,
    )


# --- the learners -------------------------------------------------------------------------------------------


def _paced_policy(
    config: Config,
    policy: PolicyParts,
    index: int,
    slots: Slots,
    weights: Weights,
    timings: Timings,
) -> PacedPolicy:
    """Make the learner of a policy; `index`: of the policy in the run's policies."""
    own, seed = config.of_policy(policy.name), config.run.seed
    learner: Learner
    if policy.trained:
        learner = learner_of(own, policy.algorithm, slots, weights, timings, policy_index=index)
    else:
        learner = UntrainedLearner(policy.algorithm, Feed(), weights, seed=seed, timings=timings, policy_index=index)
    return PacedPolicy(**vars(policy), slots=slots, weights=weights, learner=learner)


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
    learner = ReplayLearner if config.algorithm_settings.learns_from == "replay" else UnrollLearner
    return learner(
        algorithm,
        _feed_of(config, slots),
        weights,
        seed=config.run.seed,
        timings=timings,
        counter=counter,
        policy_index=policy_index,
    )


def _feed_of(config: Config, slots: Any) -> Feed:
    """Make the feed of a learner: from a replay or from unrolls, as the algorithm needs."""
    staging = Staging(device_of(config))
    default = 1 if staging.copies else 0
    if config.algorithm_settings.learns_from == "replay":
        settings = config.settings_as(ReplayConfig)
        ahead = _load_ahead(config, min(default, settings.most_load_ahead))
        replay = settings.replay(slots, buffers=2 + max(ahead.depth, settings.priority_delay))
        delay = settings.priority_delay
        return ReplayFeed(
            replay, slots.shape.pace, staging, saved=settings.save_replay, priority_delay=delay, ahead=ahead
        )
    return UnrollFeed(slots, staging, _load_ahead(config, default))


def _load_ahead(config: Config, default: int) -> LoadAhead:
    """Return how far a learner's data is loaded ahead; `default`: the depth if the config does not say it."""
    runtime = config.runtime
    depth = runtime.load_ahead
    if depth is None:
        depth = default if "load_ahead" in runtime.entry.supports else 0
    return LoadAhead(depth, runtime.stall_timeout_s)


# --- the topology -------------------------------------------------------------------------------------------


def topology_of(config: Config, threads: int) -> Topology:
    """Return the topology of a run: runtime, actors, cores and threads; `threads`: those of each learner."""
    runtime, pace = config.runtime, config.memory.pace
    return Topology(
        runtime.entry,
        config.actors,
        threads,
        usable_cores(),
        max_lag=pace.versions - 1,
        lag_flag=config.algorithm_settings.lag_flag,
        inference_workers=runtime.inference_processes,
        env_groups=runtime.env_groups,
        learners=runtime.learners,
        passes=pace.passes,
        resident_batches=pace.resident_batches,
    )
