"""Makes an actor and its envs from a plan, and starts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.envs.contract import Envs
from offbeat.envs.make import make_envs, task_envs
from offbeat.envs.worlds.contract import PoliciesOf
from offbeat.envs.worlds.make import make_worlds
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.runtime.gate import first_ticket
from offbeat.runtime.lock_free_policy import LockFreePolicy, Renew
from offbeat.runtime.plan import ActorSnapshot, Plan, PolicyPlan
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.inference import Inference, PolicyInference
from offbeat.workers.seated_columns import SeatedColumns
from offbeat.workers.seats import Seats
from offbeat.workers.served_columns import ServedColumns
from offbeat.workers.task_columns import TaskColumns


def make_actor(
    plan: Plan,
    index: int,
    origin: int,
    watch: EnvCallWatch = UNWATCHED,
    attempt: int = 0,
    renew: Renew | None = None,
    inference: Inference | None = None,
) -> Actor:
    """Make an actor and its envs.

    Args:
        plan: the plan of the actors.
        index: index of the actor.
        origin: the ticket at which its episodes start. The random streams of the envs depend on it.
        watch: is notified of each env call.
        attempt: number of recent deaths of this actor. If not 0, the random streams of the envs depend on it.
        renew: writes the newest weights into an array. If given, the actor uses these for each decision instead of the
            weights of its ticket.
        inference: computes the networks of all policies; None: the actor does.

    Raises:
        ConfigError: the env cannot be made.
    """
    role = f"env, attempt {attempt}" if attempt else "env"
    seats = _seats(plan, index)
    draw = seats.draw_policies if seats is not None and seats.plan.draws_policies else None
    envs = envs_of(plan, plan.runtime.envs_per_actor, plan.runtime.env_groups, role, index, origin, draw)
    inference = inference or own_inference(plan, index)
    columns: list[PolicyColumns]
    if inference is None:
        columns = [_columns_of(plan, policy, envs[policy.name], seats, renew) for policy in plan.policies]
    else:
        columns = [
            _served_columns(plan, policy, envs[policy.name], network)
            for policy, network in zip(plan.policies, inference.policies, strict=True)
        ]
    return Actor(index, plan.run.seed, columns, watch, seats, inference)


def _columns_of(plan: Plan, policy: PolicyPlan, envs: Envs, seats: Seats | None, renew: Renew | None) -> PolicyColumns:
    """Make the columns of a policy that computes its own network."""
    made, transform_rewards = make_policy(policy.spec), plan.env_config.learning_rewards
    if policy.visits is not None and plan.tasks is not None:
        return TaskColumns(task_envs(envs), made, transform_rewards, visits=policy.visits, tasks=plan.tasks)
    acting = LockFreePolicy(made, renew) if renew else made
    if seats is None:
        return PolicyColumns(envs, acting, transform_rewards)
    finishes = policy is plan.policies[0]
    return SeatedColumns(envs, acting, transform_rewards, seats, name=policy.name, finishes=finishes)


def _served_columns(plan: Plan, policy: PolicyPlan, envs: Envs, network: PolicyInference) -> ServedColumns:
    """Make the columns of a policy whose network an `Inference` computes."""
    sampler = ActingPolicy(policy.spec, None, policy.layout)
    return ServedColumns(envs, sampler, plan.env_config.learning_rewards, network)


def _seats(plan: Plan, index: int) -> Seats | None:
    """Make the seats of an actor; None without a league."""
    if plan.league is None:
        return None
    specs = {policy.name: policy.spec for policy in plan.policies}
    return Seats(plan.league, plan.pace, specs, seed=plan.run.seed, actor=index, worlds=plan.runtime.envs_per_actor)


def own_inference(plan: Plan, actor: int) -> Inference | None:
    """Make the inference of an actor that computes its networks itself; None if its policies do that."""
    if not plan.runtime.uses_inference:
        return None
    from offbeat.workers.own_inference import OwnInference  # here: actors with inference workers need no torch

    groups = plan.inference_groups
    policies = [(policy.spec, policy.env_spec.columns) for policy in plan.policies]
    device = plan.inference_device(groups.worker_of(actor))
    return OwnInference(policies, actor, groups, plan.runtime.env_groups, device)


def envs_of(
    plan: Plan,
    count: int,
    groups: int,
    role: str,
    actor: int = 0,
    origin: int = 0,
    policies_of: PoliciesOf | None = None,
) -> Mapping[str, Envs]:
    """Make envs, or worlds with several agents; return the columns of each policy, by its name.

    Args:
        plan: the plan of the actors.
        count: number of envs or worlds.
        groups: number of groups of equal size that are stepped in turn.
        role: purpose of the envs. The random streams depend on it, and on the next two.
        actor: index of the actor.
        origin: ticket at which the episodes start.
        policies_of: the policies of the agents in each episode, if they are drawn.

    Raises:
        ConfigError: the env cannot be made.
    """
    where: Any = {
        "seed": plan.run.seed,
        "actor": actor,
        "origin": origin,
        "groups": groups,
        "role": role,
        "settings": plan.env_config,
    }
    if plan.world is not None:
        owners = {policy.name: policy.env_spec.agents for policy in plan.policies}
        return make_worlds(plan.world, count, owners, policies_of=policies_of, **where).envs
    info_mask = plan.policy.spec.info_mask
    return {plan.policy.name: make_envs(plan.run.env, count, info_mask=info_mask, tasks=plan.tasks, **where)}


def start_actor(plan: Plan, actor: Actor, origin: int, snapshot: ActorSnapshot, progress: float) -> None:
    """Continue an actor from a snapshot; without one, start new episodes with this training progress."""
    if snapshot is not None:
        actor.restore(snapshot)
        return
    shape = plan.policies[0].memory_shape
    spread = shape.length if plan.runtime.decorrelate else 0
    first = first_ticket(actor.index, plan.runtime.actors, origin)
    actor.start(origin, spread, cut=shape.is_cut(first), progress=progress)
