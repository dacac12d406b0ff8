"""`offbeat bench`: the speed of a run, compared with the limits of its machine and of its topology.

c_env, c_act and c_learn are the CPU times of all threads in microseconds per env step, each measured alone.
`SpeedModel` computes the limits from them. With several policies, they are the costs of all policies together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

from offbeat.config.config import Config
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.messages import ignore
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_blas_thread_count
from offbeat.metrics.speed_model import SpeedModel, Topology
from offbeat.runtime.assembly import topology_of
from offbeat.runtime.devices import set_up_device
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Notify
from offbeat.runtime.runtimes import build
from offbeat.tuning.costs import Cost, MeasuredPolicy, act_cost, learn_cost
from offbeat.tuning.env_costs import EnvCosts
from offbeat.tuning.inference_costs import InferenceCosts, gain_text, inference_costs, with_workers, without_workers
from offbeat.tuning.layouts import LayoutComparison, MeasuredLayout, advice, compare, layout_of
from offbeat.tuning.message_costs import message_results
from offbeat.tuning.other_load import is_busy, other_cores
from offbeat.tuning.recorded_envs import random_slot
from offbeat.tuning.run_speed import SLOW_S, Speed, acting_speed, hogwild_sps, learning_speed

Measured = TypeVar("Measured")
SECONDS = 2.0
"""Each cost is measured for at least this long."""
ROUNDS = 5
"""Number of times that each cost is measured, in turn with the other costs; the median is used."""
MAX_FRACTION = 1.05
"""If the speed is above this multiple of the limit, the limit was measured wrongly."""


@dataclass(frozen=True)
class Costs:
    """CPU time of each part, in microseconds per env step."""

    env: float
    act: float
    learn: float
    learn_wall: float
    """Wall time of one learner with all its threads, in microseconds per env step."""
    loading: float = 0.0
    """The part of learn_wall that a loader does beside the learner, in microseconds per env step."""
    env_wait: float = 0.0
    """Time in which envs wait for something other than a core, in microseconds per env step."""
    inference: InferenceCosts | None = None
    """Costs of the networks in actors and in inference workers; None: the run cannot have inference workers."""

    def speed_model(self, topology: Topology) -> SpeedModel:
        """Return the model of a run with these costs. An actor has one thread, which waits only in its envs; several
        learners divide the work evenly, and their exchanges cost nothing.
        """
        if topology.inference_workers and self.inference is not None:
            return self.inference.in_worker(self.speed_model(replace(topology, inference_workers=0)))
        acting_cpu = self.env + self.act
        acting = acting_cpu + self.env_wait
        learning = self.loading + (self.learn_wall - self.loading) / topology.learners
        return SpeedModel(
            topology, acting, learning, acting_cpu=acting_cpu, learning_cpu=self.learn, loading=self.loading
        )


def report(
    config: Config,
    seconds: float,
    notify: Notify,
    others: Sequence[Config] = (),
    show: Callable[[str], None] = ignore,
) -> dict[str, Any]:
    """Train for `seconds`, then measure the costs with the trained policy, and return `results`.

    The order matters, because the cost of an env step depends on the policy: if episodes are short, the envs are reset
    often. Then other layouts of the same work are trained for `seconds` each, with new policies.

    Args:
        config: the config of the run.
        seconds: seconds of each run.
        notify: called with a message when an env fails and is created again, when one of its calls takes too long, and
            when a measurement takes much longer than `seconds`.
        others: configs with other layouts in the same runtime, to be compared with it.
        show: called with what is measured next.

    Raises:
        RunFailed: the speed is above the limit, so the costs were measured wrongly.
    """
    other_load = other_cores()
    set_up_device(config)
    keep_freed_memory()
    show("measuring the run")
    hogwild = hogwild_sps(config, seconds, notify) if config.runtime.entry.workers_learn else None
    with _built(config if hogwild is None else config.of_worker(0), notify) as parts:
        learner_speed = learning_speed(parts, seconds, notify)
        show("measuring the costs of its parts")
        costs, threads = _costs(parts, learner_speed.last_step, notify), parts.threads
    run_speed = learner_speed if hogwild is None else _of_all_workers(learner_speed, hogwild)
    several_agents = {} if parts.plan.world is None else {"achieved_agent_sps": run_speed.agent_sps}
    topology = topology_of(config, threads)
    busy = is_busy(other_load, topology.cores)
    result = results(topology, costs, run_speed, other_load) | several_agents
    if costs.inference is not None:
        show(
            "measuring the run without inference workers"
            if config.runtime.uses_inference
            else "measuring the run with inference workers"
        )
        result |= _inference_results(config, topology, costs, run_speed, seconds, notify, busy=busy)
    run = layout_of(config, threads, _speed_model(topology, costs, run_speed).attainable_sps, run_speed.sps)
    if hogwild is not None:
        in_turn = layout_of(config.of_worker(0), threads, costs.speed_model(topology).serial_sps, learner_speed.sps)
        compared = LayoutComparison(run, serial=in_turn, concurrent=run)
    else:
        show("measuring other layouts")
        compared = compare(run, config, others, partial(_measured_layout, costs, seconds, notify), notify)
    return result | compared.results() | {"advice": advice(compared, busy=busy)}


def _of_all_workers(one: Speed, sps: float) -> Speed:
    """Return the speed of a Hogwild run with these env steps per second, from that of one of its workers."""
    return replace(one, sps=sps, agent_sps=one.agent_sps / one.sps * sps)


def _measured_layout(costs: Costs, seconds: float, notify: Notify, config: Config) -> MeasuredLayout:
    """Run with another layout for `seconds`, and return what the costs predict for it beside its speed."""
    with _built(config, notify) as parts:
        topology = topology_of(config, parts.threads)
        achieved = learning_speed(parts, seconds, notify).sps
    return layout_of(config, topology.learner_threads, costs.speed_model(topology).attainable_sps, achieved)


def _inference_results(
    config: Config, topology: Topology, costs: Costs, speed: Speed, seconds: float, notify: Notify, *, busy: bool
) -> dict[str, Any]:
    """Run once more, with inference workers if this run had none, or without them, and return the comparison.

    `busy`: whether other processes use the machine, so that the two speeds do not tell what pays.
    """
    assert costs.inference is not None
    uses = config.runtime.uses_inference
    runtime = (without_workers if uses else with_workers)(config.runtime)
    try:
        with _built(replace(config, runtime=runtime), notify) as parts:
            other = learning_speed(parts, seconds, notify).sps
    except RunFailed as error:
        return {"inference": f"not compared, because the run with inference={runtime.inference} failed: {error}"}
    actor_sps, worker_sps = (other, speed.sps) if uses else (speed.sps, other)
    in_actors = costs.speed_model(replace(topology, inference_workers=0)).with_ideal_learner()
    too_busy = "the machine is too busy to say whether inference workers pay"
    pays = too_busy if busy else gain_text(worker_sps / actor_sps)
    return {
        "c_network_us": costs.inference.in_actor.cpu,
        "c_request_us": costs.inference.request.cpu,
        "c_infer_us": costs.inference.batch.time,
        "inference_actor_sps": actor_sps,
        "inference_worker_sps": worker_sps,
        "inference": (
            f"{pays}: {actor_sps:,.0f} env steps/s with inference=actor, "
            f"{worker_sps:,.0f} with inference=worker inference_workers={costs.inference.workers} env_groups="
            f"{costs.inference.env_groups}; {costs.inference.compare(in_actors).why}"
        ),
    }


def _built(config: Config, notify: Notify) -> closing[PacedParts]:
    """Build a run, whose parts are closed at the end of the block."""
    return closing(build(config, notify))


def sampling_sps(config: Config, seconds: float, notify: Notify) -> float:
    """Return the env steps per second of the actors without a learner.

    Raises:
        ConfigError: the runtime's workers learn too.
    """
    if config.runtime.entry.workers_learn:
        raise ConfigError(
            f"act_only is given, but the workers of the {config.runtime.runtime} runtime learn too: pass another "
            "--runtime"
        )
    set_up_device(config)
    keep_freed_memory()
    with _built(config, notify) as parts:
        return acting_speed(parts, seconds, notify).sps


# --- the cost of each part ----------------------------------------------------------------------------------


def _costs(parts: PacedParts, step: int, notify: Notify) -> Costs:
    """Measure each part alone, with the weights that were published after `step` and the data of its batch."""
    runtime = parts.config.runtime
    acting = _acting_policies(parts, step)
    with closing(EnvCosts(parts, [policy.loaded() for policy in acting], notify)) as envs:
        measures = (
            partial(_with_actor_threads, parts, partial(envs.cost, runtime.envs_per_actor, runtime.env_groups)),
            partial(_with_actor_threads, parts, partial(act_cost, acting)),
            partial(learn_cost, parts, step),
        )
        rounds = _rounds(measures, notify)
    env, act, learn = (median(cost.cpu for cost in costs) for costs in zip(*rounds, strict=True))
    return Costs(
        env,
        act,
        learn,
        learn_wall=median(learn.wall for _, _, learn in rounds),
        loading=median(learn.loading for _, _, learn in rounds),
        env_wait=median(cost.time - min(cost.cpu, cost.time) for cost, _, _ in rounds),
        inference=_with_actor_threads(parts, partial(_inference_costs, parts, acting), SECONDS / ROUNDS),
    )


def _rounds(measures: Sequence[Callable[[float], Cost]], notify: Notify) -> list[list[Cost]]:
    """Measure all costs in turn, `ROUNDS` times. If they are slow to measure, say how long it takes."""
    started = perf_counter()
    first = [measure(SECONDS / ROUNDS) for measure in measures]
    left = (ROUNDS - 1) * (perf_counter() - started)
    if left > len(measures) * SECONDS + SLOW_S:
        notify(f"measuring the costs takes about {left:.0f} s more")
    return [first, *([measure(SECONDS / ROUNDS) for measure in measures] for _ in range(ROUNDS - 1))]


def _inference_costs(parts: PacedParts, acting: Sequence[MeasuredPolicy], seconds: float) -> InferenceCosts | None:
    """Measure inference in actors and in inference workers; None if the run cannot have inference workers."""
    if not parts.config.runtime.entry.has_inference_workers or parts.league is not None or parts.plan.tasks is not None:
        return None
    return inference_costs(parts.plan, [policy.weights for policy in acting], seconds)


def _acting_policies(parts: PacedParts, step: int) -> list[MeasuredPolicy]:
    """Return all policies with the weights that were published after `step` and the rows of a ticket.

    A policy that does not learn has no slots in the run's memory: random rows take their place.
    """
    ticket = _newest_ticket_with_decisions(parts, step)
    return [
        MeasuredPolicy(
            policy.spec,
            policy.env_spec,
            policy.weights.read(step + 1).copy(),
            policy.slots.open(ticket) if policy.trained else random_slot(plan, policy.env_spec),
            plan.visits,
            parts.plan.tasks,
        )
        for policy, plan in zip(parts.policies, parts.plan.policies, strict=True)
    ]


def _newest_ticket_with_decisions(parts: PacedParts, step: int) -> int:
    """Return the newest ticket, up to the first of `step`, in which a policy that learns has a valid row."""
    return next(
        ticket
        for ticket in count(parts.pace.tickets_of(step).start, -1)
        if any(policy.slots.open(ticket)["valid"][:-1].any() for policy in parts.trained)
    )


def _with_actor_threads(parts: PacedParts, measure: Callable[[float], Measured], seconds: float) -> Measured:
    """Measure with as many threads as an actor process may use."""
    if not parts.config.runtime.entry.in_processes:
        return measure(seconds)
    set_blas_thread_count(parts.plan.actor_threads)
    try:
        return measure(seconds)
    finally:
        set_blas_thread_count(parts.blas_threads)


# --- results ------------------------------------------------------------------------------------------------


def _speed_model(topology: Topology, costs: Costs, speed: Speed) -> SpeedModel:
    """Return the model of the run; on a cluster, with what its messages cost."""
    model = costs.speed_model(topology)
    return model if speed.messages is None else speed.messages.on_cluster(model)


def results(topology: Topology, costs: Costs, speed: Speed, others: float | None = None) -> dict[str, Any]:
    """Return the results that `offbeat bench --json` prints.

    Args:
        topology: of the run.
        costs: of each part, measured alone.
        speed: of the run.
        others: cores that other processes used before the measurement; None: not known.

    Raises:
        RunFailed: the speed is above the limit, so the costs were measured wrongly.
    """
    without, measured = costs.speed_model(topology), _speed_model(topology, costs, speed)
    ideal = measured.with_ideal_learner()
    if speed.sps > MAX_FRACTION * ideal.limit_sps:
        busy = "" if others is None else f" (other processes used {others:.1f} cores when the measurement began)"
        raise RunFailed(
            f"achieved {speed.sps:.0f} env steps per second, more than the limit of {ideal.limit_sps:.0f} for this "
            f"topology: the costs were measured wrongly, most likely because the machine was busy{busy}; "
            "measure again when it is idle"
        )
    return {
        "cores": ideal.topology.cores,
        "c_env_us": costs.env,
        "c_act_us": costs.act,
        "c_learn_us": costs.learn,
        "env_wait_us": costs.env_wait,
        "limit_sps": ideal.machine_sps,
        "layout_limit_sps": ideal.limit_sps,
        "serial_limit_sps": ideal.one_core_sps,
        "achieved_sps": speed.sps,
        "fraction": speed.sps / ideal.machine_sps,
        "layout_fraction": speed.sps / ideal.limit_sps,
        "overlap_gain_max": measured.gain_max,
        "bound_by": ideal.bound_by,
        "policy_lag_mean": speed.policy_lag_mean,
        "policy_lag_max": speed.policy_lag_max,
        "other_cores": others,
        **({} if speed.messages is None else message_results(speed.messages, ideal, without.with_ideal_learner())),
    }
