"""The pace: who may start, and when. The one idea of offbeat, in two small pure objects.

All acting is cut into **tickets**, numbered 0, 1, 2, ... in one total order; ticket k belongs to actor
``k % actors``. All learning is cut into **learning steps**, numbered likewise. A pace answers two questions:

* *act*: how much learning must be finished before ticket k may begin?
* *learn*: how much acting must be committed before learning step j may begin?

Progress is told by two counters, ``acted`` (tickets 0 .. acted-1 are all committed) and ``learned`` (learning
steps 0 .. learned-1 are all finished). Nothing here waits, counts or allocates: a runtime enforces the pace,
and the bound on policy lag, the exact update ratio and the safety of the slots all follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from offbeat.core.errors import ConfigError


class Pace(Protocol):
    """What a runtime asks. Tickets and learning steps count from 0."""

    def tickets_of(self, step: int) -> range:
        """The tickets that learning step `step` takes in."""
        ...

    def learned_before_act(self, ticket: int) -> int:
        """Learning steps that must be finished before `ticket` may begin: the version an exact run acts with."""
        ...

    def acted_before_learn(self, step: int) -> int:
        """Tickets that must be committed, from 0 on without a gap, before learning step `step` may begin."""
        ...

    def may_act(self, ticket: int, learned: int) -> bool:
        """Whether `ticket` may begin while `learned` steps are finished."""
        ...

    def pause_ticket(self, learned: int) -> int:
        """The first ticket that cannot yet have been allowed while `learned` steps are finished.

        Holding acting there before step `learned` finishes brings the run to quiescence: every ticket below
        is acted and learned, and none is begun beyond it.
        """
        ...

    @property
    def in_flight(self) -> int:
        """Tickets that can be acted or learned from at one time."""
        ...

    @property
    def versions(self) -> int:
        """Versions of the weights that some ticket in flight may still ask for."""
        ...


@dataclass(frozen=True)
class OnPolicyPace:
    """Batches of unrolls, each learned once, at most ``max_lag`` learning steps behind.

    Learning step j consumes the tickets of batch j, which are [j S, (j + 1) S). A ticket of batch b may begin
    once b - D learning steps are finished, so the weights that act are at most D learning steps older than
    the weights that learn. D = 0 is the synchronous order, D = 1 overlaps one batch with one learning step.
    """

    unrolls_per_batch: int
    """S, in tickets."""
    max_lag: int
    """D, in learning steps."""

    def __post_init__(self) -> None:
        if self.unrolls_per_batch < 1:
            raise ConfigError(
                f"unrolls_per_batch is {self.unrolls_per_batch}, but a batch needs at least 1 unroll: "
                "pass --set unrolls_per_batch=1 or more"
            )
        if self.max_lag < 0:
            raise ConfigError(
                f"max_lag is {self.max_lag}, but learning steps cannot lie in the future: pass --max-lag 0 or more"
            )

    def batch_of(self, step: int) -> int:
        """The batch that learning step ``step`` consumes."""
        return step

    def first_use(self, batch: int) -> int:
        """The first learning step that consumes ``batch``."""
        return batch

    def tickets_of(self, step: int) -> range:
        first = self.batch_of(step) * self.unrolls_per_batch
        return range(first, first + self.unrolls_per_batch)

    def learned_before_act(self, ticket: int) -> int:
        return max(0, self.first_use(ticket // self.unrolls_per_batch) - self.max_lag)

    def acted_before_learn(self, step: int) -> int:
        return self.tickets_of(step).stop

    def may_act(self, ticket: int, learned: int) -> bool:
        return learned >= self.learned_before_act(ticket)

    def may_learn(self, step: int, acted: int) -> bool:
        return acted >= self.acted_before_learn(step)

    def pause_ticket(self, learned: int) -> int:
        return (learned + self.max_lag + 1) * self.unrolls_per_batch

    @property
    def in_flight(self) -> int:
        return (self.max_lag + 1) * self.unrolls_per_batch

    @property
    def versions(self) -> int:
        return self.max_lag + 1

    def slot(self, ticket: int) -> int:
        """The slot that ``ticket`` writes to: as many are needed as tickets can be in flight."""
        return ticket % self.in_flight


@dataclass(frozen=True)
class ReplayPace:
    """Updates held to an exact ratio of the valid transitions inserted, and actors to a bounded lead.

    Learning step j takes in ticket j, and then makes the updates that it makes due: as many as were not made yet of
    due(V), with V the valid transitions in tickets 0 .. j. That may be none, as in the warm-up, or many. Ticket k may
    begin once learning steps 0 .. k - G - 1 are finished. So the learner is never ahead of the ratio, the actors are
    never more than G tickets ahead of it, and after V transitions exactly floor(r (V - W)) updates have been made.
    """

    utd_ratio: Fraction
    """r, updates per valid transition: exact, so that it does not drift (0.37 is 37/100)."""
    warmup: int
    """W, valid transitions before the first update can become due."""
    max_ahead: int
    """G, in tickets."""
    sample_needs: int = 1
    """Valid transitions that the first sample cannot do without."""

    def __post_init__(self) -> None:
        if self.utd_ratio <= 0:
            raise ConfigError(
                f"utd_ratio is {self.utd_ratio}, but learning needs a positive number of updates per env step: "
                "pass --set utd_ratio=1, or a fraction such as 1/4"
            )
        if self.max_ahead < 0:
            raise ConfigError(
                f"max_ahead is {self.max_ahead}, but actors cannot be held behind the updates that their own "
                "transitions make due: pass --set max_ahead=0 or more"
            )
        if self.warmup < self.sample_needs:
            raise ConfigError(
                f"warmup is {self.warmup} transitions, but the first sample needs {self.sample_needs}: "
                f"pass --set warmup={self.sample_needs} or more"
            )

    def due(self, valid: int) -> int:
        """Updates that ``valid`` inserted transitions make due: floor(r * max(0, valid - W))."""
        return self.utd_ratio.numerator * max(0, valid - self.warmup) // self.utd_ratio.denominator

    def tickets_of(self, step: int) -> range:
        return range(step, step + 1)

    def learned_before_act(self, ticket: int) -> int:
        return max(0, ticket - self.max_ahead)

    def acted_before_learn(self, step: int) -> int:
        return step + 1

    def may_act(self, ticket: int, learned: int) -> bool:
        return learned >= self.learned_before_act(ticket)

    def may_learn(self, step: int, acted: int) -> bool:
        return acted >= self.acted_before_learn(step)

    def pause_ticket(self, learned: int) -> int:
        return learned + self.max_ahead + 1

    @property
    def in_flight(self) -> int:
        return self.max_ahead + 1

    @property
    def versions(self) -> int:
        return self.max_ahead + 1
