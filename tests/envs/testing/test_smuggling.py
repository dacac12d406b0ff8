"""The game is played as it says, and its exact solution is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reference.smuggling import against_patrols, against_smugglers, expected_return, value
from tests.support.world_steps import play, returns, same_steps

from offbeat.envs.adapters.pettingzoo.kinds import world_of
from offbeat.envs.testing.smuggling import PATROL, SMUGGLER, Smuggling
from offbeat.envs.worlds.contract import WorldSnapshots, WorldStep

NIGHTS, PATROLS = GAME = 4, 2


def random_strategies(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return smugglers, [count, nights, patrols + 1, weather, 3], and patrols, [count, nights, patrols + 1, 2]."""
    random = np.random.default_rng(3)
    return (
        random.dirichlet((0.5,) * 3, (count, NIGHTS, PATROLS + 1, 2)),
        random.dirichlet((0.5,) * 2, (count, NIGHTS, PATROLS + 1)),
    )


def test_the_mean_return_of_many_games_is_the_expected_one():
    (smuggler,), (patrol,) = random_strategies(1)
    random, world, got = np.random.default_rng(0), world_of(Smuggling(*GAME)), []

    def choose(agent: str, step: WorldStep) -> int:
        strategy = smuggler.reshape(-1, 3) if agent == SMUGGLER else patrol.reshape(-1, 2)
        shares = strategy[step.observations[agent].argmax()]
        return int(random.choice(len(shares), p=shares))

    for game in range(1500):
        both = returns(list(play(world, choose, seed=game)))
        assert both[PATROL] == -both[SMUGGLER]
        got.append(both[SMUGGLER])
    assert np.mean(got) == pytest.approx(expected_return(smuggler, patrol, *GAME), abs=4 * np.std(got) / 1500**0.5)


def test_a_patrol_without_patrols_has_no_decision():
    steps = list(play(world_of(Smuggling(3, 1)), lambda agent, _: int(agent == PATROL)))
    assert [PATROL in step.deciding for step in steps] == [True, False, False, False]
    assert returns(steps) == {SMUGGLER: 0, PATROL: 0}


def test_a_restored_game_continues_bit_for_bit():
    def rest(world: Any, actions: list[tuple[int, int]]) -> list[WorldStep]:
        return [world.step({SMUGGLER: load, PATROL: out}) for load, out in actions]

    worlds = [world_of(Smuggling(8, 8)) for _ in range(2)]
    for world in worlds:
        world.reset(5)
    rest(worlds[0], [(0, 1), (0, 0), (0, 1)])
    first, second = worlds
    assert isinstance(first, WorldSnapshots)
    assert isinstance(second, WorldSnapshots)
    second.restore(first.snapshot())
    after = [(0, 1), (0, 0), (0, 0), (2, 1)]
    expected, found = (rest(world, after) for world in worlds)
    assert same_steps(found, expected)
    assert expected[-1].over


def test_no_strategy_of_many_is_better_than_the_best_response_to_a_mixture():
    """A mixture draws one strategy a game, so its expected return is the mean."""
    smugglers, patrols = random_strategies(200)
    weights = [0.2, 0.3, 0.5]
    worst, best = against_smugglers(smugglers[:3], weights, *GAME), against_patrols(patrols[:3], weights, *GAME)
    pure_smugglers, pure_patrols = (np.eye(n)[each.argmax(axis=-1)] for n, each in ((3, smugglers), (2, patrols)))
    for patrol in (*patrols, *pure_patrols):
        assert np.dot(weights, [expected_return(each, patrol, *GAME) for each in smugglers[:3]]) >= worst - 1e-12
    for smuggler in (*smugglers, *pure_smugglers):
        assert np.dot(weights, [expected_return(smuggler, each, *GAME) for each in patrols[:3]]) <= best + 1e-12
    assert worst < value(*GAME) < best


def test_the_value_of_small_games_is_that_found_by_hand():
    assert value(1, 0) == value(4, 0) == 2  # a large load is safe
    assert value(1, 1) == 0  # the patrol goes out: nothing is worth a trip
    # Waiting is worth 2 q, a large load in fog 2 - 3 q: equal at q = 0.4. In clear weather only waiting is good.
    assert value(2, 1) == pytest.approx(0.8)


def test_best_responses_to_an_equilibrium_have_the_value_of_the_game():
    """With 2 nights and 1 patrol: the patrol goes out first with 0.4, a smuggler goes in fog first with 0.8."""
    patrol = np.array([[[1, 0], [0, 1]], [[1, 0], [0.6, 0.4]]])
    smuggler = np.zeros((2, 2, 2, 3))
    smuggler[0, 0, :, 2] = smuggler[0, 1, :, 0] = smuggler[1, 1, 0, 0] = 1
    smuggler[1, 1, 1] = [0.2, 0, 0.8]
    assert against_patrols(patrol[None], [1], 2, 1) == pytest.approx(0.8)
    assert against_smugglers(smuggler[None], [1], 2, 1) == pytest.approx(0.8)
    assert expected_return(smuggler, patrol, 2, 1) == pytest.approx(0.8)
