"""The actors of a run without its learner, and a check that no row of theirs is torn."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from tests.support.runs import SMALL

from offbeat.config.importing import import_modules
from offbeat.config.resolve import resolve
from offbeat.core.types import Tree
from offbeat.runtime.acting import Acting
from offbeat.runtime.children.supervised import Supervised
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

ENVS = ("tests.sample_envs.run_envs",)
LENGTH = 10
"""Env steps of an episode of `Numbered`."""


class Scene:
    """The actors of a run, and what their supervisor says."""

    def __init__(self, env: str = "runs/Numbered-v0", **settings: Any) -> None:
        flags = {**SMALL, "runtime": "processes", "imports": ENVS, "normalize_observations": False, **settings}
        import_modules(flags["imports"])
        self.parts: PacedParts = build(resolve("ppo", env, flags=flags))
        self.said: list[str] = []
        self.pids: list[int] = []
        self.acting: Acting = acting_of(self.parts, 0, Reporting(self._say, self._show))

    def _say(self, text: str, _details: str = "") -> None:
        if " ready after " not in text:  # on a slow machine any start is slow
            self.said.append(text)

    def _show(self, _role: str, actors: Sequence[Supervised]) -> None:
        self.pids = [actor.pid for actor in actors if actor.pid is not None]

    def begin(self) -> None:
        self.parts.policy.learner.publish(0)
        self.acting.start([None] * self.parts.config.runtime.actors)

    def next_batch(self, step: int) -> list[Tree]:
        """Return copies of the unrolls of a batch, and let it count as learned from."""
        self.acting.wait(self.parts.pace.acted_before_learn(step))
        tickets = self.parts.pace.tickets_of(step)
        unrolls = [{name: part.copy() for name, part in self.parts.policy.slots.open(k).items()} for k in tickets]
        self.parts.policy.learner.publish(step + 1)
        self.acting.finish(step + 1)
        return unrolls

    def kill(self, index: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pids[index], signal.SIGKILL)


@contextmanager
def scene(**settings: Any) -> Iterator[Scene]:
    one = Scene(**settings)
    try:
        yield one
    finally:
        one.acting.close()
        one.parts.close()


def cuts_between(unrolls: Sequence[Tree]) -> int:
    """Check the rows of one actor's unrolls, in order; return before how many of them new episodes begin."""
    for unroll in unrolls:
        check_rows(unroll)
    return sum(not continues(before, after) for before, after in pairwise(unrolls))


def check_rows(unroll: Tree) -> None:
    """Each row follows the one before, and episodes end with their own length as their return."""
    number, age = unroll["observation"][..., 0], unroll["observation"][..., 1]
    ended, valid = unroll["terminated"][:-1], unroll["valid"][:-1]
    assert (valid[1:] == ~ended[:-1]).all()  # the row after an end is the reset row
    assert (age[1:] == (age[:-1] + 1) * valid).all()
    assert (number[1:] == number[:-1])[valid].all()
    assert (ended == ((age[:-1] == LENGTH - 1) & valid)).all()
    assert (unroll["episode_return"][:-1][ended] == LENGTH).all()
    assert (unroll["episode_length"][:-1][ended] == LENGTH).all()


def continues(before: Tree, after: Tree) -> bool:
    """Whether the episodes of one unroll go on in the next; if not, all must begin anew."""
    if (before["observation"][-1] == after["observation"][0]).all():
        return True
    assert (after["observation"][0, :, 1] == 0).all()
    assert after["valid"][0].all()
    return False
