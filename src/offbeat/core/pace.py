"""The pace: a scheduler that decides when acting and learning may start. It is the main idea of offbeat.

All acting is divided into **tickets**, numbered 0, 1, 2, ... in one total order; ticket k belongs to actor
``k % actors``. All learning is divided into **learning steps**, numbered in the same way. A pace answers two questions:

* *act*: how many learning steps must be finished before ticket k may start?
* *learn*: how many tickets must be committed before learning step j may start?

Progress is measured by two counters, ``acted`` (tickets 0 .. acted-1 are all committed) and ``learned`` (learning
steps 0 .. learned-1 are all finished). The classes here only compute; the gate of a runtime enforces the pace. The
bound on policy lag, the exact ratio of updates to transitions and the number of slots all follow from the pace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import InitVar, dataclass
from fractions import Fraction
from typing import NamedTuple

from offbeat.core.errors import ConfigError


class Pace(ABC):
    """The interface that runtimes use. Tickets and learning steps count from 0."""

    @property
    @abstractmethod
    def lag(self) -> int:
        """Learning steps that a ticket may start before its first use: D or G."""

    @abstractmethod
    def tickets_of(self, step: int) -> range:
        """The tickets of learning step `step`: those of its batch, or the one that it adds to the replay."""

    @abstractmethod
    def step_of(self, ticket: int) -> int:
        """The learning step that `ticket` is first used in."""

    @abstractmethod
    def next_ticket(self, learned: int) -> int:
        """The first ticket that none of the `learned` finished steps has had: all tickets below it have been used."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Maximum number of tickets that are acted, learned from or kept for it at one time."""

    @property
    def passes(self) -> int:
        """Learning steps that use each ticket: K; 1 with a replay, which each ticket joins once."""
        return 1

    @property
    def resident_batches(self) -> int:
        """Batches that are used in turn, `passes` times: N."""
        return 1

    @property
    def transitions_before_learning(self) -> int:
        """Transitions that are collected before the first update; 0 without a replay."""
        return 0

    @property
    def versions(self) -> int:
        """Number of versions of the weights that tickets in flight may need."""
        return self.lag + 1

    def is_first_use(self, step: int) -> bool:
        """Whether no earlier learning step has had the tickets of `step`."""
        return self.step_of(self.tickets_of(step).start) == step

    def learned_before_act(self, ticket: int) -> int:
        """Learning steps that must be finished before `ticket` may start: the version that an exact run acts with."""
        return max(0, self.step_of(ticket) - self.lag)

    def acted_before_learn(self, step: int) -> int:
        """Tickets that must be committed, from 0 on without a gap, before learning step `step` may start."""
        return self.tickets_of(step).stop

    def may_act(self, ticket: int, learned: int) -> bool:
        """Whether `ticket` may start while `learned` steps are finished."""
        return learned >= self.learned_before_act(ticket)

    def pause_ticket(self, learned: int) -> int:
        """The first ticket that cannot have started while `learned` steps are finished.

        If acting is paused there before step `learned` finishes, all tickets below it are acted and used, and none from
        it on is started.
        """
        return self.next_ticket(learned + self.lag + 1)


@dataclass(frozen=True)
class OnPolicyPace(Pace):
    """Batches of unrolls. At its first use a batch is at most ``max_lag`` learning steps old.

    Batch b has the tickets [b S, (b + 1) S). Without resident batches, learning step j uses batch j. With N resident
    batches and K passes, the batches are taken in groups of N: the N K learning steps of a group use its batches in
    turn, K times. So batch b is first used in step (b // N) N K + b % N.

    A ticket of batch b may start D learning steps before the first use of b, so the weights that act are then at most D
    learning steps older than the weights that learn. D = 0 is synchronous, D = 1 overlaps one batch with one learning
    step. At its last use a batch is up to D + N (K - 1) learning steps old.
    """

    unrolls_per_batch: int
    """S, in tickets."""
    max_lag: int
    """D, in learning steps."""
    resident_batches: int = 1
    """N, batches of a group."""
    passes: int = 1
    """K, learning steps that use each batch."""

    def __post_init__(self) -> None:
        if self.unrolls_per_batch < 1:
            raise ConfigError(
                f"unrolls_per_batch is {self.unrolls_per_batch}, but a batch needs at least 1 unroll: "
                "pass --set unrolls_per_batch=1 or more"
            )
        if self.max_lag < 0:
            raise ConfigError(f"max_lag is {self.max_lag}, but it cannot be negative: pass --max-lag 0 or more")
        if self.resident_batches > 1 and self.passes == 1:
            raise ConfigError(
                f"resident_batches is {self.resident_batches}, but passes is 1, so no batch is used again: pass --set "
                "passes=2 or more, or leave resident_batches out"
            )

    @property
    def lag(self) -> int:
        return self.max_lag

    @property
    def group_steps(self) -> int:
        """N K, learning steps of a group of batches."""
        return self.resident_batches * self.passes

    def batch_of(self, step: int) -> int:
        """The batch that learning step ``step`` uses."""
        return step // self.group_steps * self.resident_batches + step % self.resident_batches

    def first_use(self, batch: int) -> int:
        """The first learning step that uses ``batch``."""
        return batch // self.resident_batches * self.group_steps + batch % self.resident_batches

    def last_use(self, batch: int) -> int:
        """The last learning step that uses ``batch``."""
        return self.first_use(batch) + self.group_steps - self.resident_batches

    def batches_used(self, learned: int) -> int:
        """Number of batches that ``learned`` finished steps have used at least once."""
        groups, steps = divmod(learned, self.group_steps)
        return groups * self.resident_batches + min(steps, self.resident_batches)

    def resident(self, learned: int) -> range:
        """The batches that ``learned`` finished steps have used and that later steps use again."""
        used = self.batches_used(learned)
        newest = range(max(0, used - self.resident_batches), used)
        return range(next((batch for batch in newest if self.last_use(batch) >= learned), used), used)

    def next_ticket(self, learned: int) -> int:
        return self.batches_used(learned) * self.unrolls_per_batch

    def tickets_of(self, step: int) -> range:
        first = self.batch_of(step) * self.unrolls_per_batch
        return range(first, first + self.unrolls_per_batch)

    def step_of(self, ticket: int) -> int:
        return self.first_use(ticket // self.unrolls_per_batch)

    @property
    def in_flight(self) -> int:
        # A slot is free once the last use of its batch is finished. Until then the tickets of the batches up to D steps
        # later may start. These are most for the first batch of a group.
        return self.pause_ticket(self.last_use(0))

    @property
    def most_ahead(self) -> int:
        """Maximum number of tickets that are acted, or wait for their first use, at one time: when a group starts."""
        return self.pause_ticket(0)

    def slot(self, ticket: int) -> int:
        """The slot that ``ticket`` writes to. There are `in_flight` slots."""
        return ticket % self.in_flight


@dataclass(frozen=True)
class ReplayPace(Pace):
    """An exact ratio of updates to valid transitions, and a maximum number of tickets that actors are ahead.

    Learning step j adds ticket j to the replay and then makes all updates that are due: due(V) minus those already
    made, where V is the number of transitions that tickets 0 .. j complete. Ticket k may start once learning steps
    0 .. k - G - 1 are finished. So after V transitions exactly floor(r (V - W)) updates have been made, and actors are
    at most G tickets ahead.
    """

    utd_ratio: Fraction
    """r, updates per valid transition: an exact fraction, so that rounding errors do not add up (0.37 is 37/100)."""
    warmup: int
    """W, valid transitions before the first update can become due."""
    max_ahead: int
    """G, in tickets."""
    sample_needs: InitVar[int] = 1
    """Number of valid transitions that the first sample needs, which `warmup` must reach. It changes nothing else, so
    it is not stored, and policies with different batches have the same pace."""

    def __post_init__(self, sample_needs: int) -> None:
        if self.utd_ratio <= 0:
            raise ConfigError(
                f"utd_ratio is {self.utd_ratio}, but learning needs a positive number of updates per env step: "
                "pass --set utd_ratio=1, or a fraction such as 1/4"
            )
        if self.max_ahead < 0:
            raise ConfigError(
                f"max_ahead is {self.max_ahead}, but it cannot be negative: pass --set max_ahead=0 or more"
            )
        if self.warmup < sample_needs:
            raise ConfigError(
                f"warmup is {self.warmup} transitions, but the first sample needs {sample_needs}: "
                f"pass --set warmup={sample_needs} or more, or a smaller sample, for example with a smaller batch_size"
            )

    @property
    def lag(self) -> int:
        return self.max_ahead

    @property
    def transitions_before_learning(self) -> int:
        return self.warmup

    def due(self, valid: int) -> int:
        """Updates that ``valid`` inserted transitions make due: floor(r * max(0, valid - W))."""
        return self.utd_ratio.numerator * max(0, valid - self.warmup) // self.utd_ratio.denominator

    def tickets_of(self, step: int) -> range:
        return range(step, step + 1)

    def next_ticket(self, learned: int) -> int:
        return learned

    def step_of(self, ticket: int) -> int:
        return ticket

    @property
    def in_flight(self) -> int:
        return self.max_ahead + 1


class RatioCounts(NamedTuple):
    """Counters from which the ratio of updates to transitions is computed; zeros if there is no replay."""

    origin: int = 0
    """First ticket whose transitions are counted."""
    valid: int = 0
    """Transitions that the tickets from `origin` have completed."""
    updates_before: int = 0
    """Updates that are not counted, because they were made before `origin`."""
