"""What env, acting and learning cost, each alone, in microseconds per env step.

Nothing else of the run may be at work meanwhile: what is counted is the CPU time of this whole process.
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

WAITS = 3.0
"""What takes so many times its CPU time waits, if it gave up its core by itself, or the machine is busy, if not."""


class Cost(NamedTuple):
    """Microseconds per env step."""

    cpu: float
    """Of all threads together: core-microseconds."""
    wall: float
    waits: bool = False
    """Whether the time goes into waiting rather than computing."""

    @property
    def time(self) -> float:
        """How long it takes on a machine that is not busy."""
        return self.wall if self.waits else min(self.cpu, self.wall)


class Meter:
    """Adds up the time of what it is entered for. What reading the clocks takes, which is not little, is left out."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self._entered = 0
        self._before = getrusage(RUSAGE_SELF)

    def __enter__(self) -> None:
        self._begun = perf_counter(), process_time()

    def __exit__(self, *error: object) -> None:
        cpu = process_time()
        self.wall += perf_counter() - self._begun[0]
        self.cpu += cpu - self._begun[1]
        self._entered += 1

    def per(self, env_steps: float, clocks: Cost) -> Cost:
        """Return the cost of one of `env_steps`; `clocks` is that of entering the meter once, as in `read_clocks`."""
        cpu, wall = (
            1e6 * max(0.0, spent - 1e-6 * reading * self._entered) / max(1.0, env_steps)
            for spent, reading in ((self.cpu, clocks.cpu), (self.wall, clocks.wall))
        )
        return Cost(cpu, wall, wall > WAITS * cpu and self._gave_up_its_core())

    def _gave_up_its_core(self) -> bool:
        """Whether the process let go of its core more often than it was taken away."""
        now, before = getrusage(RUSAGE_SELF), self._before
        return now.ru_nvcsw - before.ru_nvcsw > now.ru_nivcsw - before.ru_nivcsw


def read_clocks(times: int = 300) -> Cost:
    """Return what a meter counts where nothing is done."""
    meter = Meter()
    for _ in range(times):
        with meter:
            pass
    return meter.per(times, Cost(0.0, 0.0))


# --- env ----------------------------------------------------------------------------------------------------


class Stepping:
    """Envs in the hands of a policy, whose own time is left out: which episodes they have depends on it."""

    def __init__(self, envs: Envs, policy: Policy, seed: int) -> None:
        self._envs, self._policy, self._random = envs, policy, stream(seed, "measure")
        self._clocks = read_clocks()
        self._observation = {name: leaf.copy() for name, leaf in envs.reset().items()}
        self._state = np.zeros((envs.spec.columns, policy.state_size), np.float32)
        self._stacks = Stacks(envs.spec.observation, envs.spec.columns)
        self._stacks.reset(self._observation)

    def cost(self, seconds: float) -> Cost:
        """Step all columns, at least once, for so long."""
        meter, env_steps, until = Meter(), 0, perf_counter() + seconds
        while not env_steps or perf_counter() < until:
            acted = self._policy.act(self._stacks.seen(self._observation), self._random, self._state)
            actions = self._policy.to_env(acted.action)
            with meter:
                outcomes = self._step(actions)
            for columns, outcome in zip(self._envs.groups, outcomes, strict=True):
                for name, leaf in outcome.observation.items():
                    self._observation[name][columns] = leaf
                self._stacks.push(outcome.observation, outcome.resets, columns)
                env_steps += int(outcome.valid.sum())
        return meter.per(env_steps, self._clocks)

    def _step(self, actions: Array) -> list[Outcome]:
        groups = range(len(self._envs.groups))
        for group in groups:
            self._envs.send(actions[self._envs.groups[group]], group)
        return [self._envs.recv(group) for group in groups]


# --- acting -------------------------------------------------------------------------------------------------


class PlayedBack:
    """Envs of one group whose outcomes are those of a recorded unroll, again and again."""

    def __init__(self, spec: EnvSpec, slot: Tree) -> None:
        """Play back `slot`, [T + 1, N, ...] by field name."""
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
        """Take no notice of progress."""

    def reset(self) -> Tree:
        return self._first

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        raise NotImplementedError("what has happened cannot be played ahead")

    def send(self, actions: Array, group: int = 0) -> None:
        """Take no notice of the actions."""

    def recv(self, group: int = 0) -> Outcome:  # noqa: ARG002  (there is one group)
        return next(self._outcomes)

    def close(self) -> None:
        """Nothing to close."""


def act_cost(policy: PolicySpec, env: EnvSpec, slot: Tree, weights: NDArray[np.float32], seconds: float) -> Cost:
    """Act unrolls, at least two, on envs that only play back `slot`: choosing, recording and counting are left."""
    slot = {name: array.copy() for name, array in slot.items()}
    env_steps = int(slot["valid"][:-1].sum())
    actor = Actor(0, 0, [PolicyColumns(PlayedBack(env, slot), make_policy(policy))])
    work = Work.of_one(0, 0, PolicyWork(weights, slot))
    actor.start(0)
    actor.act(work)
    meter, unrolls, until = Meter(), 0, perf_counter() + seconds
    while not unrolls or perf_counter() < until:
        with meter:
            actor.act(work)
        unrolls += 1
    return meter.per(unrolls * env_steps, read_clocks())


# --- learning -----------------------------------------------------------------------------------------------


def learn_cost(parts: PacedParts, step: int, seconds: float) -> Cost:
    """Learn from the batch of `step` again and again, at least once, each time from the same weights.

    Otherwise the policy would drift away from the one that acted, and an algorithm that stops early when it does
    would have less and less to do.
    """
    algorithm = parts.algorithm
    weights, state = deepcopy(algorithm.weights()), deepcopy(algorithm.state())
    meter, env_steps, until = Meter(), 0.0, perf_counter() + seconds
    while not env_steps or perf_counter() < until:
        with meter:
            env_steps += parts.learner.rehearse(step)
        algorithm.load_weights(weights)
        algorithm.restore(state)
    return meter.per(env_steps, read_clocks())


# --- what follows -------------------------------------------------------------------------------------------


def limits(total: float, acting: float, learning: float, *, actors: int, cores: int) -> dict[str, float]:
    """Return what bounds the env steps per second of actors beside a learner, and where each bound lies.

    Args:
        total: core-microseconds per env step.
        acting: microseconds that an actor takes for one.
        learning: microseconds that the learner takes for one.
        actors: how many there are.
        cores: how many there are.

    Returns:
        'machine': a core does one thing at a time; 'actors': so does an actor; 'learner': so does the learner.
    """
    return {
        "machine": 1e6 * cores / max(total, 1e-9),
        "actors": 1e6 * actors / max(acting, 1e-9),
        "learner": 1e6 / max(learning, 1e-9),
    }
