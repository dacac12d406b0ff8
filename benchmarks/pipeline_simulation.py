"""A simulator of the pipeline: when actors act, the loader loads and the learner learns, as the pace allows it.

Times of acting, loading and learning are given, and each actor, the loader and the learner have a processor of their
own. All starts follow from the same `OnPolicyPace` that a run uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offbeat.core.pace import OnPolicyPace

WARM_UP_GROUPS, GROUPS = 12, 24
"""Groups of batches before, and in, the measurement of the steady state."""


@dataclass(frozen=True)
class Pipeline:
    """A pace, and what each of its pieces of work takes."""

    pace: OnPolicyPace
    actors: int
    load_ahead: int
    """Batches that are loaded and not yet learned from; 0: the learner loads."""
    ticket_s: float
    """Seconds of acting a ticket."""
    load_s: float
    """Seconds of loading a batch."""
    learn_s: float
    """Seconds of a learning step."""

    @property
    def batch_s(self) -> float:
        """Seconds in which all actors together act a batch."""
        return self.ticket_s * self.pace.unrolls_per_batch / self.actors

    def finished(self, steps: int) -> list[float]:
        """Return the times at which learning steps 0 .. steps-1 finish."""
        simulation = _Simulation(self)
        for step in range(steps):
            simulation.learn(step)
        return simulation.done

    def seconds_per_batch(self) -> float:
        """Return the seconds per batch in the steady state."""
        pace = self.pace
        done = self.finished((WARM_UP_GROUPS + GROUPS) * pace.group_steps)
        measured = done[-1] - done[WARM_UP_GROUPS * pace.group_steps - 1]
        return measured / (GROUPS * pace.resident_batches)

    def in_turns(self) -> float:
        """Return the seconds per batch if nothing overlaps but the actors."""
        return replace(self, pace=replace(self.pace, max_lag=0), load_ahead=0).seconds_per_batch()


class _Simulation:
    """Times so far. Steps are simulated in order: what a step waits for depends only on earlier steps."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._pace = pipeline, pipeline.pace
        self._actor_free = [0.0] * pipeline.actors
        self._loader_free = 0.0
        self._committed: list[float] = []
        """For each ticket, the time at which it and all earlier ones are committed."""
        self._begun: list[float] = []
        """For each batch, the time at which the learner begins the step of its first use, if it has to load nothing."""
        self.done: list[float] = []
        """For each learning step, the time at which it is finished."""

    def learn(self, step: int) -> None:
        """Simulate a learning step, and all acting and loading that it needs."""
        needed = self._pace.acted_before_learn(step)
        while len(self._committed) < needed:
            self._act(len(self._committed))
        begun = max(self._after(step), self._committed[needed - 1])
        if self._pace.is_first_use(step):
            begun = self._load(begun, self._committed[needed - 1])
        self.done.append(begun + self._pipeline.learn_s)

    def _after(self, steps: int) -> float:
        """Return the time at which this number of learning steps is finished."""
        return self.done[steps - 1] if steps else 0.0

    def _act(self, ticket: int) -> None:
        actor = ticket % self._pipeline.actors
        allowed = self._after(self._pace.learned_before_act(ticket))
        self._actor_free[actor] = max(self._actor_free[actor], allowed) + self._pipeline.ticket_s
        self._committed.append(max([self._actor_free[actor], *self._committed[-1:]]))

    def _load(self, begun: float, committed: float) -> float:
        """Load the next batch; return when its learning step can go on, which has begun at `begun`."""
        ahead, load_s = self._pipeline.load_ahead, self._pipeline.load_s
        self._begun.append(begun)
        if not ahead:
            return begun + load_s
        earlier = len(self._begun) - 1 - ahead
        allowed = self._begun[earlier] if earlier >= 0 else 0.0
        self._loader_free = max(self._loader_free, allowed, committed) + load_s
        return max(begun, self._loader_free)
