"""Envs as an actor steps them, with random actions, and their rows: for the checks, and before each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.seeding import stream
from offbeat.core.tasks import TaskSample
from offbeat.core.types import INFO_MASK, Tree
from offbeat.envs.actions import random_actions
from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.envs.checking.parts import SEED, same_actions
from offbeat.envs.contract import Envs, Snapshots
from offbeat.envs.failures import column_failed
from offbeat.envs.make import make_envs
from offbeat.envs.rows import named


@contextmanager
def started(
    env_id: str,
    columns: int,
    role: str,
    settings: EnvConfig,
    tasks: TaskSample | None = None,
    watch: EnvCallWatch = UNWATCHED,
) -> Iterator[tuple[Envs, Tree]]:
    """Make envs and reset them. If their infos have an action mask, make them again with a leaf for it.

    `watch`: is notified of the calls up to the first row, and of the end of the envs.

    Raises:
        EnvFailed: an info has a mask, but not that of the first decision. It is raised at the end, too.
    """
    make = partial(make_envs, env_id, columns, seed=SEED, role=role, settings=settings, tasks=tasks)
    watch.enter(resets=True)
    with closing(make()) as envs:
        envs.set_progress(0.0)
        first = envs.reset()
        if _may_get_a_mask(envs):
            _wait(envs, watch)
            first = envs.reset()
        if not envs.offers_mask:
            watch.leave()
            yield envs, first
            watch.enter(resets=True)
            if envs.offers_mask:
                raise column_failed(envs.spec, 0, LATE_MASK)
            return
    with closing(make(info_mask=True)) as envs:
        envs.set_progress(0.0)
        first = envs.reset()
        watch.leave()
        yield envs, first
        watch.enter(resets=True)


FIRST_STEPS = 8
"""Random env steps before a run. If infos mark no rows without a decision until then, these are not recorded."""
LONGEST_WAIT = 1000
"""Env steps in which the first decision is looked for."""
LATE_MASK = (
    f"an info has {INFO_MASK!r}, but not that of the first decision, so masks are not read: give it in the info of "
    "reset and of each step"
)


def _may_get_a_mask(envs: Envs) -> bool:
    """Whether envs without a mask may get one with the first decision: in the infos before it, it may be missing."""
    if envs.offers_mask or envs.spec.mask or not envs.spec.action.nvec:
        return False
    return bool(envs.next_no_decision.any())


def _wait(envs: Envs, watch: EnvCallWatch) -> None:
    """Step envs until a mask appears, or until all columns have had a decision."""
    random, undecided = stream(SEED, "first decision"), envs.next_no_decision.copy()
    for _ in range(LONGEST_WAIT):
        watch.enter(resets=True)
        envs.send(random_actions(envs.spec.action, envs.spec.columns, random))
        envs.recv()
        undecided &= envs.next_no_decision
        if envs.offers_mask or not undecided.any():
            return


EnvsByAgent = Mapping[str, Envs]
"""The envs by agent, which are those of the same worlds; those of a single agent have the name ''."""
Started = tuple[EnvsByAgent, Mapping[str, Tree]]
"""Envs and the row to start from, both by agent. Parts that this row does not have are 0 in the rows."""


def rollout(envs: Envs, first: Tree, steps: int, watch: EnvCallWatch = UNWATCHED) -> Tree:
    """Take the same random actions in all columns; return the rows, name -> [steps + 1, N, ...], the first included.

    `watch`: is notified of each step.
    """
    return rollout_of_agents({"": envs}, {"": first}, steps, watch)[""]


def rollout_of_agents(
    columns: EnvsByAgent,
    first: Mapping[str, Tree],
    steps: int,
    watch: EnvCallWatch = UNWATCHED,
    stepped: Callable[[], None] = lambda: None,
) -> dict[str, Tree]:
    """Take the same random actions in all columns of each agent; return the rows of each agent, as `rollout` does.

    `stepped`: is called after each step.
    """
    (taken,) = _taken([(columns, first)], steps, stepped, watch)
    return taken.rows()


def _taken(
    copies: Sequence[Started], steps: int, stepped: Callable[[], None], watch: EnvCallWatch = UNWATCHED
) -> list[_Rollout]:
    """Step copies of the same envs in turn, so that their rows differ if they share state, such as a generator."""
    taken = [_Rollout(columns, first, watch) for columns, first in copies]
    for _ in range(steps):
        for each in taken:
            each.step()
            stepped()
    return taken


class TwoRollouts(NamedTuple):
    """The rollouts of two copies of the same envs."""

    first: dict[str, Tree]
    """The rows of the first copy, by agent."""
    second: dict[str, Tree]
    savable: bool
    """Whether the envs `can_save`."""
    late: bool
    """Whether infos have marked rows without a decision, but not in the `FIRST_STEPS`."""


def rollouts_of_two(
    start: Callable[[], AbstractContextManager[Started]], steps: int, stepped: Callable[[], None]
) -> TwoRollouts:
    """Step two copies of the same envs with the same random actions.

    If they cannot step in turn, as where a simulator allows only a few connections, they step one after the other.

    Args:
        start: opens a copy and resets it.
        steps: number of steps of each copy, at least 1.
        stepped: is called after each step of each copy.

    Raises:
        ConfigError: the envs of one copy cannot be made.
        EnvFailed: an env of one copy fails without the other copy.
    """
    try:
        with start() as one, start() as other:
            first, second = _taken([one, other], steps, stepped)
            return TwoRollouts(first.rows(), second.rows(), can_save(one[0]), first.reports_late())
    except (ConfigError, EnvFailed):
        with start() as one:
            (first,) = _taken([one], steps, stepped)
        with start() as other:
            (second,) = _taken([other], steps, stepped)
            return TwoRollouts(first.rows(), second.rows(), can_save(other[0]), second.reports_late())


def can_save(columns: EnvsByAgent) -> bool:
    """Whether the state of all envs can be saved."""
    return all(isinstance(envs, Snapshots) for envs in columns.values())


class _Rollout:
    """Envs by agent that take random actions, and their rows so far."""

    def __init__(self, columns: EnvsByAgent, first: Mapping[str, Tree], watch: EnvCallWatch) -> None:
        self._columns, self._random = columns, stream(SEED, "check actions")
        self._rows = {agent: [_copied(first[agent])] for agent in columns}
        self._watch, self._steps = watch, 0
        self._resets = False
        """Whether an episode may start in the next step."""
        self._early = False
        """Whether infos have marked rows without a decision in the first steps."""

    def step(self) -> None:
        actions = {
            agent: same_actions(envs.spec, self._rows[agent][-1], self._random) for agent, envs in self._columns.items()
        }
        self._watch.enter(resets=self._resets)
        for agent, envs in self._columns.items():
            envs.send(actions[agent])
        outcomes = {agent: envs.recv() for agent, envs in self._columns.items()}
        self._watch.leave()
        self._resets = any(bool(outcome.ended.any()) for outcome in outcomes.values())
        for agent, outcome in outcomes.items():
            self._rows[agent].append(_copied(named(outcome)))
        self._steps += 1
        if self._steps <= FIRST_STEPS:
            self._early = self._reports()

    def _reports(self) -> bool:
        return any(envs.reports_no_decision for envs in self._columns.values())

    def reports_late(self) -> bool:
        """Whether infos have marked rows without a decision, but not in the first steps."""
        return self._reports() and not self._early

    def rows(self) -> dict[str, Tree]:
        return {agent: _stacked(own) for agent, own in self._rows.items()}


def _copied(rows: Tree) -> Tree:
    return {name: part.copy() for name, part in rows.items()}


def _stacked(rows: list[Tree]) -> Tree:
    first, *others = rows
    return {
        name: np.stack([first.get(name, np.zeros_like(part)), *(row[name] for row in others)])
        for name, part in rows[-1].items()
    }


class Difference(NamedTuple):
    """The first row in which two rollouts differ."""

    row: int
    after_an_end: bool
    """Whether an episode has just ended, so that the row is that of a reset."""


def first_difference(rows: Tree, others: Tree) -> Difference | None:
    """Return the first difference of two rollouts with equal seeds and actions; None if they are equal."""
    per_leaf = [leaf != others[name] for name, leaf in rows.items()]
    differs = np.any([each.any(axis=tuple(range(2, each.ndim))) for each in per_leaf], axis=0)  # [steps + 1, N]
    if not differs.any():
        return None
    row = int(differs.any(axis=1).argmax())
    ended = (rows["terminated"] + rows["truncated"])[row - 1] != 0
    return Difference(row, row > 0 and bool(ended[differs[row]].all()))
