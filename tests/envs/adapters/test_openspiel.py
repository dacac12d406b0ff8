from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.world_steps import play, random_choices, returns, same_steps

from offbeat.core.errors import ConfigError
from offbeat.envs.adapters.openspiel import ADAPTER
from offbeat.envs.worlds.contract import World, WorldAdapter, WorldSnapshots, WorldStep

pytest.importorskip("pyspiel")

KUHN = "openspiel:kuhn_poker"
PASS, BET = 0, 1


def kuhn() -> World:
    return ADAPTER.make_world(KUHN, {})


# --- the contract -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["kuhn_poker", "tic_tac_toe", "connect_four", "goofspiel", "matrix_rps", "liars_dice", "markov_soccer"]
)
def test_steps_of_games_keep_the_contract(name):
    world = ADAPTER.make_world(f"openspiel:{name}", {})
    assert list(play(world, random_choices(world)))[-1].over


def test_agents_act_by_turns_or_at_the_same_time_as_the_game_says():
    assert kuhn().turns
    goofspiel = ADAPTER.make_world("openspiel:goofspiel", {"num_cards": 4})
    assert not goofspiel.turns
    assert list(goofspiel.reset(0).deciding) == ["player_0", "player_1"]


def test_the_mask_allows_legal_moves_of_the_player_on_turn_only():
    world = ADAPTER.make_world("openspiel:tic_tac_toe", {})
    world.reset(0)
    step = world.step({"player_0": 4})
    assert step.observations["player_0"]["action_mask"].sum() == 0
    assert step.observations["player_1"]["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_the_loser_gets_its_reward_in_the_step_of_the_winning_move():
    world = ADAPTER.make_world("openspiel:tic_tac_toe", {})
    world.reset(0)
    for player, cell in enumerate((0, 3, 1, 4)):
        world.step({f"player_{player % 2}": cell})
    step = world.step({"player_0": 2})
    assert step.over
    assert step.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert step.terminations == {"player_0": True, "player_1": True}


def test_a_reward_of_each_step_is_given_once():
    world = ADAPTER.make_world("openspiel:cliff_walking", {})
    steps = list(play(world, random_choices(world)))
    assert {step.rewards["player_0"] for step in steps[1:-1]} == {-1.0}


def test_an_illegal_move_raises_an_exception():
    world = ADAPTER.make_world("openspiel:tic_tac_toe", {})
    world.reset(0)
    world.step({"player_0": 4})
    with pytest.raises(RuntimeError):
        world.step({"player_1": 4})


# --- Kuhn poker ---------------------------------------------------------------------------------------------


def card_of(step: WorldStep, player: str) -> int:
    """Return the card that a player sees: 0 to 2. Its information state is [player, card, bets]."""
    return int(step.observations[player]["observation"][2:5].argmax())


def deals() -> list[tuple[WorldStep, Any]]:
    """Return the first step of each of the six deals, and a snapshot of it."""
    world = kuhn()
    assert isinstance(world, WorldSnapshots)
    found: dict[tuple[int, int], tuple[WorldStep, Any]] = {}
    seed = 0
    while len(found) < 6:
        step = world.reset(seed)
        found[card_of(step, "player_0"), card_of(step, "player_1")] = step, world.snapshot()
        seed += 1
    return list(found.values())


def equilibrium(player: int, card: int, history: str) -> float:
    """Return the probability of a bet in the equilibrium in which the first player never bets first (Kuhn 1950)."""
    if player == 0:
        return 0.0 if history == "" else (0.0, 1 / 3, 1.0)[card]
    return (0.0, 1 / 3, 1.0)[card] if history == "b" else (1 / 3, 0.0, 1.0)[card]


def expected_return(world: World, step: WorldStep, history: str) -> float:
    """Return the expected return of player_0 in the rest of the game, over all moves of both players."""
    (player,) = step.deciding
    bet = equilibrium(int(player[-1]), card_of(step, player), history)
    assert isinstance(world, WorldSnapshots)
    state, total = world.snapshot(), 0.0
    for move, probability in ((PASS, 1 - bet), (BET, bet)):
        if probability:
            world.restore(state)
            after = world.step({player: move})
            rest = 0.0 if after.over else expected_return(world, after, history + "pb"[move])
            total += probability * (after.rewards["player_0"] + rest)
    return total


def test_the_value_of_kuhn_poker_is_minus_one_eighteenth_over_all_deals_and_moves():
    world, total = kuhn(), 0.0
    assert isinstance(world, WorldSnapshots)
    for step, state in deals():
        world.restore(state)
        total += expected_return(world, step, "") / 6
    assert total == pytest.approx(-1 / 18, abs=1e-12)


def test_returns_of_kuhn_poker_add_up_to_zero():
    world = kuhn()
    choose = random_choices(world)
    for seed in range(20):
        assert sum(returns(list(play(world, choose, seed))).values()) == 0


def test_each_card_is_dealt_equally_often():
    world = kuhn()
    counts = np.zeros((3, 3))
    seed: int | None = 0
    for _ in range(1200):
        step = world.reset(seed)
        counts[card_of(step, "player_0"), card_of(step, "player_1")] += 1
        seed = None
    assert np.diag(counts).sum() == 0
    dealt = counts[~np.eye(3, dtype=bool)]
    assert np.abs(dealt - 200).max() < 5 * np.sqrt(200)


# --- seeds and snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "goofspiel", "connect_four"])
def test_a_restored_game_continues_bit_for_bit_with_the_chance_events_of_the_next_one(name):
    world = ADAPTER.make_world(f"openspiel:{name}", {})
    episode = play(world, random_choices(world), seed=5)
    step = [next(episode) for _ in range(2)][-1]
    assert isinstance(world, WorldSnapshots)
    state = world.snapshot()
    runs = []
    for each in (world, ADAPTER.make_world(f"openspiel:{name}", {})):
        assert isinstance(each, WorldSnapshots)
        each.restore(state)
        choose = random_choices(each, 9)
        steps = [step]
        while not steps[-1].over:
            steps.append(each.step({agent: choose(agent, steps[-1]) for agent in steps[-1].deciding}))
        runs.append(steps + list(play(each, choose, seed=None)))
    assert same_steps(*runs)


def test_equal_seeds_deal_equal_cards_and_a_reset_without_a_seed_continues_the_stream():
    cards = []
    for _ in range(2):
        world = kuhn()
        steps = [world.reset(seed) for seed in (3, *[None] * 20)]
        cards.append([(card_of(step, "player_0"), card_of(step, "player_1")) for step in steps])
    assert cards[0] == cards[1]
    assert len(set(cards[0])) > 3


# --- ids ----------------------------------------------------------------------------------------------------


def test_the_adapter_is_one_of_worlds_and_lists_games():
    assert isinstance(ADAPTER, WorldAdapter)
    assert {KUHN, "openspiel:tic_tac_toe", "openspiel:goofspiel"} <= set(ADAPTER.ids())


@pytest.mark.thorough
def test_listed_games_can_be_made_and_reset():
    for env_id in ADAPTER.ids():
        assert ADAPTER.make_world(env_id, {}).reset(0).deciding, env_id


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("kuhn_pokr", {}, "Did you mean 'openspiel:kuhn_poker'"),
        ("kuhn_poker", {"player": 3}, "no parameter 'player'. Did you mean 'players'"),
        ("tic_tac_toe", {"size": 3}, "no parameter 'size'. It has no parameters"),
        ("kuhn_poker", {"players": "two"}, "cannot be made with the parameters {'players': 'two'}"),
        ("mfg_crowd_modelling", {}, "is a mean field game, which is not supported"),
        ("negotiation", {}, "draws chance events from a random stream of its own"),
        ("coin_game", {}, "has no observations in the form of arrays"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(name, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        ADAPTER.make_world(f"openspiel:{name}", kwargs)


def test_games_are_not_rendered():
    with pytest.raises(ConfigError, match="cannot be rendered"):
        ADAPTER.make_world(KUHN, {}, "rgb_array")


def test_without_open_spiel_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setattr("offbeat.envs.adapters.openspiel.is_importable", lambda _: False)
    assert not ADAPTER.ids()
    with pytest.raises(ConfigError, match=r'run pip install "offbeat\[openspiel\]"'):
        kuhn()
