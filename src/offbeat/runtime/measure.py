"""What acting and learning cost on this machine, and how near a runtime comes to what the machine could do.

c_env, c_act and c_learn are core-microseconds (CPU time of all threads) per env step, each measured alone.
No schedule of the same work can beat cores / (c_env + c_act + c_learn) env steps per second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from offbeat.config import Config
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.make import make_envs
from offbeat.errors import RunFailed
from offbeat.metrics.timings import Timings
from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.runtime.serial import act
from offbeat.runtime.wiring import Parts, build
from offbeat.threads import usable_cores
from offbeat.types import Array, EnvSpec, Tree
from offbeat.workers.actor import Actor

SECONDS = 2.0
"""How long each cost is measured for, at least."""
ROUNDS = 5
"""Each cost is measured so often, in turn with the others; the median counts."""
TOO_GOOD = 1.05
"""A fraction over this means that the limit was measured wrongly."""


@dataclass(frozen=True)
class Costs:
    """Core-microseconds per env step."""

    env: float
    act: float
    learn: float

    @property
    def total(self) -> float:
        return self.env + self.act + self.learn


def measure_costs(parts: Parts) -> Costs:
    """Measure each part alone, on the layout of `parts`, which must not have begun."""
    parts.begin()
    for ticket in parts.pace.tickets_of(0):
        act(parts, ticket)
    run, runtime = parts.config.run, parts.config.runtime
    envs = make_envs(run.env, runtime.envs_per_actor, seed=run.seed, role="measure")
    try:
        measures = (_env_cost(parts, envs), _act_cost(parts), _learn_cost(parts))
        rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
    finally:
        envs.close()
    return Costs(*(median(values) for values in zip(*rounds, strict=True)))


def _per_env_step(work: Callable[[], int]) -> float:
    """Repeat work, which returns its env steps, and return its core-microseconds per env step."""
    steps, begun, used = 0, perf_counter(), process_time()
    while perf_counter() - begun < SECONDS / ROUNDS:
        steps += work()
    return 1e6 * (process_time() - used) / steps


def _env_cost(parts: Parts, envs: Envs) -> Callable[[], float]:
    """Step envs with the actions of the untrained policy, chosen beforehand."""
    envs.reset()
    policy = NumpyPolicy(parts.policy)
    actions = [policy.to_env(row).copy() for row in parts.unrolls.open(0)["action"][:-1]]

    def step() -> int:
        steps = 0
        for action in actions:
            envs.send(action)
            steps += int(envs.recv().valid.sum())
        return steps

    return lambda: _per_env_step(step)


def _act_cost(parts: Parts) -> Callable[[], float]:
    """Act an unroll on envs that only play back what happened: choosing, recording and counting are left."""
    slot = {name: array.copy() for name, array in parts.unrolls.open(0).items()}
    valid = int(slot["valid"][:-1].sum())
    actor = Actor(0, 0, _PlayedBack(parts.env, slot), NumpyPolicy(parts.policy), Timings())
    actor.begin()
    weights = parts.weights.read(0).copy()

    def unroll() -> int:
        actor.act(0, 0, weights, slot)
        return valid

    return lambda: _per_env_step(unroll)


class _PlayedBack:
    """Envs of one group whose outcomes are those of a recorded unroll, again and again."""

    def __init__(self, spec: EnvSpec, slot: Tree) -> None:
        self.spec = spec
        self.groups: tuple[slice, ...] = (slice(0, spec.columns),)
        recorded = {name: array.copy() for name, array in slot.items()}
        leaves = [leaf.name for leaf in spec.observation]
        self._first = {name: recorded[name][0] for name in leaves}
        self._outcomes = [
            Outcome(
                {name: recorded[name][row + 1] for name in leaves},
                *(recorded[name][row] for name in ("reward", "terminated", "truncated", "valid")),
            )
            for row in range(len(recorded["reward"]) - 1)
        ]
        self._next = cycle(self._outcomes)

    def reset(self) -> Tree:
        return self._first

    def send(self, actions: Array, group: int = 0) -> None:
        """Take no notice of the actions."""

    def recv(self, group: int = 0) -> Outcome:  # noqa: ARG002  (there is one group)
        return next(self._next)

    def close(self) -> None:
        """Nothing to close."""


def _learn_cost(parts: Parts) -> Callable[[], float]:
    """Learn from one batch again and again. Its policy moves away, but the work stays the same."""
    return lambda: _per_env_step(lambda: parts.learner.learn(0, 0.0).env_steps)


def measure_speed(config: Config, seconds: float, *, act_only: bool = False) -> dict[str, float]:
    """Run the serial order for `seconds` after a warm-up of a tenth; return sps and the policy lag seen."""
    parts = build(config)
    try:
        parts.begin()
        walk = _Walk(parts, act_only=act_only)
        walk.go(seconds / 10)
        before, begun = walk.env_steps, perf_counter()
        walk.go(seconds)
        sps = (walk.env_steps - before) / (perf_counter() - begun)
    finally:
        parts.close()
    return {"sps": sps, "lag_mean": float(np.mean(walk.lag_means or 0)), "lag_max": max(walk.lag_maxima, default=0.0)}


class _Walk:
    """The pace's order without checkpoints, evaluation or metrics."""

    def __init__(self, parts: Parts, *, act_only: bool) -> None:
        self._parts, self._act_only = parts, act_only
        self._acted = self._learned = 0
        self.env_steps = 0
        self.lag_means: list[float] = []
        self.lag_maxima: list[float] = []

    def go(self, seconds: float) -> None:
        begun = perf_counter()
        while perf_counter() - begun < seconds:
            self._act_only_step() if self._act_only else self._step()

    def _step(self) -> None:
        parts = self._parts
        while parts.pace.may_act(self._acted, self._learned):
            act(parts, self._acted)
            self._acted += 1
        learned = parts.learner.learn(self._learned, 0.0)
        self._learned += 1
        self.env_steps += learned.env_steps
        self.lag_means.append(learned.metrics["policy_lag_mean"])
        self.lag_maxima.append(learned.metrics["policy_lag_max"])

    def _act_only_step(self) -> None:
        parts = self._parts
        ticket = self._acted % parts.pace.unrolls_per_batch
        actor = parts.actors[self._acted % len(parts.actors)]
        actor.act(self._acted, 0, parts.weights.read(0), parts.unrolls.open(ticket))
        self._acted += 1
        self.env_steps += int(parts.unrolls.open(ticket)["valid"][:-1].sum())


def report(config: Config, seconds: float) -> dict[str, Any]:
    """Measure costs and speed; return what `offbeat bench --json` prints.

    Raises:
        RunFailed: more was achieved than is possible: the limit was measured wrongly.
    """
    parts = build(config)
    try:
        costs = measure_costs(parts)
    finally:
        parts.close()
    speed = measure_speed(config, seconds)
    cores = usable_cores()
    limit, serial = 1e6 * cores / costs.total, 1e6 / costs.total
    acting, learning = costs.env + costs.act, costs.learn
    fraction, layout_fraction = speed["sps"] / limit, speed["sps"] / serial
    result = {
        "cores": cores,
        "c_env_us": costs.env,
        "c_act_us": costs.act,
        "c_learn_us": costs.learn,
        "limit_sps": limit,
        "layout_limit_sps": serial,
        "serial_limit_sps": serial,
        "achieved_sps": speed["sps"],
        "fraction": fraction,
        "layout_fraction": layout_fraction,
        "overlap_gain_max": (acting + learning) / max(acting, learning),
        "bound_by": "actors" if acting > learning else "learner",
        "policy_lag_mean": speed["lag_mean"],
        "policy_lag_max": speed["lag_max"],
    }
    if layout_fraction > TOO_GOOD:
        raise RunFailed(
            f"achieved {speed['sps']:.0f} env steps per second, more than the limit of {serial:.0f} for this layout: "
            "the costs were measured wrongly, most likely because the machine was busy; measure again when it is idle"
        )
    return result
