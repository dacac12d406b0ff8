"""The one loop of every runtime: wait for the tickets of a learning step, learn, let the actors know, look around."""

from __future__ import annotations

from offbeat.runtime.acting import Acting
from offbeat.runtime.conductor import Conductor
from offbeat.runtime.wiring import Parts


def learn_until_the_end(parts: Parts, acting: Acting, conductor: Conductor) -> None:
    """Take learning step after learning step, until the conductor says that the run has ended."""
    while conductor.ending is None:
        step = conductor.learned
        acting.wait(parts.pace.acted_before_learn(step))
        filled = acting.slots_filled(step)
        conductor.before_learning(parts.learner.valid_rows(step))
        learned = parts.learner.learn(step, conductor.training_progress)
        acting.finish(step + 1)
        conductor.after_learning(learned, filled)
