"""Build the parts of a run from its config. Read this file from top to bottom.

    config -> env -> for each policy: spec and algorithm -> plan -> arrays -> for each policy: feed and learner

The module of the runtime then makes the actors or workers, and the training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offbeat.algorithms.base import Algorithm, policy_of
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.config import Config
from offbeat.config.devices import gpus_of, listed
from offbeat.config.env import EnvConfig
from offbeat.config.league import LeagueConfig
from offbeat.config.policies import owners
from offbeat.config.registry import algorithm_entry
from offbeat.config.shards import require_shards
from offbeat.core.errors import ConfigError
from offbeat.core.gpu_numerics import set_gpu_numerics
from offbeat.core.memory_shape import Slots
from offbeat.core.threads import usable_cores
from offbeat.core.types import DEFAULT_POLICY, EnvSpec, env_fields
from offbeat.envs.check import preflight
from offbeat.envs.make_worlds import preflight_world
from offbeat.envs.world import WorldSpec
from offbeat.envs.world_rows import spec_of_policy
from offbeat.league.sides import Side, policies_by_agent, require_sides
from offbeat.memory.arena import SharedArena, private_arena, require_memory
from offbeat.memory.weights import Weights
from offbeat.metrics.speed_model import Topology
from offbeat.metrics.timings import Timings
from offbeat.models.collective import AllShards
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import Storage
from offbeat.runtime.deadline import stall_timeout
from offbeat.runtime.league import League
from offbeat.runtime.parts import LearnedPolicy, PacedParts, PolicyParts
from offbeat.runtime.plan import Plan, PolicyPlan
from offbeat.workers.feed import Feed
from offbeat.workers.learner import Learner, UnrollLearner, UntrainedLearner
from offbeat.workers.loader import LoadAhead
from offbeat.workers.replay_feed import ReplayFeed
from offbeat.workers.replay_learner import ReplayLearner
from offbeat.workers.seats import LeaguePlan
from offbeat.workers.staging import Staging
from offbeat.workers.unroll_feed import UnrollFeed
from offbeat.workers.updates import UpdateCounter


def build_paced(config: Config, notify: Callable[[str], None], *, shared: bool) -> PacedParts:
    """Build all parts of a run with one learner per policy except the actors, after a few test steps in the env.

    Args:
        config: all settings.
        notify: is called with a message if the run needs much memory.
        shared: whether slots, weights and board are in shared memory, for actors in other processes.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or there is not enough memory.
    """
    _require_inference_devices(config)
    tested = tested_envs(config)
    policies = [
        policy_parts(tested.config, env, name, sides=tested.league.sides_of(name) if tested.league else ())
        for name, env in tested.policies.items()
    ]
    plan = plan_of(tested, policies, config.actor_threads)
    memory_shape = plan.policies[0].memory
    require_memory(plan.slabs(), memory_shape.purpose, memory_shape.remedy)
    for policy_plan in plan.policies:
        if policy_plan.trained and (message := policy_plan.memory.describe(policy_plan.fields)):
            notify(message)
    arena = SharedArena(plan.slabs()) if shared else None
    arrays = arena.arrays if arena else private_arena(plan.slabs())
    memory, timings = plan.memory(arrays), Timings()
    learned = [
        _learned(tested.config, policy, index, plan.policies[index], *memory.policies[index], timings)
        for index, policy in enumerate(policies)
    ]
    weights = {policy.name: policy.weights for policy in learned}
    league = (
        None
        if tested.league is None or memory.league is None
        else League(tested.league, plan.pace, memory.league, weights)
    )
    return PacedParts(
        config=tested.config,
        env=plan.policies[0].env,
        policies=tuple(learned),
        timings=timings,
        plan=plan,
        arrays=arrays,
        arena=arena,
        memory=memory,
        league=league,
    )


# --- the envs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TestedEnvs:
    """The envs of an actor after a few test steps: which columns each policy has."""

    config: Config
    """The config of the run, whose tables name a policy for each agent."""
    world: WorldSpec | None
    """Agents and spaces of a world with several agents; None: each env has one agent."""
    policies: Mapping[str, EnvSpec]
    """Spec of the columns that one actor has for each policy, in the order of the policies."""
    league: LeaguePlan | None = None
    """The league of the run, if it has one."""


def tested_envs(config: Config) -> TestedEnvs:
    """Take a few test steps in one env, and return which columns each policy has.

    Raises:
        ConfigError: the env cannot be made or stepped, or `columns_of` refuses it.
    """
    return columns_of(config, tested_env(config.run.env, config.env))


def tested_env(env_id: str, settings: EnvConfig) -> WorldSpec | EnvSpec:
    """Take a few test steps in one env, and return its spec: that of a world if it has several agents.

    Raises:
        ConfigError: the env cannot be made or stepped.
    """
    return preflight_world(env_id, settings) or preflight(env_id, settings)


def columns_of(config: Config, spec: WorldSpec | EnvSpec) -> TestedEnvs:
    """Return which columns each policy of a run has in an env with this spec, from `tested_env`.

    Raises:
        ConfigError: an agent has no policy, a policy no agent, or settings do not suit the number of columns.
    """
    tested = _columns_of(config, spec)
    _refuse_turns_of_replays(tested)
    _refuse_turns_within_groups(tested)
    for name, env in tested.policies.items():
        settings = tested.config.of_policy(name).settings
        settings.check_columns(config.runtime, env.columns)
        require_shards(config.runtime, settings, env.columns)
    return tested


def _refuse_turns_of_replays(tested: TestedEnvs) -> None:
    """Refuse turns of learning with a replay whose samples may need rows of an earlier turn, which are not recorded.

    Those are the rows before a burn-in or in a frame stack. In a game by turns, a decision may still wait for the
    opponent's move when the turn of learning changes: its target would be wrong.
    """
    config, league = tested.config, tested.config.league
    if league is None or not league.team_change_every or config.settings.learns_from != "replay":
        return
    settings = [config.of_policy(name).settings for name in tested.policies]
    what = ""
    if any(env.no_decision for env in tested.policies.values()):
        what = "in an env whose agents act by turns"
    elif any(leaf.stack > 1 for env in tested.policies.values() for leaf in env.observation):
        what = "and a frame_stack"
    elif any(isinstance(each, ReplayConfig) and each.rows_before for each in settings):
        what = "and a burn_in, which --set burn_in=0 switches off"
    if what:
        raise ConfigError(
            f"team_change_every is {league.team_change_every}, which is not supported with a replay {what}: pass "
            f"--set league.team_change_every=0, or train ppo {config.run.env}"
        )


def _columns_of(config: Config, world: WorldSpec | EnvSpec) -> TestedEnvs:
    if isinstance(world, EnvSpec):
        _refuse_policies(config)
        if config.league is not None:
            require_sides(config.league, config.run.env, {"agent": [DEFAULT_POLICY]}, (DEFAULT_POLICY,))
        _require_learners(config, 1)
        return TestedEnvs(config, None, {DEFAULT_POLICY: replace(world, columns=config.runtime.envs_per_actor)})
    config = config.with_agents(world.names)
    owned, count = owners(config.policies, world.names, several=config.draws_policies), config.runtime.envs_per_actor
    policies = {name: spec_of_policy(world, name, agents, count) for name, agents in owned.items()}
    _require_learners(config, len(policies))
    return TestedEnvs(config, world, policies, league_of(config, owned))


def _refuse_turns_within_groups(tested: TestedEnvs) -> None:
    """Refuse turns of learning that end while batches of the turn are still to be used again."""
    league, settings = tested.config.league, tested.config.settings
    if league is None or not isinstance(settings, OnPolicyConfig):
        return
    steps = settings.passes * settings.resident_batches
    if league.team_change_every % steps:
        raise ConfigError(
            f"team_change_every is {league.team_change_every}, but with passes {settings.passes} and resident_batches "
            f"{settings.resident_batches} batches are used in groups of {steps} learning steps: pass a multiple of "
            f"{steps}"
        )


def _require_learners(config: Config, policies: int) -> None:
    """Refuse more workers for learning than there are policies."""
    workers = config.runtime.learner_workers or 1
    if workers > policies:
        noun = "policy" if policies == 1 else "policies"
        raise ConfigError(
            f"learner_workers is {workers}, but a run with {policies} {noun} has as many learners: pass --set "
            f"learner_workers={policies}, or leave it out"
        )


def league_of(config: Config, owned: Mapping[str, Sequence[str]]) -> LeaguePlan | None:
    """Return the league of a run; None if it has none. `owned`: the agents of each policy.

    Raises:
        ConfigError: the game does not have two sides, or none of them is trained.
    """
    if config.league is None:
        return None
    trained = tuple(filter(config.trains, owned))
    sides = require_sides(config.league, config.run.env, policies_by_agent(owned), trained)
    _require_worlds(config, config.league, sides, trained)
    return LeaguePlan(config.league, sides, trained)


def _require_worlds(config: Config, league: LeagueConfig, sides: Sequence[Side], trained: Sequence[str]) -> None:
    """Refuse a league in which a side is never learned from: each side learns in its own worlds."""
    worlds, learning = config.columns, sum(any(name in trained for name in side.policies) for side in sides)
    if league.latest_ratio == 0 and not league.team_change_every and worlds < learning:
        raise ConfigError(
            f"latest_ratio is 0, so one side learns in each world, but there are {learning} sides that learn and "
            f"{worlds} worlds: pass --envs-per-actor {learning} or more, or a larger league.latest_ratio"
        )


def _refuse_policies(config: Config) -> None:
    """Refuse several policies for an env with one agent."""
    if config.policies or config.run.policies != "shared":
        raise ConfigError(
            f"{config.run.env} has one agent, so it cannot have several policies: leave out --policies and the tables "
            "[policies.NAME], or train in an env with several agents"
        )


# --- the policies -------------------------------------------------------------------------------------------


def policy_parts(
    config: Config,
    env: EnvSpec,
    name: str = DEFAULT_POLICY,
    storage: Storage | None = None,
    sides: tuple[tuple[str, ...], ...] = (),
) -> PolicyParts:
    """Make a policy that owns the columns of an env, and its algorithm.

    The parameters are in `storage`; None: in private memory of this process. `sides`: see `PolicyParts`.
    """
    own = config.of_policy(name)
    spec = policy_of(own.settings, env)
    return PolicyParts(name=name, env=env, sides=sides, spec=spec, algorithm=algorithm_of(own, spec, storage))


def _learned(
    config: Config,
    policy: PolicyParts,
    index: int,
    plan: PolicyPlan,
    slots: Slots,
    weights: Weights,
    timings: Timings,
) -> LearnedPolicy:
    """Make the learner of a policy; `index`: of the policy in the run's policies."""
    own, seed = config.of_policy(policy.name), config.run.seed
    learner: Learner
    if plan.trained:
        learner = learner_of(own, policy.algorithm, slots, weights, timings, policy_index=index)
    else:
        learner = UntrainedLearner(policy.algorithm, Feed(), weights, seed=seed, timings=timings, policy_index=index)
    return LearnedPolicy(
        name=policy.name,
        env=policy.env,
        sides=policy.sides,
        spec=policy.spec,
        algorithm=policy.algorithm,
        slots=slots,
        weights=weights,
        learner=learner,
        trained=plan.trained,
    )


def algorithm_of(config: Config, policy: PolicySpec, storage: Storage | None = None) -> Algorithm:
    """Make the algorithm of a run. Its parameters are in `storage`; None: in private memory of this process."""
    algorithm: Algorithm = (
        algorithm_entry(config.run.algorithm).algorithm_class().for_run(config, policy, device_of(config), storage)
    )
    if config.runtime.shards > 1:
        algorithm.collective = AllShards(config.runtime.shards)
    return algorithm


def device_of(config: Config) -> str:
    """Return the torch device of the learner; with several learners, of the first.

    Raises:
        ConfigError: the config requires a GPU that torch does not find.
    """
    import torch

    devices = config.runtime.devices
    if devices is not None:
        _require_gpus(devices, torch.cuda.device_count())
        return devices[0]
    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: pass --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"


def set_up_device(config: Config) -> None:
    """Let torch compute in this process as the devices and the lag of the run need.

    Raises:
        ConfigError: the config requires a GPU, and torch finds none.
    """
    for device in (device_of(config), *(config.runtime.inference_device or ())):
        set_gpu_numerics(device, exact=config.runtime.lag == "exact")


def _require_inference_devices(config: Config) -> None:
    """Refuse inference devices that are not there."""
    devices = [device for device in config.runtime.inference_device or () if device != "cpu"]
    if not devices:
        return
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for device in devices:
        if int(device.partition(":")[2] or 0) >= found:
            raise ConfigError(
                f"inference_device names {device}, but torch finds {found} CUDA GPUs here: pass --set "
                "inference_device=cpu, or a device with a smaller number"
            )


def _require_gpus(devices: Sequence[str], found: int) -> None:
    """Refuse GPUs that torch does not find; `found`: their number here."""
    known = {f"cuda:{number}" for number in range(found)}
    if missing := [device for device in gpus_of(devices) if device not in known]:
        gpus = {0: "no CUDA GPU", 1: "1 CUDA GPU, cuda:0"}.get(found, f"{found} CUDA GPUs, cuda:0 to cuda:{found - 1}")
        raise ConfigError(
            f"devices is {listed(devices)}, but {missing[0]} is not there: torch finds {gpus}. Pass only devices that "
            "are there, --set devices=cpu,cpu for example"
        )


def plan_of(tested: TestedEnvs, policies: Sequence[PolicyParts], actor_threads: int) -> Plan:
    """Return the plan from which actors are built."""
    config = tested.config
    plans = (
        PolicyPlan(
            policy.name,
            policy.env,
            policy.spec,
            published_layout(policy.spec),
            (*env_fields(policy.env), *policy.algorithm.fields()),
            config.of_policy(policy.name).memory_of(policy.env.columns),
            trained=config.trains(policy.name),
        )
        for policy in policies
    )
    return Plan(config.run, config.env, config.runtime, tuple(plans), actor_threads, tested.world, tested.league)


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
        ahead = _load_ahead(config, min(int(staging.copies), settings.most_ahead))
        replay = settings.replay(slots, buffers=2 + max(ahead.depth, settings.priority_delay))
        delay = settings.priority_delay
        return ReplayFeed(
            replay, slots.shape.pace, staging, saved=settings.save_replay, priority_delay=delay, ahead=ahead
        )
    return UnrollFeed(slots, staging, _load_ahead(config, int(staging.copies)))


def _load_ahead(config: Config, default: int) -> LoadAhead:
    """Return how far a learner's data is loaded ahead; `default`: the depth if the config does not say it."""
    runtime = config.runtime
    supported = "load_ahead" in runtime.entry.supports
    depth = default if supported and runtime.load_ahead is None else runtime.load_ahead or 0
    return LoadAhead(depth, stall_timeout(runtime))


def topology_of(config: Config, threads: int) -> Topology:
    """Return the topology of a run: runtime, actors, cores and threads; `threads`: those of each learner."""
    runtime, pace = config.runtime, config.memory.pace
    return Topology(
        runtime.entry,
        config.actors,
        threads,
        usable_cores(),
        max_lag=pace.versions - 1,
        lag_flag=config.settings.lag_flag,
        inference_workers=runtime.inference_workers or 1
        if runtime.uses_inference and runtime.entry.has_inference_workers
        else 0,
        env_groups=runtime.env_groups,
        learners=runtime.learners,
        passes=pace.passes,
        resident_batches=pace.resident_batches,
    )
