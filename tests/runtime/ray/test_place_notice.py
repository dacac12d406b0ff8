"""When the user is told of actors that have no process yet: in a time that is set here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.runtime.ray import place_notice
from offbeat.runtime.ray.place_notice import EVERY_S, FIRST_S, PlaceNotice


class Clock:
    """A time that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(place_notice, "monotonic", clock)
    return clock


def actor(started_at: float, *, placed: bool = False) -> Any:
    return SimpleNamespace(started_at=started_at, placed=placed)


def test_actors_without_a_process_are_named_together_and_then_once_a_minute(clock):
    notice, actors = PlaceNotice(), [actor(0.0), actor(0.0, placed=True), actor(1.0)]
    said = []
    for clock.now in (FIRST_S, FIRST_S + 0.5, FIRST_S + 1.5, FIRST_S + EVERY_S, FIRST_S + EVERY_S + 0.5):
        said.append(notice.due(actors))
    assert said == [0, 2, 0, 0, 2]


def test_an_actor_that_is_started_again_is_named_though_others_were_a_moment_ago(clock):
    notice, first = PlaceNotice(), actor(0.0)
    clock.now = FIRST_S + 1
    assert notice.due([first]) == 1
    first.placed = True
    restarted = actor(clock.now)
    assert notice.due([first, restarted]) == 0
    clock.now += FIRST_S + 1
    assert notice.due([first, restarted]) == 1
