"""Measures the costs of stepping envs, acting and learning, each alone, in microseconds per env step.

Nothing else may run in this process meanwhile, because the CPU time of the whole process is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import cycle
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.seeding import stream
from offbeat.core.types import Array, EnvSpec, Policy, Tree
from offbeat.envs.contract import Advanced, Envs, Outcome
from offbeat.models.acting import make_policy
from offbeat.models.spec import PolicySpec
from offbeat.models.stacks import Stacks
from offbeat.runtime.parts import PacedParts
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork, Work

WAIT_RATIO = 3.0
"""If the wall time is above this multiple of the CPU time, the process mostly waits. If it gave up its core itself, it
waits for something else; otherwise it waits for a core, because the machine is busy."""


class Cost(NamedTuple):
    """The cost of a piece of work, in microseconds per env step."""

    cpu: float
    """CPU time, summed over threads."""
    wall: float
    """Wall time."""
    waits: bool = False
    """Whether it mostly waits for something other than a core, such as a simulator on another machine."""

    @property
    def time(self) -> float:
        """Time that it takes on a machine that is not busy."""
        return self.wall if self.waits else min(self.cpu, self.wall)


class Meter:
    """A context manager that adds up the CPU time and the wall time of the code in its `with` blocks."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self._entered = 0
        self._before = getrusage(RUSAGE_SELF)

    def __enter__(self) -> None:
        self._start = perf_counter(), process_time()

    def __exit__(self, *error: object) -> None:
        cpu = process_time()
        self.wall += perf_counter() - self._start[0]
        self.cpu += cpu - self._start[1]
        self._entered += 1

    def cost(self, env_steps: float, overhead: Cost) -> Cost:
        """Return the cost per env step.

        Args:
            env_steps: number of env steps in the `with` blocks.
            overhead: cost of an empty `with` block, as `meter_overhead` returns it; it is subtracted for each block.
        """
        cpu, wall = (
            1e6 * max(0.0, spent - 1e-6 * per_block * self._entered) / max(1.0, env_steps)
            for spent, per_block in ((self.cpu, overhead.cpu), (self.wall, overhead.wall))
        )
        return Cost(cpu, wall, wall > WAIT_RATIO * cpu and self._gave_up_core())

    def _gave_up_core(self) -> bool:
        """Whether the process gave up its core more often than the operating system took it away."""
        now, before = getrusage(RUSAGE_SELF), self._before
        return now.ru_nvcsw - before.ru_nvcsw > now.ru_nivcsw - before.ru_nivcsw


def meter_overhead(blocks: int = 300) -> Cost:
    """Return what a meter measures for an empty `with` block, in microseconds: reading the clocks takes time too."""
    meter = Meter()
    for _ in range(blocks):
        with meter:
            pass
    return meter.cost(blocks, Cost(0.0, 0.0))


# --- env ----------------------------------------------------------------------------------------------------


class EnvStepper:
    """Steps envs with a policy's actions and measures the envs alone.

    The policy matters, because the cost of an env step depends on the episodes: short ones are reset more often.
    """

    def __init__(self, envs: Envs, policy: Policy, seed: int) -> None:
        self._envs, self._policy, self._random = envs, policy, stream(seed, "measure")
        self._overhead = meter_overhead()
        self._observation = {name: leaf.copy() for name, leaf in envs.reset().items()}
        self._state = np.zeros((envs.spec.columns, policy.state_size), np.float32)
        self._stacks = Stacks(envs.spec.observation, envs.spec.columns)
        self._stacks.reset(self._observation)

    def cost(self, seconds: float) -> Cost:
        """Step all columns for `seconds`, at least once, and return the cost."""
        meter, env_steps, until = Meter(), 0, perf_counter() + seconds
        while not env_steps or perf_counter() < until:
            acted = self._policy.act(self._stacks.with_stacks(self._observation), self._random, self._state)
            actions = self._policy.to_env(acted.action)
            with meter:
                outcomes = self._step(actions)
            for columns, outcome in zip(self._envs.groups, outcomes, strict=True):
                for name, leaf in outcome.observation.items():
                    self._observation[name][columns] = leaf
                self._stacks.push(outcome.observation, outcome.resets, columns)
                env_steps += int(outcome.valid.sum())
        return meter.cost(env_steps, self._overhead)

    def _step(self, actions: Array) -> list[Outcome]:
        groups = range(len(self._envs.groups))
        for group in groups:
            self._envs.send(actions[self._envs.groups[group]], group)
        return [self._envs.recv(group) for group in groups]


# --- acting -------------------------------------------------------------------------------------------------


class RecordedEnvs:
    """Envs of one group that ignore actions and return the rows of a recorded unroll, again and again."""

    def __init__(self, spec: EnvSpec, slot: Tree) -> None:
        """Return the rows of `slot`, [T + 1, N, ...] by field name."""
        self.spec = spec
        self.groups: tuple[slice, ...] = (slice(0, spec.columns),)
        leaves = [leaf.name for leaf in spec.observation]
        rows = {"info": np.zeros((*slot["reward"].shape, 0)), **slot}
        self._first = {name: slot[name][0].copy() for name in leaves}
        self._outcomes = cycle(
            Outcome(
                {name: slot[name][row + 1].copy() for name in leaves},
                *(rows[name][row].copy() for name in ("reward", "terminated", "truncated", "valid", "info")),
            )
            for row in range(len(slot["reward"]) - 1)
        )

    def set_progress(self, progress: float) -> None:
        """Ignore the training progress."""

    def reset(self) -> Tree:
        return self._first

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        raise NotImplementedError("recorded envs cannot be advanced")

    def send(self, actions: Array, group: int = 0) -> None:
        """Ignore the actions."""

    def recv(self, group: int = 0) -> Outcome:  # noqa: ARG002  (there is one group)
        return next(self._outcomes)

    def close(self) -> None:
        """Nothing to close."""


def act_cost(policy: PolicySpec, env: EnvSpec, slot: Tree, weights: NDArray[np.float32], seconds: float) -> Cost:
    """Return the cost of acting without envs: choosing and recording actions, and counting.

    Args:
        policy: spec of the policy.
        env: spec of one actor's envs.
        slot: a recorded unroll, [T + 1, N, ...] by field name. Its rows are used as the outcomes of the envs.
        weights: weights of the policy, as one flat vector.
        seconds: duration. At least two unrolls are made, and the first one is not measured.
    """
    slot = {name: array.copy() for name, array in slot.items()}
    env_steps = int(slot["valid"][:-1].sum())
    actor = Actor(0, 0, [PolicyColumns(RecordedEnvs(env, slot), make_policy(policy))])
    work = Work.of_one(0, 0, PolicyWork(weights, slot))
    actor.start(0)
    actor.act(work)
    meter, unrolls, until = Meter(), 0, perf_counter() + seconds
    while not unrolls or perf_counter() < until:
        with meter:
            actor.act(work)
        unrolls += 1
    return meter.cost(unrolls * env_steps, meter_overhead())


# --- learning -----------------------------------------------------------------------------------------------


def learn_cost(parts: PacedParts, step: int, seconds: float) -> Cost:
    """Return the cost of learning from the batch of `step`, repeated for `seconds`, at least once.

    The weights are restored after each repetition. Otherwise the policy would move away from the one that acted, and an
    algorithm that stops early in that case would do less and less work.
    """
    algorithm = parts.policy.algorithm
    weights, state = deepcopy(algorithm.weights()), deepcopy(algorithm.state())
    meter, env_steps, until = Meter(), 0.0, perf_counter() + seconds
    while not env_steps or perf_counter() < until:
        with meter:
            env_steps += parts.policy.learner.rehearse(step)
        algorithm.load_weights(weights)
        algorithm.restore(state)
    return meter.cost(env_steps, meter_overhead())
