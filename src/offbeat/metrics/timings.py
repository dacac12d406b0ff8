"""Timings: seconds per kind of work, nested by slashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

KINDS = ("act", "env", "infer", "load", "learn", "evaluate", "checkpoint", "wait")
"""The kinds of work at the top level, in the order in which they are shown."""
ACTOR_WAIT = "wait/actor"
"""An actor waits until its next ticket may start."""
OTHER_WORK = "wait/actor/other_work"
"""The part of `ACTOR_WAIT` in which the learner did other work: evaluations, checkpoints, metrics."""
INFERENCE_WAIT = "wait/inference"
"""An actor asks its `Inference`, and waits for the answer."""
MESSAGE_WAIT = "wait/messages"
"""An actor on a cluster has nothing to do because a message is on its way."""
LEARNER_WAIT = "wait/learner"
"""The learner waits for the tickets of a learning step."""
LOAD, LOAD_WAIT, LOADER = "learn/load", "learn/load_wait", "load"
"""The learner itself loads data; it waits for its loader; the loader loads data."""
PREPARE, UPDATE, PUBLISH = "learn/prepare", "learn/update", "learn/publish"
"""The learner makes minibatches; it makes updates; it publishes weights."""
EXCHANGE = "exchange"
"""A learner exchanges rows with the others, and waits for them: in updates, and where the learners compute values
together also before these."""
CORE_WAIT = "core_wait"
"""The thread that learns waits for a core."""
INCLUDED = (EXCHANGE, CORE_WAIT)
"""Parts of several of the other times: `tree` leaves them out."""


def acting_s(spent: Mapping[str, float]) -> float:
    """Return the seconds of acting, those of inference workers included, from seconds by name."""
    return sum(spent.get(name, 0.0) for name in ("act", "env", "infer"))


def other_work_s(spent: Mapping[str, float]) -> float:
    """Return the seconds of evaluations and checkpoints, in which a run does not train, from seconds by name."""
    return spent.get("evaluate", 0.0) + spent.get("checkpoint", 0.0)


@dataclass(frozen=True)
class Branch:
    """One name in the tree of timings."""

    name: str
    """The last part of the path: 'prepare' of 'learn/prepare'."""
    seconds: float
    share: float
    """Fraction of the time of all top-level names together."""
    children: tuple[Branch, ...]


class Timings:
    """Seconds per slash-path: 'act', 'env', 'learn', 'learn/update', 'wait/actor', ...

    The time of a parent includes that of its children. A parent that is not timed itself has the sum of its children.
    Keep one per worker and `merge` them: `add` takes no lock.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a name. It is fast enough to be called at every env step."""
        self.seconds[name] += seconds

    def merge(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of another worker."""
        for name, value in seconds.items():
            self.seconds[name] += value

    def totals(self) -> dict[str, float]:
        """Return the seconds of each name and of its parents."""
        seconds = dict(self.seconds)  # a copy first: another thread may add a name meanwhile
        inside: defaultdict[str, float] = defaultdict(float)
        totals = {}
        for name, parent in _with_parents(tuple(seconds)):
            totals[name] = max(seconds.get(name, 0.0), inside[name])
            inside[parent] += totals[name]
        return totals

    def since(self, previous: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of each name since ``previous``, an earlier result of `totals`."""
        totals = self.totals()
        return {name: totals.get(name, 0.0) - previous.get(name, 0.0) for name in {**previous, **totals}}

    def tree(self) -> tuple[Branch, ...]:
        """Return the names as a tree, with their shares of the total time, in the order of `KINDS`."""
        totals = {name: seconds for name, seconds in self.totals().items() if name not in INCLUDED}
        whole = sum(value for name, value in totals.items() if "/" not in name)
        return _branches(totals, "", whole)


@lru_cache(maxsize=16)
def _with_parents(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return each name and each of their parents, with its own parent, children first."""
    parts = [name.split("/") for name in names]
    paths = {"/".join(path[: depth + 1]) for path in parts for depth in range(len(path))}
    return tuple((path, path.rpartition("/")[0]) for path in sorted(paths, key=lambda path: -path.count("/")))


def _branches(totals: Mapping[str, float], parent: str, whole: float) -> tuple[Branch, ...]:
    children = [name for name in totals if name.rpartition("/")[0] == parent]
    return tuple(
        Branch(
            name=name.rpartition("/")[2],
            seconds=totals[name],
            share=totals[name] / whole if whole > 0 else 0.0,
            children=_branches(totals, name, whole),
        )
        for name in sorted(children, key=_order)
    )


def _order(name: str) -> tuple[int, str]:
    return (KINDS.index(name) if name in KINDS else len(KINDS), name)
