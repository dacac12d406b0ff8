"""Measures the costs of stepping envs, acting and learning, each alone, in microseconds per env step.

In a world with several agents, an env step is a step of the world, and the costs are those of all policies together.

Nothing else may run in this process meanwhile, because the CPU time of the whole process is measured.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.seeding import key_of, stream
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Acted, Array, EnvSpec, Policy, Tree
from offbeat.core.visits import Visits
from offbeat.envs.call_watch import EnvCallWatch
from offbeat.envs.contract import Envs, Outcome
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec
from offbeat.models.stacks import Stacks
from offbeat.models.task_inference import TaskInference
from offbeat.runtime.parts import PacedParts, PacedPolicy
from offbeat.tuning.recorded_envs import RecordedEnvs
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.feed import env_steps_in
from offbeat.workers.link import PolicyWork, Work
from offbeat.workers.task_columns import TaskColumns

WAIT_RATIO = 3.0
"""If the wall time, without the time of waiting for a core, is above this multiple of the CPU time, the work mostly
waits for something else."""
THREADS = Path("/proc/self/task")
"""The folder in which Linux has a folder for each thread of this process. Its file `schedstat` counts the nanoseconds
in which the thread has run, and in which it was ready to run and had no core. Other systems have no such folder."""


class Cost(NamedTuple):
    """The cost of a piece of work, in microseconds per env step."""

    cpu: float
    """CPU time, summed over threads."""
    wall: float
    """Wall time; if it `waits`, without the time of waiting for a core."""
    waits: bool = False
    """Whether it mostly waits for something other than a core, such as a simulator on another machine."""
    loading: float = 0.0
    """Of learning: the part of the wall time that the run's loader does beside the learner (`load_ahead`)."""

    @property
    def time(self) -> float:
        """Time that it takes on a machine that is not busy."""
        return self.wall if self.waits else min(self.cpu, self.wall)


class Meter:
    """A context manager that adds up the times of the code in its `with` blocks.

    `cpu` and `wall` are the CPU time and the wall time, `without_core` is the time of waiting for a core, summed over
    the threads that existed when the meter was made, in seconds. `cost` adds that of threads that were started since.

    Where the system does not tell the time of waiting for a core, as on macOS, the work waits for something else only
    if the process gave up its core more often than the system took it away.
    """

    def __init__(self) -> None:
        self.cpu = self.wall = self.without_core = 0.0
        self._entered = 0
        self._scheduler_times = _SchedulerTimes()
        self._before = getrusage(RUSAGE_SELF)

    def __enter__(self) -> None:
        self._without_core = self._scheduler_times.without_core_s()
        self._start = perf_counter(), process_time()

    def __exit__(self, *error: object) -> None:
        cpu = process_time()
        self.wall += perf_counter() - self._start[0]
        self.cpu += cpu - self._start[1]
        self.without_core += self._scheduler_times.without_core_s() - self._without_core
        self._entered += 1

    def cost(self, env_steps: float) -> Cost:
        """Return the cost per env step, without that of the clocks; `env_steps`: their number in the `with` blocks."""
        cpu, wall = (
            1e6 * max(0.0, spent - empty * self._entered) / max(1.0, env_steps)
            for spent, empty in zip((self.cpu, self.wall), _empty_block_s(), strict=True)
        )
        without_core = 1e6 * (self.without_core + self._scheduler_times.of_new_threads_s()) / max(1.0, env_steps)
        waits = wall - without_core > WAIT_RATIO * cpu and (self._scheduler_times.known or self._gave_up_core())
        return Cost(cpu, wall - without_core if waits else wall, waits)

    def _gave_up_core(self) -> bool:
        """Whether the process gave up its core more often than the system took it away."""
        now, before = getrusage(RUSAGE_SELF), self._before
        return now.ru_nvcsw - before.ru_nvcsw > now.ru_nivcsw - before.ru_nivcsw


class _SchedulerTimes:
    """Reads how long the threads of this process were ready to run and had no core.

    These are the threads that exist when this object is made: that of the caller, and those of envs that compute in
    their own. The files stay open, because opening one takes as long as an env step of a fast env.
    """

    def __init__(self) -> None:
        self._without_core_ns: dict[int, int] = {}
        """The last time that was read, by open file."""
        self._files = frozenset(THREADS.glob("*/schedstat"))
        for file in self._files:
            with suppress(OSError):  # the thread has ended
                opened = os.open(file, os.O_RDONLY)
                weakref.finalize(self, os.close, opened)
                self._without_core_ns[opened] = 0
        self.known = bool(self._without_core_ns)
        """Whether the system tells these times."""

    def without_core_s(self) -> float:
        """Return these seconds so far, summed over threads; 0 if they are not known."""
        for opened in self._without_core_ns:
            with suppress(OSError):  # the thread has ended: its last time stays
                self._without_core_ns[opened] = int(os.pread(opened, 100, 0).split()[1])
        return 1e-9 * sum(self._without_core_ns.values())

    def of_new_threads_s(self) -> float:
        """Return these seconds of the threads that were started after this object was made, and still exist."""
        nanoseconds = 0
        for file in set(THREADS.glob("*/schedstat")) - self._files:
            with suppress(OSError):  # the thread has ended
                nanoseconds += int(file.read_text().split()[1])
        return 1e-9 * nanoseconds


def _empty_block_s() -> tuple[float, float]:
    """Return the CPU time and the wall time of an empty `with` block, in seconds: reading the clocks takes time too.

    The wall time is that with a core: on a busy machine, waiting for one takes much longer than the block.
    """
    meter, blocks = Meter(), 300
    for _ in range(blocks):
        with meter:
            pass
    return meter.cpu / blocks, max(0.0, meter.wall - meter.without_core) / blocks


def counted_for(seconds: float) -> Iterator[int]:
    """Yield 1, 2, 3, ... for `seconds`, at least 1."""
    until = perf_counter() + seconds
    yield from takewhile(lambda number: number == 1 or perf_counter() < until, count(1))


# --- env ----------------------------------------------------------------------------------------------------


class EnvStepper:
    """Steps envs with the actions of one or several policies and measures the envs alone.

    The policies matter, because the cost of an env step depends on the episodes: short ones are reset more often.
    """

    def __init__(self, policies: Sequence[tuple[Envs, Policy]], seed: int, watch: EnvCallWatch) -> None:
        """Reset the envs.

        Args:
            policies: the columns of each policy, and the policy, in the order of the run's policies.
            seed: seed of the run.
            watch: is notified of each env call.
        """
        self._watch, self._resets = watch, False
        watch.enter(resets=True)
        self._columns = [
            _SteppedColumns(envs, policy, stream(seed, "measure", *key_of(index)))
            for index, (envs, policy) in enumerate(policies)
        ]
        watch.leave()

    def cost(self, seconds: float) -> Cost:
        """Step all columns for `seconds`, at least once, and return the cost."""
        meter, env_steps, until = Meter(), 0, perf_counter() + seconds
        while not env_steps or perf_counter() < until:
            actions = [columns.act() for columns in self._columns]
            self._watch.enter(resets=self._resets)
            with meter:
                outcomes = self._step(actions)
            self._watch.leave()
            self._resets = any(bool(outcome.ended.any()) for of_columns in outcomes for outcome in of_columns)
            for columns, of_columns in zip(self._columns, outcomes, strict=True):
                columns.add(of_columns)
            env_steps += sum(_env_steps_of(outcome) for outcome in outcomes[0])
        return meter.cost(env_steps)

    def _step(self, actions: Sequence[Array]) -> list[list[Outcome]]:
        """Step all envs; return the outcomes of each policy, by group."""
        all_envs = [columns.envs for columns in self._columns]
        groups = range(len(all_envs[0].groups))
        for group in groups:
            for envs, chosen in zip(all_envs, actions, strict=True):
                envs.send(chosen[envs.groups[group]], group)
        return [[envs.recv(group) for group in groups] for envs in all_envs]


class _SteppedColumns:
    """The columns of one policy, and what it needs to choose their next actions."""

    def __init__(self, envs: Envs, policy: Policy, random: np.random.Generator) -> None:
        self.envs, self._policy, self._random = envs, policy, random
        self._observation = {name: leaf.copy() for name, leaf in envs.reset().items()}
        self._state = np.zeros((envs.spec.columns, policy.state_size), np.float32)
        self._stacks = Stacks(envs.spec.observation, envs.spec.columns)
        self._stacks.reset(self._observation)

    def act(self) -> Array:
        """Return the next actions, as the envs take them."""
        acted = self._policy.act(self._stacks.with_stacks(self._observation), self._random, self._state)
        return self._policy.to_env(acted.action)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Store the observations in the outcomes of all groups."""
        for columns, outcome in zip(self.envs.groups, outcomes, strict=True):
            for name, leaf in outcome.observation.items():
                self._observation[name][columns] = leaf
            self._stacks.push(outcome.observation, outcome.resets, columns)


def _env_steps_of(outcome: Outcome) -> int:
    return int(np.count_nonzero(outcome.valid if outcome.env_step is None else outcome.env_step))


# --- acting -------------------------------------------------------------------------------------------------


class MeasuredPolicy(NamedTuple):
    """One policy whose acting is measured."""

    spec: PolicySpec
    env: EnvSpec
    """Spec of its columns in the envs of one actor."""
    weights: NDArray[np.float32]
    """Its weights, as one flat vector."""
    slot: Tree
    """A recorded unroll, [T + 1, N, ...] by field name. Its rows are used as the outcomes of the envs."""
    visits: Visits | None = None
    """How its tickets are divided into visits to tasks; None: its env has no tasks."""
    tasks: TaskSample | None = None
    """The tasks of the run, with `visits`."""

    def loaded(self) -> Policy:
        """Return the policy with its weights; if it infers its task, with the task variable 0."""
        policy = make_policy(self.spec)
        policy.load(self.weights)
        return policy if self.spec.context_encoder is None else _WithoutTask(policy)

    def columns(self, slot: Tree) -> PolicyColumns:
        """Return the columns of an actor whose envs return the rows of a slot."""
        envs, policy = RecordedEnvs(self.env, slot), make_policy(self.spec)
        if self.visits is None or self.tasks is None:
            return PolicyColumns(envs, policy)
        return TaskColumns(envs, policy, visits=replace(self.visits, actors=1), tasks=self.tasks)


class _WithoutTask:
    """A policy that infers its task, with the task variable 0: for envs whose cost is measured alone."""

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy
        self.state_size, self.to_env, self.load = policy.state_size, policy.to_env, policy.load

    def act(self, observation: Tree, random: np.random.Generator, state: NDArray[np.float32] | None = None) -> Acted:
        return self._policy.act(self._inputs(observation), random, state)

    def greedy(self, observation: Tree, state: NDArray[np.float32] | None = None) -> Array:
        return self._policy.greedy(self._inputs(observation), state)

    def _inputs(self, observation: Tree) -> Tree:
        columns = len(next(iter(observation.values())))
        return TaskInference(self._policy, columns).with_task(observation)


def act_cost(policies: Sequence[MeasuredPolicy], seconds: float) -> Cost:
    """Return the cost of acting without envs: choosing and recording actions, and counting.

    Args:
        policies: all policies for which an actor acts.
        seconds: duration. At least two unrolls are made, and the first one is not measured.
    """
    slots = [{name: array.copy() for name, array in policy.slot.items()} for policy in policies]
    env_steps = env_steps_in({name: array[:-1] for name, array in slots[0].items()})
    columns = [policy.columns(slot) for policy, slot in zip(policies, slots, strict=True)]
    works = [PolicyWork(policy.weights, slot) for policy, slot in zip(policies, slots, strict=True)]
    actor, work = Actor(0, 0, columns), Work(0, 0, 0.0, tuple(works))
    actor.start(0)
    actor.act(work)
    meter = Meter()
    for unrolls in counted_for(seconds):
        with meter:
            actor.act(work._replace(ticket=unrolls))
    return meter.cost(unrolls * env_steps)


# --- learning -----------------------------------------------------------------------------------------------


def first_learn_cost(parts: PacedParts, step: int) -> tuple[Cost, float, int]:
    """Make the first learning step of all policies. Return its cost, its seconds and its number of updates."""
    meter = Meter()
    with meter:
        updates = sum(policy.learner.learn(step, 0.0).updates for policy in parts.policies)
    env_steps = parts.trained[0].learner.feed.env_steps_per_use(step)
    loading = 1e6 * sum(_loading_s(policy) for policy in parts.policies) / env_steps
    return meter.cost(env_steps)._replace(loading=loading), meter.wall, updates


def learn_cost(parts: PacedParts, step: int, seconds: float) -> Cost:
    """Return the cost of learning with all policies, repeated for `seconds`, at least once.

    Args:
        parts: the parts of the run.
        step: the learning step whose batch is used.
        seconds: duration. It is divided evenly over the policies.
    """
    env_steps = parts.trained[0].learner.feed.env_steps_per_use(step)
    costs = [_learn_cost(policy, step, env_steps, seconds / len(parts.policies)) for policy in parts.policies]
    return Cost(
        sum(cost.cpu for cost in costs),
        sum(cost.wall for cost in costs),
        any(cost.waits for cost in costs),
        sum(cost.loading for cost in costs),
    )


def _learn_cost(policy: PacedPolicy, step: int, env_steps: float, seconds: float) -> Cost:
    """Return the cost of learning with one policy; one that is not trained only publishes its weights.

    The weights are restored after each repetition. Otherwise the policy would move away from the one that acted, and an
    algorithm that stops early in that case would do less and less work.

    Args:
        policy: the policy.
        step: the learning step.
        env_steps: number of env steps that it stands for.
        seconds: duration.
    """
    algorithm = policy.algorithm
    weights, state = deepcopy(algorithm.weights()), deepcopy(algorithm.state())
    loaded_before = _loading_s(policy)
    meter, learned_from = Meter(), 0.0
    for _ in counted_for(seconds):
        with meter:
            rehearsed = policy.learner.rehearse(step)
        learned_from += rehearsed if policy.trained else env_steps
        algorithm.load_weights(weights)
        algorithm.restore(state)
    loading = 1e6 * (_loading_s(policy) - loaded_before) / learned_from
    return meter.cost(learned_from)._replace(loading=loading)


def _loading_s(policy: PacedPolicy) -> float:
    """Return the seconds so far that a policy's learner has taken for what a loader does in a run; 0 without one."""
    learner = policy.learner
    return sum(learner.timings.seconds[name] for name in learner.feed.loader_timings)
