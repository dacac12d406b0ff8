"""The wiring diagram: which parts a run has, and what each is given.

envs -> actor -> unrolls -> learner -> weights -> actor
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from offbeat.config import Config
from offbeat.envs.check import preflight
from offbeat.errors import ConfigError
from offbeat.memory.arena import SharedArena, private_arena, require_memory
from offbeat.memory.unrolls import Unrolls
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.pace import OnPolicyPace
from offbeat.registry import algorithm_entry
from offbeat.runtime.acting import Acting, Plan
from offbeat.runtime.processes import ProcessActing
from offbeat.runtime.serial import SerialActing
from offbeat.runtime.supervisor import ActorProcess
from offbeat.runtime.threads import ThreadActing
from offbeat.types import Algorithm, EnvSpec, Tree, env_fields
from offbeat.workers.learner import Learner


@dataclass(frozen=True)
class Parts:
    """Everything on the learner's side."""

    config: Config
    plan: Plan
    pace: OnPolicyPace
    env: EnvSpec
    policy: PolicySpec
    algorithm: Algorithm
    arrays: Tree
    """What actors and learner share: see `Plan.slabs`."""
    arena: SharedArena | None
    """Where the arrays lie, if other processes are to see them."""
    unrolls: Unrolls
    weights: Weights
    learner: Learner
    timings: Timings
    """Of the learner; actors keep their own."""

    def close(self) -> None:
        if self.arena:
            self.arena.close()


def build(config: Config) -> Parts:
    """Make the learner's side of a run, after a few steps in the env, which show whether it works at all.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or memory does not suffice.
    """
    runtime, seed = config.runtime, config.run.seed
    entry, timings, pace = algorithm_entry(config.run.algorithm), Timings(), runtime.pace
    env = replace(preflight(config.run.env), columns=runtime.envs_per_actor)
    policy = config.settings.policy_spec(env)
    algorithm: Algorithm = entry.algorithm_class()(
        config.settings, policy, seed=seed, corrected=runtime.max_lag > 0, device=device_of(config)
    )
    plan = Plan(config.run, runtime, env, policy, (*env_fields(env), *algorithm.fields()))
    _require_memory(plan)
    arena = SharedArena(plan.slabs()) if runtime.runtime == "processes" else None
    arrays = arena.arrays if arena else private_arena(plan.slabs())
    unrolls, weights = plan.unrolls(arrays), plan.weights(arrays)
    learner = Learner(algorithm, unrolls, weights, seed=seed, device=device_of(config), timings=timings)
    return Parts(config, plan, pace, env, policy, algorithm, arrays, arena, unrolls, weights, learner, timings)


def acting_of(
    parts: Parts, origin: int, tell: Callable[[str], None], show: Callable[[Sequence[ActorProcess]], None]
) -> Acting:
    """Make the actors' side of a run, which acts from ticket `origin` on.

    Args:
        parts: the learner's side.
        origin: the first ticket; it keys the episodes that begin there.
        tell: tells the user what has happened.
        show: is given the actor processes, whenever they have changed.

    Raises:
        ConfigError: the env cannot be made, or cannot be sent to another process.
    """
    if parts.arena is not None:
        return ProcessActing(parts.plan, parts.arena, origin, parts.timings, tell, show)
    if parts.config.runtime.runtime == "threads":
        return ThreadActing(parts.plan, parts.arrays, origin, parts.timings)
    return SerialActing(parts.plan, parts.arrays, origin)


def _require_memory(plan: Plan) -> None:
    """Refuse slots that do not fit into memory."""
    runtime = plan.runtime
    require_memory(
        plan.slabs(),
        f"(max_lag + 1) x unrolls_per_batch = ({runtime.max_lag} + 1) x {runtime.batch_unrolls} slots of "
        f"(unroll_length + 1) x envs_per_actor = {runtime.unroll_length + 1} x {runtime.envs_per_actor} rows need",
        "type a smaller unroll_length, envs_per_actor, unrolls_per_batch or max_lag",
    )


def device_of(config: Config) -> str:
    """Return the torch device of the learner.

    Raises:
        ConfigError: a GPU was asked for and there is none.
    """
    import torch

    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: type --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"
