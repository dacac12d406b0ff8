"""The serial runtime: one thread walks the pace's order. It simulates any lag, and is the reference.

Every other runtime must give the same bits when `lag` is exact.
"""

from __future__ import annotations

from offbeat.runtime.conductor import Conductor
from offbeat.runtime.wiring import Parts


def run_serial(parts: Parts, conductor: Conductor) -> None:
    """Act each ticket as soon as the pace allows it, and learn whenever none may begin."""
    pace, learner = parts.pace, parts.learner
    while conductor.ending is None:
        while pace.may_act(conductor.acted, conductor.learned) and conductor.admits(conductor.acted):
            act(parts, conductor.acted)
            conductor.acted += 1
        step = conductor.learned
        conductor.before_learning(learner.valid_rows(step))
        conductor.after_learning(learner.learn(step, conductor.training_progress))


def act(parts: Parts, ticket: int) -> None:
    """Act one ticket with the weights that the pace names for it."""
    version = parts.pace.learned_before_act(ticket)
    actor = parts.actors[ticket % len(parts.actors)]
    actor.act(ticket, version, parts.weights.read(version), parts.unrolls.open(ticket))
