"""Seats write the result of each game that ends: the mean over the agents of a side."""

from __future__ import annotations

import pytest

from offbeat.config.league import LeagueConfig
from offbeat.core.pace import OnPolicyPace
from offbeat.league.opponents import OpponentOdds
from offbeat.league.plan import LeaguePlan
from offbeat.league.sides import Side
from offbeat.league.table import LeagueTable
from offbeat.memory.arena import private_arena
from offbeat.memory.league import LeagueMemory, LeagueShape
from offbeat.workers.seats import Seats

SIDES = (Side(("red",), ("a", "b", "c")), Side(("blue",), ("d",)))
SHAPE = LeagueShape(2, {"red": 1, "blue": 1}, window=1, snapshot_every=1, versions=1, tickets=1, games=4)


def seats_of() -> tuple[Seats, LeagueMemory]:
    """Return the seats of one world, in their first ticket."""
    config = LeagueConfig(window=1, opponents="latest")
    memory = LeagueMemory(SHAPE, private_arena(SHAPE.slabs()))
    odds = OpponentOdds.of(config, LeagueTable.start(("red", "blue"), 1200), ("red", "blue"))
    for part, values in zip(memory.odds(0), (odds.snapshots, odds.cumulative), strict=True):
        part[...] = values
    seats = Seats(LeaguePlan(config, SIDES, ("red", "blue")), OnPolicyPace(1, 0), {}, seed=0, actor=0, worlds=1)
    seats.start_ticket(0, 0, memory)
    return seats, memory


def outcomes_in(memory: LeagueMemory) -> list[list[float]]:
    results = memory.results(0)
    found: list[list[float]] = results.outcomes[: results.games[0]].tolist()
    return found


@pytest.mark.parametrize(("ends", "outcomes"), [((0, 0, 1), [[4.5, 4.0]]), ((0, 0, 0, 1), [[3.0, 4.0]]), ((0,), [])])
def test_the_outcome_of_a_side_is_the_mean_of_the_returns_of_its_agents_that_appeared(ends, outcomes):
    seats, memory = seats_of()
    for side, reward in ((0, 1.0), (0, 2.0), (0, 6.0), (1, 4.0)):
        seats.outcomes.add_reward(0, side, reward)
    for side in ends:
        seats.outcomes.add_end(0, side)
    seats.finish(0)
    assert outcomes_in(memory) == outcomes
