"""How near a run comes to what the machine, and its topology, could do: what `offbeat bench` measures.

c_env, c_act and c_learn are core-microseconds (CPU time of all threads) per env step, each measured alone.
No schedule of the same work can beat cores / (c_env + c_act + c_learn) env steps per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, takewhile
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from offbeat.config.config import Config
from offbeat.core.allocator import keep_freed_memory
from offbeat.core.errors import ConfigError, RunFailed
from offbeat.core.threads import limit, limit_blas
from offbeat.envs.make import make_envs
from offbeat.metrics.bottleneck import Topology, gain_max, lock_free_gain_max
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.runtime.acting import Acting
from offbeat.runtime.assembly import topology_of
from offbeat.runtime.gate import NO_PAUSE
from offbeat.runtime.hogwild.parts import build_lock_free
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import acting_of, build
from offbeat.runtime.supervisor import Notify, Reporting
from offbeat.tuning.costs import Cost, Stepping, act_cost, learn_cost, limits

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
    learn_wall: float
    """Microseconds that the learner takes per env step, with all its threads."""

    @property
    def total(self) -> float:
        return self.env + self.act + self.learn

    @property
    def acting(self) -> float:
        """Microseconds that an actor takes per env step."""
        return self.env + self.act


@dataclass(frozen=True)
class Speed:
    """What a runtime achieved."""

    sps: float
    policy_lag_mean: float
    policy_lag_max: float
    last_step: int
    """The learning step that was the last: its batch is still whole."""


def report(config: Config, seconds: float, notify: Notify) -> dict[str, Any]:
    """Run the runtime for `seconds`, then measure the costs with the policy that it arrived at.

    In this order, because what an env step costs depends on the policy: a pole that falls at once is reset all the
    time.

    Raises:
        RunFailed: more was achieved than is possible: the limit was measured wrongly.
    """
    limit(config.blas_threads)
    keep_freed_memory()
    lock_free = _lock_free_sps(config, seconds, notify) if config.runtime.entry.workers_learn else None
    parts: PacedParts = build(config if lock_free is None else config.of_worker(0))
    try:
        speed = _speed(parts, seconds, notify, learns=True)
        costs, threads = _costs(parts, speed.last_step), parts.threads
    finally:
        parts.close()
    speed = speed if lock_free is None else replace(speed, sps=lock_free)
    return results(topology_of(config, threads), costs, speed)


def _silent(_news: object) -> None:
    """Tell nobody."""


def sampling_sps(config: Config, seconds: float, notify: Notify) -> float:
    """Return the env steps per second of the actors, where nobody learns.

    Raises:
        ConfigError: everybody who acts learns too.
    """
    if config.runtime.entry.workers_learn:
        raise ConfigError(
            f"act_only is given, but the workers of the {config.runtime.runtime} runtime learn too: pass another "
            "--runtime"
        )
    limit(config.blas_threads)
    keep_freed_memory()
    parts: PacedParts = build(config)
    try:
        return _speed(parts, seconds, notify, learns=False).sps
    finally:
        parts.close()


# --- the speed of a whole run -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """What came of a learning step."""

    number: int
    env_steps: int
    updates: int
    lag_mean: float
    lag_max: float
    ended: float
    """Moment of `perf_counter()`."""


def _speed(parts: PacedParts, seconds: float, notify: Notify, *, learns: bool) -> Speed:
    """Run without checkpoints, evaluation and metrics; the start-up and a warm-up of a tenth are left out."""
    acting = acting_of(parts, 0, Reporting(notify, _silent))
    try:
        _publish(parts, 0, learns=learns)
        acting.start([None] * parts.config.runtime.actors)
        steps = (_learned if learns else _sampled)(parts, acting)
        warm = [
            *_until_learning(steps, learns=learns),
            *_go_on(steps, seconds / 10, at_least=parts.pace.versions + 1),
        ]
        timed = _go_on(steps, seconds, at_least=1)
    finally:
        acting.close()
    return Speed(
        sps=sum(step.env_steps for step in timed) / (timed[-1].ended - warm[-1].ended),
        policy_lag_mean=float(np.mean([step.lag_mean for step in timed])),
        policy_lag_max=max(step.lag_max for step in timed),
        last_step=timed[-1].number,
    )


def _lock_free_sps(config: Config, seconds: float, notify: Notify) -> float:
    """Return the env steps per second of all workers together, once each of them learns."""
    parts = build_lock_free(config, _silent)
    pool, board = WorkerPool(parts, Reporting(notify, _silent)), parts.board
    try:
        pool.start([None] * board.workers)
        pool.go_on(NO_PAUSE)
        while not board.updates[:, 0].all():
            pool.wait()
        _watch_for(pool, seconds / 10)
        begun, before = perf_counter(), board.env_steps
        _watch_for(pool, seconds)
        return (board.env_steps - before) / (perf_counter() - begun)
    finally:
        pool.close()
        parts.close()


def _watch_for(pool: WorkerPool, seconds: float) -> None:
    until = perf_counter() + seconds
    while perf_counter() < until:
        pool.wait()
        pool.heard.clear()


def _publish(parts: PacedParts, version: int, *, learns: bool) -> None:
    """Publish the policy; where nobody learns, let it act all the same, not draw actions as before any update."""
    parts.learner.publish(version)
    flag = published_layout(parts.policy).views(parts.weights.read(version)).get("uniform")
    if flag is not None and not learns:
        flag[:] = 0


def _until_learning(steps: Iterator[_Step], *, learns: bool) -> list[_Step]:
    """Take steps until the first that makes an update: a replay is filled before."""
    return [next(steps)] if not learns else list(takewhile(lambda step: not step.updates, steps))


def _go_on(steps: Iterator[_Step], seconds: float, *, at_least: int) -> list[_Step]:
    """Take steps for so long, and at least so many."""
    until, taken = perf_counter() + seconds, [next(steps) for _ in range(at_least)]
    while perf_counter() < until:
        taken.append(next(steps))
    return taken


def _learned(parts: PacedParts, acting: Acting) -> Iterator[_Step]:
    """Take learning steps. One counts as finished only when the next is asked for: its batch stays whole till then."""
    for step in count():
        acting.wait(parts.pace.acted_before_learn(step))
        learned = parts.learner.learn(step, 0.0)
        lags = (learned.metrics["policy_lag_mean"], learned.metrics["policy_lag_max"])
        yield _Step(step, learned.env_steps, learned.updates, *lags, perf_counter())
        acting.finish(step + 1)


def _sampled(parts: PacedParts, acting: Acting) -> Iterator[_Step]:
    """Let every batch count as learned from as soon as it is there, and the weights stay as they are."""
    for step in count():
        acting.wait(parts.pace.acted_before_learn(step))
        env_steps = parts.learner.feed.valid_rows(step)
        _publish(parts, step + 1, learns=False)
        yield _Step(step, env_steps, 0, 0.0, 0.0, perf_counter())
        acting.finish(step + 1)


# --- what each part costs alone -----------------------------------------------------------------------------


def _costs(parts: PacedParts, step: int) -> Costs:
    """Measure each part alone, with the weights that are published after `step` and the data of its batch."""
    run, runtime = parts.config.run, parts.config.runtime
    policy, weights = make_policy(parts.policy), parts.weights.read(step + 1).copy()
    policy.load(weights)
    slot = parts.slots.open(_newest_with_decisions(parts, step))
    envs = make_envs(
        run.env,
        runtime.envs_per_actor,
        seed=run.seed,
        groups=runtime.env_groups,
        role="measure",
        settings=parts.config.env,
        info_mask=parts.policy.info_mask,
    )
    with closing(envs):
        measures = (
            partial(_as_actor, parts.config, Stepping(envs, policy, run.seed).cost),
            partial(_as_actor, parts.config, partial(act_cost, parts.policy, parts.env, slot, weights)),
            partial(learn_cost, parts, step),
        )
        rounds = [[measure(SECONDS / ROUNDS) for measure in measures] for _ in range(ROUNDS)]
    env, act, learn = (median(cost.cpu for cost in costs) for costs in zip(*rounds, strict=True))
    return Costs(env, act, learn, learn_wall=median(learn.wall for _, _, learn in rounds))


def _newest_with_decisions(parts: PacedParts, step: int) -> int:
    """Return the newest ticket, up to those of `step`, that is not reset rows alone."""
    return next(
        ticket
        for ticket in count(parts.pace.tickets_of(step).start, -1)
        if parts.slots.open(ticket)["valid"][:-1].any()
    )


def _as_actor(config: Config, measure: Callable[[float], Cost], seconds: float) -> Cost:
    """Measure with as many threads as an actor may use."""
    if not config.runtime.entry.in_processes:
        return measure(seconds)
    limit_blas(config.actor_threads)
    try:
        return measure(seconds)
    finally:
        limit_blas(config.blas_threads)


# --- what is printed ----------------------------------------------------------------------------------------


def results(topology: Topology, costs: Costs, speed: Speed) -> dict[str, Any]:
    """Return what `offbeat bench --json` prints.

    Raises:
        RunFailed: more was achieved than is possible.
    """
    layout_limit, bound = layout_limit_sps(topology, costs)
    cores, limit_sps, serial = topology.cores, 1e6 * topology.cores / costs.total, costs.acting + costs.learn_wall
    actors = cores if topology.runtime.runs_in_order else topology.actors
    gain = gain_max(costs.acting, costs.learn_wall, actors, cores, topology.learner_threads)
    if topology.runtime.workers_learn:
        gain = lock_free_gain_max(topology)
    if speed.sps > TOO_GOOD * layout_limit:
        raise RunFailed(
            f"achieved {speed.sps:.0f} env steps per second, more than the limit of {layout_limit:.0f} for this "
            "topology: the costs were measured wrongly, most likely because the machine was busy; measure again when "
            "it is idle"
        )
    return {
        "cores": cores,
        "c_env_us": costs.env,
        "c_act_us": costs.act,
        "c_learn_us": costs.learn,
        "limit_sps": limit_sps,
        "layout_limit_sps": layout_limit,
        "serial_limit_sps": 1e6 / costs.total,
        "achieved_sps": speed.sps,
        "fraction": speed.sps / limit_sps,
        "layout_fraction": speed.sps / layout_limit,
        "overlap_gain": speed.sps * serial / 1e6,
        "overlap_gain_max": gain,
        "bound_by": bound,
        "policy_lag_mean": speed.policy_lag_mean,
        "policy_lag_max": speed.policy_lag_max,
    }


def layout_limit_sps(topology: Topology, costs: Costs) -> tuple[float, str]:
    """Return the most env steps per second that the topology allows, and what bounds it.

    With max_lag or max_ahead 0 the sides take turns, so the bound is the lag, and the limit lies out of reach.
    """
    acting, learning = costs.acting, costs.learn / topology.learner_threads
    if topology.runtime.runs_in_order:
        return 1e6 / (acting + learning), "actors" if acting > learning else "learner"
    if topology.runtime.workers_learn:
        of_workers = 1e6 * topology.actors / (acting + costs.learn_wall)
        of_cores = 1e6 * topology.cores / costs.total
        return min(of_workers, of_cores), "workers" if of_workers < of_cores else "cores"
    bounds = limits(costs.total, acting, learning, actors=topology.actors, cores=topology.cores)
    bound = min(bounds, key=bounds.__getitem__)
    return bounds[bound], bound if topology.max_lag else "lag"
