"""Which decisions are complete, after a restore too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.reference.replay import WAITING_FIELDS, Chances, Writers

from offbeat.core.pace import ReplayPace
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.decisions import Decisions
from offbeat.memory.replay.rings import RingShape


@pytest.mark.parametrize(("actors", "columns"), [(1, 2), (2, 3)])
def test_the_complete_decisions_of_a_window_are_the_same_after_a_restore(actors, columns):
    shape = RingShape(ReplayPace(Fraction(1), 1, max_ahead=2), actors, columns, length=2, capacity=60)
    rings = shape.slots(WAITING_FIELDS, private_arena(shape.slabs(WAITING_FIELDS)))
    writers = Writers(rings, np.random.default_rng(0), Chances(waits=0.7))
    decisions, restored = Decisions(rings), Decisions(rings)
    for ticket in range(40):
        writers.go_ahead(ticket + 1, ticket + 3)
        decisions.take_in(ticket)
        window = shape.window(ticket + 1, 0)
        restored.restore(window)
        for of_window in window:
            np.testing.assert_array_equal(restored.complete(of_window), decisions.complete(of_window))
