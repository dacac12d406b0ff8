"""The measured split: how many actors, and how many threads for the learner, chosen at start from what things cost.

Only the layout is chosen. A batch keeps its columns, so what is learned from is the same: 1 actor with 32 envs, or
2 with 16 each. Measuring draws from random streams of its own, and everything that was made for it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from offbeat.config.config import Config
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.allocator import keep_freed_memory
from offbeat.core.errors import ConfigError, EnvFailed, with_notes_of
from offbeat.core.seeding import stream
from offbeat.core.threads import limit, usable_cores
from offbeat.core.types import EnvSpec, Tree
from offbeat.envs.make import make_envs
from offbeat.memory.weights import F32
from offbeat.models.acting import make_policy
from offbeat.runtime.assembly import build_paced
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import PolicyPlan
from offbeat.runtime.supervisor import RESTART_BUDGET
from offbeat.tuning.costs import Cost, PlayedBack, Stepping, act_cost, learn_cost, limits
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns

NEAR_ENOUGH = 0.95
"""Of layouts that reach this share of the best rate, the one with the fewest threads and actors is taken."""
ACTORS_PER_CORE = 4
"""Actors that are considered at most where the env waits rather than computes."""
ENVS_S = 1.0
"""Seconds for the envs of all layouts together, making and resetting them included."""
STEPS_S = 0.15
"""Seconds for stepping the envs of one layout."""
ACT_S = 0.02
LEARN_S = 0.2
UPDATE_US = 3000.0
"""Core-microseconds of an update from which on more threads for the learner are tried: below, they mostly wait for
each other."""


@dataclass(frozen=True)
class Option:
    """A layout, and what its parts cost in microseconds per env step."""

    actors: int
    learner_threads: int
    env: Cost
    act: Cost
    learn: Cost

    def limits(self, cores: int) -> dict[str, float]:
        """Return the bounds on its env steps per second by name."""
        total = self.env.cpu + self.act.cpu + self.learn.cpu
        acting = self.env.time + self.act.time
        return limits(total, acting, self.learn.time, actors=self.actors, cores=cores)

    def sps(self, cores: int, max_lag: int) -> float:
        """Return the env steps per second that can be expected at most; with `max_lag` 0 the sides take turns."""
        bounds = self.limits(cores)
        if max_lag:
            return min(bounds.values())
        acting = min(bounds["actors"], 1e6 * cores / (self.env.cpu + self.act.cpu))
        return 1 / (1 / acting + 1 / bounds["learner"])


def choose(options: Sequence[Option], cores: int, max_lag: int) -> Option:
    """Return the smallest layout that is about as quick as the quickest: first by threads, then by actors."""
    best = max(option.sps(cores, max_lag) for option in options)
    near = [option for option in options if option.sps(cores, max_lag) >= NEAR_ENOUGH * best]
    return min(near, key=lambda option: (option.learner_threads, option.actors))


def divisions(columns: int, env_groups: int, most: int) -> list[int]:
    """Return the numbers of actors, up to `most`, that share the columns evenly, in whole groups of envs."""
    return [actors for actors in range(1, most + 1) if columns % (actors * env_groups) == 0]


def with_measured_topology(config: Config, notify: Callable[[str], None] = lambda _text: None) -> tuple[Config, str]:
    """Measure and choose, if `split` says so.

    Args:
        config: all settings.
        notify: tells the user of an env that failed while it was measured, and is tried again.

    Returns:
        The config with a layout that is given, and a sentence with the reason, '' where nothing was measured.

    Raises:
        ConfigError: as `build`.
        EnvFailed: envs failed more often while they were measured than an actor may.
    """
    if config.runtime.split == "given":
        return config, ""
    limit(config.blas_threads)
    keep_freed_memory()
    parts = build_paced(config, lambda _text: None, shared=False)
    try:
        options = _measure(parts, notify)
    finally:
        parts.close()
    cores, max_lag = usable_cores(), config.runtime.max_lag
    chosen = choose(options, cores, max_lag)
    return replace(config, runtime=_with_topology(config.runtime, chosen)), _reason(config.runtime, chosen, cores)


def _with_topology(runtime: RuntimeConfig, option: Option) -> RuntimeConfig:
    """Return the settings of a layout; its batches have as many columns as before."""
    return replace(
        runtime,
        split="given",
        actors=option.actors,
        envs_per_actor=_columns(runtime) // option.actors,
        unrolls_per_batch=option.actors,
        learner_threads=option.learner_threads,
    )


def _columns(runtime: RuntimeConfig) -> int:
    return runtime.batch_unrolls * runtime.envs_per_actor


def _reason(runtime: RuntimeConfig, option: Option, cores: int) -> str:
    bounds = option.limits(cores)
    bound = min(bounds, key=bounds.__getitem__)
    costs = f"env {option.env.time:.1f} us, act {option.act.time:.1f} us, learn {option.learn.time:.1f} us per env step"
    return (
        f"{_counted(option.actors, 'actor')} x {_counted(_columns(runtime) // option.actors, 'env')}, "
        f"{_counted(option.learner_threads, 'learner thread')}: {costs} on {_counted(cores, 'core')}; "
        + (f"bound by the {bound}" if runtime.max_lag else "the sides take turns")
    )


# --- measuring ----------------------------------------------------------------------------------------------


def _measure(parts: PacedParts, notify: Callable[[str], None]) -> list[Option]:
    """Measure every layout that comes into question."""
    cores, runtime = usable_cores(), parts.config.runtime
    parts.learner.publish(0)
    weights = parts.weights.read(0).copy()
    _record(parts)
    updates = parts.learner.learn(0, 0.0).updates  # the first step of all takes longer than those that follow
    learn = learn_cost(parts, 0, LEARN_S)
    options = [
        Option(actors, parts.config.threads, *acting, learn)
        for actors, acting in _acting_costs(parts, _EnvCosts(parts, weights, notify), weights, cores)
    ]
    if runtime.learner_threads is None and learn.cpu * runtime.batch_rows >= UPDATE_US * updates:
        options += _with_threads(parts, options, cores)
    return options


def _record(parts: PacedParts) -> None:
    """Fill batch 0 by acting on random rows: real envs would take as long as they like."""
    policy = make_policy(parts.policy)
    envs = PlayedBack(parts.env, _random_slot(parts.plan.policy, parts.env))
    actor = Actor(0, parts.config.run.seed, [PolicyColumns(envs, policy)])
    actor.start(0)
    for ticket in parts.pace.tickets_of(0):
        actor.act(parts.memory.work(ticket, version=0))


def _random_slot(plan: PolicyPlan, env: EnvSpec) -> Tree:
    """Return an unroll in which no episode ends; [T + 1, N, ...] by field name."""
    random, lead = stream(0, "measure"), (plan.memory.length + 1, env.columns)
    slot = {
        field.name: np.zeros((*(lead if field.per == "step" else lead[1:]), *field.shape), field.dtype)
        for field in plan.fields
    }
    for name in ("reward", *(leaf.name for leaf in env.observation)):
        slot[name][:] = random.random(slot[name].shape, np.float32)
    slot["valid"][:] = True
    return slot


def _acting_costs(
    parts: PacedParts, envs: _EnvCosts, weights: F32, cores: int
) -> Iterator[tuple[int, tuple[Cost, Cost]]]:
    """Yield numbers of actors, from the most down, with the costs of env and acting.

    Where envs compute, more actors than cores win nothing; where they wait for something, they do.
    """
    runtime = parts.config.runtime
    most = ACTORS_PER_CORE * cores if envs.cost(1, groups=1).waits else cores
    for actors in reversed(divisions(_columns(runtime), runtime.env_groups, most)):
        columns = _columns(runtime) // actors
        yield actors, (envs.cost(columns, runtime.env_groups), _act_cost(parts, weights, columns))


class _EnvCosts:
    """Measures envs for more and more columns, as long as there is time; then the last cost stands for the others."""

    def __init__(self, parts: PacedParts, weights: F32, notify: Callable[[str], None]) -> None:
        self._config, self._notify = parts.config, notify
        budget = parts.config.runtime.restart_budget
        self._budget = RESTART_BUDGET if budget is None else budget
        self._failures = 0
        self._policy = make_policy(parts.policy)
        self._policy.load(weights)
        self._until = perf_counter() + ENVS_S
        self._setup_s = 0.0
        """What making and resetting the last envs took, a column."""
        self._last: Cost | None = None

    def cost(self, columns: int, groups: int) -> Cost:
        if self._last is None or perf_counter() + columns * self._setup_s < self._until:
            self._last = self._tried(columns, groups)
        return self._last

    def _tried(self, columns: int, groups: int) -> Cost:
        """Measure, again where an env fails: as often as an actor would be started again."""
        while True:
            try:
                return self._measure(columns, groups)
            except (EnvFailed, ConfigError) as error:
                self._failures += 1
                what = f"while the layout was measured: {error}"
                if self._failures > self._budget:
                    spent = f"{what}; its restart_budget of {self._budget} is spent"
                    raise with_notes_of(EnvFailed(spent), error) from error
                lines = getattr(error, "__notes__", []) if self._failures == 1 else []
                self._notify("\n".join([f"{what}: tried again; {self._failures} of {self._budget}", *lines]))

    def _measure(self, columns: int, groups: int) -> Cost:
        run, begun = self._config.run, perf_counter()
        info_mask = self._policy.spec.info_mask
        envs = make_envs(
            run.env,
            columns,
            seed=run.seed,
            groups=groups,
            role=f"measure, attempt {self._failures}" if self._failures else "measure",
            settings=self._config.env,
            info_mask=info_mask,
        )
        with closing(envs):
            stepping = Stepping(envs, self._policy, run.seed)
            self._setup_s = (perf_counter() - begun) / columns
            return stepping.cost(STEPS_S)


def _act_cost(parts: PacedParts, weights: F32, columns: int) -> Cost:
    env = replace(parts.env, columns=columns)
    return act_cost(parts.policy, env, _random_slot(parts.plan.policy, env), weights, ACT_S)


def _with_threads(parts: PacedParts, options: list[Option], cores: int) -> Iterator[Option]:
    """Yield layouts with more threads for the learner, where it is what bounds the speed while cores are idle."""
    max_lag, threads = parts.config.runtime.max_lag, 2
    best = choose(options, cores, max_lag)
    while threads <= cores and best.sps(cores, max_lag) < NEAR_ENOUGH * best.limits(cores)["machine"]:
        limit(threads)
        learn = learn_cost(parts, 0, LEARN_S)
        wider = [replace(option, learner_threads=threads, learn=learn) for option in options]
        yield from wider
        best, threads = choose([best, *wider], cores, max_lag), 2 * threads


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
