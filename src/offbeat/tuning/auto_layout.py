"""Auto layout: chooses the numbers of actors and of learner threads from measured costs, at the start of a run.

Only the topology changes: a batch has as many columns as before, for example 1 actor with 32 envs or 2 with 16 each.
The measurement has its own random streams, and its objects are discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter

from offbeat.config.config import Config
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.messages import ignore
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_thread_count
from offbeat.core.types import F32, EnvSpec
from offbeat.metrics.expectation import Expectation
from offbeat.metrics.speed_model import SpeedModel, Topology
from offbeat.metrics.text import counted
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.runtime.assembly import parts_of_tested, topology_of
from offbeat.runtime.devices import require_inference_devices, set_up_device
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import Plan
from offbeat.runtime.tested_envs import tested_envs
from offbeat.tuning.chosen_layout import ChosenLayout
from offbeat.tuning.costs import Cost, MeasuredPolicy, act_cost, first_learn_cost, learn_cost
from offbeat.tuning.env_costs import EnvCosts
from offbeat.tuning.inference_costs import InferenceCosts, gain_text, inference_costs
from offbeat.tuning.recorded_envs import RecordedEnvs, random_slot
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns

NEAR_BEST = 0.95
"""The smallest topology that reaches this fraction of the best speed is chosen."""
ACTORS_PER_CORE = 4
"""Maximum number of actors per core, if the env mostly waits instead of computing."""
ENVS_S = 1.0
"""Seconds for measuring the envs of all topologies together, including their creation and reset."""
STEPS_S = 0.15
"""Seconds for stepping the envs of one topology."""
ACT_S = 0.02
"""Seconds for measuring how one topology acts."""
LEARN_S = 0.2
"""Seconds for measuring how one number of threads learns."""
LONG_STEP_S = 2.0
"""Seconds from which on a learning step is not repeated: only the first one is measured, though it is a bit slower."""
REMEDY = ". With --actors, no envs are measured"
"""What to do if an env call hangs while it is measured."""
UPDATE_US = 3000.0
"""Smallest CPU time of an update, in microseconds, for which more learner threads are tried. In shorter updates,
threads mostly wait for each other."""


@dataclass(frozen=True)
class Candidate:
    """A topology, with the costs of envs, acting and learning."""

    topology: Topology
    env: Cost
    act: Cost
    """Its networks are computed in the actors."""
    learn: Cost
    inference: InferenceCosts | None = None
    """Costs of the networks in actors and in inference workers; None: there are no inference workers."""

    @property
    def speed_model(self) -> SpeedModel:
        """The speed that these costs allow."""
        model = self._model_in_actor
        return model if self.inference is None else self.inference.in_worker(model)

    @property
    def inference_gain_text(self) -> str:
        """Whether the inference workers pay; '' if there are none."""
        return "" if self.inference is None else gain_text(self.inference.compare(self._model_in_actor).gain)

    @property
    def _model_in_actor(self) -> SpeedModel:
        """The speed that they allow if the networks are computed in the actors."""
        return SpeedModel(
            replace(self.topology, inference_workers=0),
            acting=self.env.time + self.act.time,
            learning=self.learn.time,
            acting_cpu=self.env.cpu + self.act.cpu,
            learning_cpu=self.learn.cpu,
            loading=self.learn.loading,
        )


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the smallest topology that is about as fast as the fastest: fewest threads first, then fewest actors."""
    best = max(candidate.speed_model.attainable_sps for candidate in candidates)
    near = [candidate for candidate in candidates if candidate.speed_model.attainable_sps >= NEAR_BEST * best]
    return min(near, key=lambda candidate: (candidate.topology.learner_threads, candidate.topology.actors))


def actor_counts(envs: int, env_groups: int, maximum: int) -> list[int]:
    """Return the numbers of actors, up to `maximum`, that divide the envs evenly, in whole groups."""
    return [actors for actors in range(1, maximum + 1) if envs % (actors * env_groups) == 0]


def with_measured_topology(config: Config, notify: Callable[[str], None] = ignore) -> ChosenLayout:
    """Measure costs and choose the topology, if `split` is 'measured'.

    Args:
        config: all settings.
        notify: called with a message when an env fails during the measurement and is created again, or when one of its
            calls takes too long.

    Returns:
        The config with the chosen topology and `split` 'given'. If nothing was measured, `config` itself.

    Raises:
        ConfigError: as `build`.
        EnvFailed: envs failed more often than `restart_budget` allows.
    """
    if config.runtime.split == "given":
        return ChosenLayout(config)
    set_thread_count(config.blas_threads)
    set_up_device(config)
    keep_freed_memory()
    require_inference_devices(config)
    parts = parts_of_tested(tested_envs(config, notify), ignore, shared=False)
    try:
        candidates = _measure(parts, notify)
    finally:
        parts.close()
    chosen = choose(candidates)
    others = [candidate for candidate in candidates if candidate.topology != chosen.topology]
    return ChosenLayout(
        _with_topology(config, chosen.topology),
        _reason(config.runtime, chosen),
        _expectation(chosen.speed_model),
        _with_topology(config, choose(others).topology) if others else None,
    )


def _expectation(model: SpeedModel) -> Expectation:
    return Expectation(model.attainable_sps, model.acting + model.inference, model.learning - model.loading)


def _with_topology(config: Config, topology: Topology) -> Config:
    """Return the config with a topology; batches have as many columns as before."""
    runtime = replace(
        config.runtime,
        split="given",
        actors=topology.actors,
        envs_per_actor=_envs(config.runtime) // topology.actors,
        unrolls_per_batch=topology.actors,
        learner_threads=topology.learner_threads,
    )
    return replace(config, runtime=runtime)


def _envs(runtime: RuntimeConfig) -> int:
    """Return the number of envs, or worlds with several agents, of a batch."""
    return runtime.batch_unrolls * runtime.envs_per_actor


def _reason(runtime: RuntimeConfig, chosen: Candidate) -> str:
    topology, bound = chosen.topology, chosen.speed_model.bound_by
    costs = f"env {chosen.env.time:.1f} us, act {chosen.act.time:.1f} us, learn {chosen.learn.time:.1f} us per env step"
    return (
        f"{counted(topology.actors, 'actor')} x {counted(_envs(runtime) // topology.actors, 'env')}, "
        f"{counted(topology.learner_threads, 'learner thread')}: {costs} on {counted(topology.cores, 'core')}; "
        + ("acting and learning take turns" if bound == "lag" else f"bound by the {bound}")
        + (f"; {chosen.inference_gain_text}, by these costs" if chosen.inference_gain_text else "")
    )


# --- measuring ----------------------------------------------------------------------------------------------


def _measure(parts: PacedParts, notify: Callable[[str], None]) -> list[Candidate]:
    """Return all candidates, with their measured costs."""
    runtime, topology = parts.config.runtime, topology_of(parts.config, parts.config.threads)
    for policy in parts.policies:
        policy.learner.publish(0)
    weights = [policy.weights.read(0).copy() for policy in parts.policies]
    _fill_batch(parts)
    learn, seconds, updates = first_learn_cost(parts, 0)
    if seconds < LONG_STEP_S:
        learn = learn_cost(parts, 0, LEARN_S)
    else:
        notify(f"a learning step takes about {seconds:.0f} s, so this measurement takes longer than usual")
    with closing(EnvCosts(parts, _loaded_policies(parts, weights), notify, REMEDY)) as envs:
        candidates = [
            Candidate(
                replace(topology, actors=actors),
                env,
                act,
                learn,
                _inference_costs(parts.plan, weights, actors) if topology.inference_workers else None,
            )
            for actors, env, act in _acting_costs(parts, _TimedEnvCosts(envs), weights, topology.cores)
        ]
    if runtime.learner_threads is None and learn.cpu * runtime.batch_rows >= UPDATE_US * updates:
        return [*candidates, *_with_more_threads(parts, candidates)]
    return candidates


def _fill_batch(parts: PacedParts) -> None:
    """Fill batch 0 by acting on random rows, because real envs may be slow."""
    columns = [
        PolicyColumns(RecordedEnvs(plan.env_spec, random_slot(plan, plan.env_spec)), make_policy(plan.spec))
        for plan in parts.plan.policies
    ]
    actor = Actor(0, parts.config.run.seed, columns)
    actor.start(0)
    for ticket in parts.pace.tickets_of(0):
        actor.act(parts.memory.work(ticket, version=0))


def _acting_costs(
    parts: PacedParts, envs: _TimedEnvCosts, weights: Sequence[F32], cores: int
) -> Iterator[tuple[int, Cost, Cost]]:
    """Yield (number of actors, cost of envs, cost of acting), from the most actors to the fewest.

    More actors than cores help only if the envs wait for something else than a core.
    """
    runtime = parts.config.runtime
    maximum = ACTORS_PER_CORE * cores if envs.cost(1, groups=1).waits else cores
    workers = runtime.inference_workers or 1
    counts = actor_counts(_envs(runtime), runtime.env_groups, max(maximum, workers))
    if counts[-1] < workers:
        raise ConfigError(
            f"inference_workers is {workers}, but of up to {max(maximum, workers)} actors at most {counts[-1]} divide "
            f"{_envs(runtime)} envs in env_groups={runtime.env_groups}: pass --set inference_workers={counts[-1]}, or "
            "--actors"
        )
    for actors in reversed([count for count in counts if count >= workers]):
        count = _envs(runtime) // actors
        yield actors, envs.cost(count, runtime.env_groups), _act_cost(parts, weights, count)


class _TimedEnvCosts:
    """Measures increasing numbers of envs. After `ENVS_S` seconds it returns the last measured cost."""

    def __init__(self, envs: EnvCosts) -> None:
        self._envs, self._until = envs, perf_counter() + ENVS_S
        self._last: Cost | None = None

    def cost(self, count: int, groups: int) -> Cost:
        if self._last is None or perf_counter() + count * self._envs.setup_s < self._until:
            self._last = self._envs.cost(count, groups, STEPS_S)
        return self._last


def _loaded_policies(parts: PacedParts, weights: Sequence[F32]) -> list[ActingPolicy]:
    """Return the acting policy of each policy, with its weights."""
    policies = [make_policy(policy.spec) for policy in parts.policies]
    for policy, vector in zip(policies, weights, strict=True):
        policy.load(vector)
    return policies


def _inference_costs(plan: Plan, weights: Sequence[F32], actors: int) -> InferenceCosts:
    """Return the costs of the networks with this number of actors."""
    count = _envs(plan.runtime) // actors
    policies = tuple(replace(policy, env_spec=_with_envs(policy.env_spec, count)) for policy in plan.policies)
    runtime = replace(plan.runtime, split="given", actors=actors, envs_per_actor=count)
    return inference_costs(replace(plan, runtime=runtime, policies=policies), weights, ACT_S)


def _with_envs(env: EnvSpec, count: int) -> EnvSpec:
    """Return the spec of a policy's columns in this number of envs."""
    return replace(env, columns=count * max(1, len(env.agents)))


def _act_cost(parts: PacedParts, weights: Sequence[F32], count: int) -> Cost:
    """Return the cost of acting in this number of envs."""
    policies = []
    for plan, vector in zip(parts.plan.policies, weights, strict=True):
        env = _with_envs(plan.env_spec, count)
        policies.append(MeasuredPolicy(plan.spec, env, vector, random_slot(plan, env)))
    return act_cost(policies, ACT_S)


def _with_more_threads(parts: PacedParts, candidates: list[Candidate]) -> Iterator[Candidate]:
    """Yield topologies with more learner threads, as long as the learner limits the speed and cores are idle."""
    best, threads = choose(candidates), 2
    while threads <= best.topology.cores and best.speed_model.attainable_sps < NEAR_BEST * best.speed_model.machine_sps:
        set_thread_count(threads)
        learn = learn_cost(parts, 0, LEARN_S)
        wider = [
            replace(candidate, topology=replace(candidate.topology, learner_threads=threads), learn=learn)
            for candidate in candidates
        ]
        yield from wider
        best, threads = choose([best, *wider]), 2 * threads
