from __future__ import annotations

import pytest

from offbeat.memory.arena import private_arena
from offbeat.memory.league import LeagueMemory, LeagueShape


@pytest.mark.parametrize("snapshot_every", range(1, 6))
@pytest.mark.parametrize("versions", range(1, 7))
@pytest.mark.parametrize("window", [1, 3])
def test_snapshots_stay_in_memory_while_a_version_of_the_weights_whose_odds_name_them_still_acts(
    window, versions, snapshot_every
):
    shape = LeagueShape(2, {"p": 1}, window, snapshot_every, versions, tickets=1, games=1)
    memory = LeagueMemory(shape, private_arena(shape.slabs()))
    for version in range(40):
        if version % snapshot_every == 0:
            number = version // snapshot_every
            memory.snapshot("p", number)[:] = number
        for acting in range(max(0, version - versions + 1), version + 1):
            newest = acting // snapshot_every
            for number in range(max(0, newest - window + 1), newest + 1):
                assert memory.snapshot("p", number) == number
