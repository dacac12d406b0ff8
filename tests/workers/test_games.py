"""Games between given policies, and mixtures of policies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.policies import WithoutWeights

from offbeat.config.env import UNSET
from offbeat.core.frozen_table import PlainTable
from offbeat.core.types import Acted
from offbeat.envs.checking.preflight import preflight_world
from offbeat.workers.evaluator import evaluate
from offbeat.workers.games import GameEnvs, game_envs, play_games
from offbeat.workers.mixture import Mixture, SeatedMixture

GAME = "offbeat.envs.testing.games:RockPaperScissors"
SIDES = [[("player_0",)], [("player_1",)]]
ROCK, PAPER, SCISSORS = range(3)


class Always(WithoutWeights):
    """Chooses one move."""

    state_size = 1

    def __init__(self, move: int) -> None:
        self.move, self.calls = move, 0
        self.states: list[float] = []

    def act(self, observation: Any, random: Any, state: Any = None) -> Acted:  # noqa: ARG002
        self.states += state[:, 0].tolist()
        state += 1
        return Acted(np.full(len(state), self.move), {})

    def greedy(self, observation: Any, state: Any = None) -> Any:
        return self.act(observation, None, state).action


def envs_of(games: int, env: str = GAME, sides: Any = SIDES, **settings: Any) -> GameEnvs:
    world = preflight_world(env)
    assert world is not None
    return game_envs(world, sides, games, seed=0, settings=UNSET, **settings)


def test_each_side_is_played_by_its_policy():
    envs = envs_of(5)
    played = play_games(envs, [Always(ROCK), Always(PAPER)], games=5, seed=0)
    assert played.outcomes.tolist() == [[-1.0, 1.0]] * 5
    assert played.cut == 0
    played = play_games(envs, [Always(ROCK), Always(SCISSORS)], games=5, seed=0)
    assert played.outcomes.tolist() == [[1.0, -1.0]] * 5


def test_the_outcome_of_a_side_with_two_policies_is_the_mean_over_the_agents_of_both():
    envs = envs_of(3, "tests.sample_envs.scored_games:Scored", [[("player_0",), ("player_1",)]])
    assert play_games(envs, [Always(ROCK), Always(PAPER)], games=3, seed=0).outcomes.tolist() == [[1.0]] * 3


def test_a_mixture_draws_one_policy_for_each_episode_of_each_world():
    envs, mixture = envs_of(600), Mixture([Always(ROCK), Always(PAPER), Always(SCISSORS)], [1.0, 0.0, 3.0])
    first = play_games(envs, [mixture, Always(ROCK)], games=600, seed=3).outcomes[:, 0]
    assert np.array_equal(first, play_games(envs, [mixture, Always(ROCK)], games=600, seed=3).outcomes[:, 0])
    assert not np.array_equal(first, play_games(envs, [mixture, Always(ROCK)], games=600, seed=4).outcomes[:, 0])
    shares = Counter(first.tolist())
    assert shares[1.0] == 0  # paper is never drawn
    assert shares[0.0] / 600 == pytest.approx(0.25, abs=0.06)
    assert shares[-1.0] / 600 == pytest.approx(0.75, abs=0.06)


def test_a_mixture_does_not_change_its_policy_within_an_episode():
    world = preflight_world(GAME, UNSET)
    assert world is not None
    settings = replace(UNSET.completed(GAME), kwargs=PlainTable({"rounds": 5}))
    envs = game_envs(world, SIDES, 40, seed=0, settings=settings)
    mixture = Mixture([Always(PAPER), Always(SCISSORS)])
    outcomes = play_games(envs, [mixture, Always(ROCK)], games=40, seed=0).outcomes[:, 0]
    assert set(outcomes.tolist()) == {5.0, -5.0}


def test_the_policies_of_a_mixture_keep_their_states_in_an_episode_and_lose_them_at_its_end():
    world = preflight_world(GAME, UNSET)
    assert world is not None
    settings = replace(UNSET.completed(GAME), kwargs=PlainTable({"rounds": 3}))
    envs = game_envs(world, SIDES, 4, seed=0, settings=settings)
    members = [Always(PAPER), Always(SCISSORS)]
    play_games(envs, [Mixture(members), Always(ROCK)], games=12, seed=0)
    assert {state for member in members for state in member.states} == {0.0, 1.0, 2.0, 3.0}  # 3: reset rows


def test_agents_of_a_side_play_with_the_same_draw():
    world = preflight_world("offbeat.envs.testing.worlds:CartPoles")
    assert world is not None
    mixture = Mixture([Always(0), Always(1)])
    seated = SeatedMixture(mixture, worlds=6, agents=3, seed=1)
    chosen = seated.greedy({"observation": np.zeros((18, 4))}, np.zeros((18, 1), np.float32)).reshape(6, 3)
    assert (chosen == chosen[:, :1]).all()
    assert len(set(chosen[:, 0].tolist())) == 2
    before = seated.drawn.copy()
    over = np.array([True, False] * 3)
    for _ in range(8):
        seated.end_episodes(over)
        assert (seated.drawn[1::2] == before[1::2]).all()
    del world


def test_an_evaluation_of_a_mixture_counts_the_episodes_of_all_its_policies():
    envs = envs_of(100)
    policies: dict[str, Any] = {"0": Mixture([Always(PAPER), Always(SCISSORS)]), "1": Always(ROCK)}
    played = evaluate(policies, envs, episodes=100, seed=0)
    assert played.episodes == 100
    assert played.policies["0"].return_mean == pytest.approx(0, abs=0.3)
    assert {played.policies["0"].return_min, played.policies["0"].return_max} == {-1.0, 1.0}


def test_a_named_outcome_is_read_from_the_infos_at_the_end_of_the_game():
    scored = "tests.sample_envs.scored_games:Scored"
    envs = envs_of(40, scored, outcome="won")
    assert play_games(envs, [Always(PAPER), Always(ROCK)], games=40, seed=0).outcomes.tolist() == [[1.0, -1.0]] * 40
    envs = envs_of(3, scored)
    assert play_games(envs, [Always(PAPER), Always(ROCK)], games=3, seed=0).outcomes.tolist() == [[1.0, 1.0]] * 3
    envs = envs_of(3, outcome="won")
    assert np.isnan(play_games(envs, [Always(PAPER), Always(ROCK)], games=3, seed=0).outcomes).all()


@pytest.mark.parametrize("first", [[("early", "absent")], [("early",), ("absent",)]], ids=["one policy", "two"])
@pytest.mark.parametrize(("limit", "results"), [(3, [[1.0, 0.5]] * 2), (2, [])])
def test_a_game_has_a_result_if_an_agent_of_each_side_has_reported_its_outcome(limit, results, first):
    sides = [first, [("late",)]]
    envs = envs_of(2, "tests.sample_envs.scored_games:EndsApart", sides, outcome="won", max_episode_steps=limit)
    played = play_games(envs, [Always(0)] * (len(first) + 1), games=2, seed=0)
    assert played.results.tolist() == results
    assert played.outcomes[:, 0].tolist() == [1.0, 1.0], "the mean over the agents that report one"


@pytest.mark.parametrize("first", [[("early", "absent")], [("early",), ("absent",)]], ids=["one policy", "two"])
def test_an_agent_that_does_not_appear_has_no_part_in_the_mean_return_of_its_side(first):
    envs = envs_of(2, "tests.sample_envs.scored_games:EndsApart", [first, [("late",)]])
    played = play_games(envs, [Always(0)] * (len(first) + 1), games=2, seed=0)
    assert played.results.tolist() == [[1.0, 0.75]] * 2


def test_a_game_in_which_no_agent_of_a_side_appears_has_no_result():
    envs = envs_of(2, "tests.sample_envs.scored_games:EndsApart", [[("early", "late")], [("absent",)]])
    played = play_games(envs, [Always(0)] * 2, games=2, seed=0)
    assert played.outcomes[:, 0].tolist() == [0.875] * 2
    assert len(played.results) == 0


def test_games_that_are_cut_count_with_their_returns_so_far():
    world = preflight_world(GAME, UNSET)
    assert world is not None
    settings = replace(UNSET.completed(GAME), kwargs=PlainTable({"rounds": 5}))
    envs = game_envs(world, SIDES, 4, seed=0, settings=settings, max_episode_steps=2)
    played = play_games(envs, [Always(PAPER), Always(ROCK)], games=4, seed=0)
    assert played.outcomes.tolist() == [[2.0, -2.0]] * 4
    assert played.cut == 4
