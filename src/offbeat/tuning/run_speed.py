"""The speed of a run without checkpoints, evaluations and metrics, measured for `offbeat bench`."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from time import perf_counter

import numpy as np

from offbeat.config.config import Config
from offbeat.core.messages import ignore
from offbeat.models.published import published_layout
from offbeat.runtime.acting import Acting
from offbeat.runtime.gate import NO_PAUSE
from offbeat.runtime.hogwild.parts import HogwildParts
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.learners.processes import learners_of
from offbeat.runtime.message_traffic import MessageTraffic, SendsMessages
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Notify, Reporting
from offbeat.runtime.runtimes import acting_of, build
from offbeat.tuning.costs import counted_for
from offbeat.tuning.message_costs import MessageCosts
from offbeat.workers.learner import Learned

CLEAR_S = 2.0
"""Seconds after which a run's learning steps tell how long its measurement takes."""
SLOW_S = 5.0
"""Seconds by which a measurement may take longer than planned without a message."""


@dataclass(frozen=True)
class Speed:
    """The measured speed of a run."""

    sps: float
    """Env steps per second."""
    agent_sps: float
    """Decisions of all agents that learn, per second."""
    policy_lag_mean: float
    policy_lag_max: float
    last_step: int
    """The last learning step; its batch has env steps and has not been overwritten."""
    messages: MessageCosts | None = None
    """Costs of the messages to actors on a cluster; None if there are none."""


@dataclass(frozen=True)
class _Step:
    """The result of a learning step."""

    number: int
    env_steps: float
    agent_steps: int
    ends_warmup: bool
    """Whether it makes updates; not while a replay has too little data. Without a learner: always true."""
    lag_mean: float | None
    """None: the metric is not known, as where a batch is used again."""
    lag_max: float | None
    ended: float
    """Time of `perf_counter()` at its end, in seconds."""


def learning_speed(parts: PacedParts, seconds: float, notify: Notify) -> Speed:
    """Run without checkpoints, evaluations and metrics; measure after a warm-up of a tenth of `seconds`."""
    return _speed(parts, seconds, notify, _publish, partial(_learned, parts, notify=notify))


def acting_speed(parts: PacedParts, seconds: float, notify: Notify) -> Speed:
    """Run the actors without a learner, and measure as `learning_speed`."""
    return _speed(parts, seconds, notify, _publish_for_acting, partial(_sampled, parts))


def _speed(
    parts: PacedParts,
    seconds: float,
    notify: Notify,
    publish: Callable[[PacedParts, int], None],
    steps_of: Callable[[Acting], Generator[_Step, None, None]],
) -> Speed:
    """Run and measure.

    Args:
        parts: the parts of the run.
        seconds: duration of the measurement.
        notify: called with a message when an env fails and is created again, and when the measurement takes long.
        publish: publishes the weights with which the run starts.
        steps_of: runs learning steps.
    """
    acting = acting_of(parts, 0, Reporting(notify, ignore))
    try:
        publish(parts, 0)
        if parts.league is not None:
            parts.league.start()
        acting.start([None] * parts.config.runtime.actors)
        with closing(steps_of(acting)) as endless:
            at_least = parts.pace.versions + 1
            transitions = len(parts.trained) * parts.pace.transitions_before_learning
            steps = _announced(endless, 1.1 * seconds, at_least + 1, transitions, notify)
            warm = [
                *takewhile(lambda step: not step.ends_warmup, steps),
                *_run_for(seconds / 10, steps, at_least=at_least),
            ]
            before = _traffic(acting)
            timed = _run_for(seconds, steps, at_least=1)
            while not timed[-1].env_steps:  # costs are measured with the last batch, which may have only resets
                timed.append(next(steps))
            traffic = _traffic_since(before, acting)
        env_steps = sum(step.env_steps for step in timed)
        network = acting.network() if isinstance(acting, SendsMessages) else None
        # The learners have ended, with their loaders, which wait on bells of `acting`.
    finally:
        acting.close()
    took = timed[-1].ended - warm[-1].ended
    return Speed(
        sps=env_steps / took,
        agent_sps=sum(step.agent_steps for step in timed) / took,
        policy_lag_mean=float(np.mean([step.lag_mean for step in timed if step.lag_mean is not None] or [0.0])),
        policy_lag_max=max((step.lag_max for step in timed if step.lag_max is not None), default=0.0),
        last_step=timed[-1].number,
        messages=None if network is None else MessageCosts.from_traffic(traffic, network),
    )


def _announced(
    steps: Iterator[_Step], seconds: float, at_least: int, transitions: int, notify: Notify
) -> Iterator[_Step]:
    """Yield learning steps; once it is clear that they take much longer than planned, say how long.

    Args:
        steps: the learning steps.
        seconds: the planned duration.
        at_least: number of learning steps after the warm-up of a replay that are made in any case.
        transitions: transitions of that warm-up, of all policies together.
        notify: called with the message, at most once.
    """
    started, said, collected = perf_counter(), False, 0
    for number, step in enumerate(steps, 1):
        collected += step.agent_steps
        took = step.ended - started
        if not said and took >= CLEAR_S:
            said = True
            needed = at_least + (math.ceil(transitions * number / collected) if collected else 0)
            left = took / number * (needed - number)
            if took + left > seconds + SLOW_S:
                notify(
                    f"a learning step and its env steps take about {took / number:.2g} s, so this measurement takes "
                    f"about {left:.0f} s more"
                )
        yield step


def _traffic(acting: Acting) -> MessageTraffic:
    return acting.traffic() if isinstance(acting, SendsMessages) else MessageTraffic()


def _traffic_since(before: MessageTraffic, acting: Acting) -> MessageTraffic:
    """Return what messages have taken since then; since the start, if no rows have arrived since then."""
    total = _traffic(acting)
    recent = total.since(before)
    return recent if recent.env_steps else total


def hogwild_sps(config: Config, seconds: float, notify: Notify) -> float:
    """Return the env steps per second of all workers together, once each of them learns."""
    parts: HogwildParts = build(config, notify)
    with closing(parts), closing(WorkerPool(parts, Reporting(notify, ignore))) as pool:
        board = parts.board
        pool.start([None] * board.workers)
        pool.set_limit(NO_PAUSE)
        while not board.updates[:, 0].all():  # a worker that hangs is found by its deadline, as in a run
            _supervise_for(0.1, pool)
        _supervise_for(seconds / 10, pool)
        start, before = perf_counter(), board.env_steps
        _supervise_for(seconds, pool)
        while board.env_steps == before:  # on a busy machine, no worker may have learned in this time
            _supervise_for(0.1, pool)
        return (board.env_steps - before) / (perf_counter() - start)


def _supervise_for(seconds: float, pool: WorkerPool) -> None:
    """Let the workers run for `seconds`, and discard their reports."""
    for _ in counted_for(seconds):
        pool.wait()
        pool.reports.clear()


def _publish(parts: PacedParts, version: int) -> None:
    for policy in parts.policies:
        policy.learner.publish(version)


def _publish_for_acting(parts: PacedParts, version: int) -> None:
    """Publish the weights without the flag that makes actions uniformly random before learning."""
    _publish(parts, version)
    for policy in parts.policies:
        flag = published_layout(policy.spec).views(policy.weights.read(version)).get("uniform")
        if flag is not None:
            flag[:] = 0


def _run_for(seconds: float, steps: Iterator[_Step], *, at_least: int) -> list[_Step]:
    """Run learning steps for `seconds`, and at least `at_least` of them."""
    until, taken = perf_counter() + seconds, [next(steps) for _ in range(at_least)]
    while perf_counter() < until:
        taken.append(next(steps))
    return taken


def _learned(parts: PacedParts, acting: Acting, notify: Notify) -> Generator[_Step, None, None]:
    """Run learning steps of all policies.

    A batch is released only when the next step is requested, so the last one can be measured.
    """
    with closing(learners_of(parts, acting, Reporting(notify, ignore))) as learners:
        learners.start(0)
        for step in count():
            acting.wait(parts.pace.acted_before_learn(step), learners.watch)
            learned = learners.learn(step, 0.0)
            if parts.league is not None:
                parts.league.advance(step, env_steps=0)
            yield _Step(
                step,
                env_steps=parts.trained[0].learner.feed.env_steps_per_use(step),
                agent_steps=sum(of_policy.agent_steps for of_policy in learned),
                ends_warmup=any(of_policy.updates for of_policy in learned),
                lag_mean=_largest(learned, "policy_lag_mean"),
                lag_max=_largest(learned, "policy_lag_max"),
                ended=perf_counter(),
            )
            acting.finish(step + 1)


def _largest(learned: Sequence[Learned], metric: str) -> float | None:
    """Return the largest value of a metric of a learning step; None if no policy has it."""
    return max((each.metrics[metric] for each in learned if metric in each.metrics), default=None)


def _sampled(parts: PacedParts, acting: Acting) -> Generator[_Step, None, None]:
    """Run steps that only wait for their batch, and are finished at once. The weights do not change."""
    for step in count():
        acting.wait(parts.pace.acted_before_learn(step))
        env_steps = parts.trained[0].learner.feed.env_steps_per_use(step)
        _publish_for_acting(parts, step + 1)
        if parts.league is not None:
            parts.league.advance(step, env_steps=0)
        yield _Step(step, env_steps, agent_steps=0, ends_warmup=True, lag_mean=None, lag_max=None, ended=perf_counter())
        acting.finish(step + 1)
