"""Evaluation of several agents and policies, against known returns and against worlds that are played one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.support.models import random_vector
from tests.support.policies import WithoutWeights

from offbeat.config.env import EnvConfig
from offbeat.core.errors import EnvFailed
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.seeding import derive_seed
from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.testing.games import PLAYERS, Nim, RockPaperScissors
from offbeat.envs.testing.worlds import CartPoles, LateArrivals
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec
from offbeat.workers.episodes import Evaluation
from offbeat.workers.evaluation_envs import EvaluationEnvs, evaluation_envs
from offbeat.workers.evaluator import PlayOptions, evaluate
from offbeat.workers.mixture import Mixture

WORLDS, GAMES = "offbeat.envs.testing.worlds", "offbeat.envs.testing.games"
RPS, NIM, LATE = f"{GAMES}:RockPaperScissors", f"{GAMES}:Nim", f"{WORLDS}:LateArrivals"
SEED, ROLE = 3, "evaluation"


def three_rounds() -> RockPaperScissors:
    return RockPaperScissors(rounds=3)


def one_stone() -> Nim:
    return Nim(stones=1, most=1)


def short_carts() -> CartPoles:
    """Of three carts, some fall before the end."""
    return CartPoles(max_steps=30)


OWN = "tests.workers.test_evaluator_of_worlds"


class Rule(WithoutWeights):
    """A policy that is a function of an observation, of one column."""

    def __init__(self, rule: Any) -> None:
        self._rule = rule

    def greedy(self, observation: Tree, state: Any = None) -> Array:  # noqa: ARG002 - the policy's interface
        columns = len(next(iter(observation.values())))
        rows = ({name: leaf[column] for name, leaf in observation.items()} for column in range(columns))
        return np.array([self._rule(row) for row in rows])


def always(action: int) -> Rule:
    return Rule(lambda _row: action)


def envs_of(env: str, owners: Mapping[str, tuple[str, ...]] | None, episodes: int, **limits: Any) -> EvaluationEnvs:
    """The worlds of an evaluation; `owners` None: one policy owns all agents."""
    world = preflight_world(env)
    assert world is not None
    owned = {DEFAULT_POLICY: world.names} if owners is None else owners
    settings = EnvConfig()
    return evaluation_envs(env, episodes, seed=SEED, role=ROLE, settings=settings, world=world, owners=owned, **limits)


def evaluated(env: str, policies: Mapping[str, Any], episodes: int = 3) -> Evaluation:
    """Evaluate with one policy an agent, or one policy for all."""
    owners = None if DEFAULT_POLICY in policies else {agent: (agent,) for agent in policies}
    envs = envs_of(env, owners, episodes)
    try:
        return evaluate(policies, envs, episodes=episodes, seed=SEED)
    finally:
        envs.close()


# --- known returns ------------------------------------------------------------------------------------------


def test_the_best_rules_of_agents_with_different_spaces_have_their_best_returns():
    rules = {
        "driver": Rule(lambda row: row["observation"]),
        "gunner": Rule(lambda row: int(row["observation/observation"].argmax())),
        "scout": Rule(lambda row: int(row["observation"].argmax())),
    }
    result = evaluated(f"{WORLDS}:MixedSpaces", rules, episodes=40)
    expected = {"driver": 0.0, "gunner": 8.0, "scout": 8.0}
    for name, best in expected.items():
        own = result.policies[name]
        assert (own.return_mean, own.return_min, own.return_max) == pytest.approx((best, best, best), abs=1e-5)
        assert own.team_return_mean == pytest.approx(best, abs=1e-5)
        assert (own.length_mean, len(own.returns)) == (8, 40)
    assert result.return_mean == pytest.approx(16 / 3, abs=1e-5)
    assert result.return_std == pytest.approx(np.std([0, 8, 8]), abs=1e-5)
    assert result.team_return_mean == pytest.approx(16, abs=1e-5)
    assert (result.episodes, result.cut, result.not_begun) == (40, 0, 0)
    assert result.env_steps == 2 * 32 * 8, "the second episodes of 24 worlds are not counted"
    scout_alone = result.of(["scout"])
    assert (scout_alone.return_mean, scout_alone.team_return_mean) == (8, 8)


def test_the_winner_of_rock_paper_scissors_gets_what_the_loser_loses():
    rock_and_paper = {PLAYERS[0]: always(0), PLAYERS[1]: always(1)}
    result = evaluated(f"{OWN}:three_rounds", rock_and_paper)
    assert [result.policies[player].return_mean for player in PLAYERS] == [-3, 3]
    assert (result.return_mean, result.return_std, result.team_return_mean) == (0, 3, 0)
    assert result.team_returns.tolist() == [0, 0, 0]


def test_policies_that_are_drawn_in_training_take_turns_on_all_sides():
    sides = [(player,) for player in PLAYERS]
    owners, limits = dict.fromkeys(("rock", "paper"), PLAYERS), {"sides": dict.fromkeys(("rock", "paper"), sides)}
    envs = envs_of(f"{OWN}:three_rounds", owners, 40, **limits)
    result = evaluate({"rock": always(0), "paper": always(1)}, envs, episodes=40, seed=SEED)
    envs.close()
    assert [result.policies[name].return_mean for name in ("rock", "paper")] == [-1.5, 1.5]  # half is against itself
    assert [len(result.policies[name].returns) for name in ("rock", "paper")] == [40, 40]
    assert result.team_returns.tolist() == [0] * 40


class Shifted(Rule):
    """A policy whose recorded actions are one below those of the env."""

    def to_env(self, action: Array) -> Array:
        return action + 1


def test_each_policy_of_a_mixture_converts_its_own_actions():
    paper = Mixture([always(1), Shifted(lambda _row: 0)])
    result = evaluated(f"{OWN}:three_rounds", {PLAYERS[0]: paper, PLAYERS[1]: always(0)}, episodes=20)
    assert result.policies[PLAYERS[0]].returns.tolist() == [3] * 20


def winning_move(row: Tree) -> int:
    """Take stones so that a multiple of 3 is left."""
    left = int(row["observation/observation"].argmax())
    return max(left % 3 - 1, 0)


def test_rows_without_a_decision_count_in_returns_and_not_in_lengths():
    """7 stones: the first takes 1, then each answers so that 3 are taken: 1, 1 + 2, 1 + 2."""
    players = {PLAYERS[0]: Rule(winning_move), PLAYERS[1]: always(0)}
    result = evaluated(NIM, players, episodes=5)
    first, second = (result.policies[player] for player in PLAYERS)
    assert (first.return_min, first.return_max, first.length_mean) == (1, 1, 3)
    assert (second.return_min, second.return_max, second.length_mean) == (-1, -1, 2)
    assert result.env_steps == 5 * 5, "five moves in each world"


def test_a_player_who_never_moves_has_its_return():
    """With one stone the first player wins with its first move."""
    result = evaluated(f"{OWN}:one_stone", dict.fromkeys(PLAYERS, always(0)))
    assert [result.policies[player].returns.tolist() for player in PLAYERS] == [[1] * 3, [-1] * 3]
    assert result.policies[PLAYERS[1]].length_mean == 0


def test_late_agents_have_whole_episodes():
    result = evaluated(LATE, {DEFAULT_POLICY: always(1)}, episodes=4)
    assert result.returns.tolist() == result.lengths.tolist() == [5] * 12
    assert result.team_returns.tolist() == [15] * 4
    assert result.env_steps == 4 * 9


def test_agents_that_never_appeared_in_a_cut_episode_do_not_count():
    """Cut after 3 steps: the first agent has acted three times, the second once, the third is not there yet."""
    agents = {f"agent_{index}": always(1) for index in range(3)}
    envs = envs_of(LATE, {name: (name,) for name in agents}, 2, max_episode_steps=3)
    result = evaluate(agents, envs, episodes=4, seed=SEED)
    assert {name: own.returns.tolist() for name, own in result.policies.items()} == {
        "agent_0": [3] * 4,
        "agent_1": [1] * 4,
        "agent_2": [],
    }
    assert (result.return_mean, result.team_return_mean) == (2, 4)
    assert (result.returns.tolist(), result.lengths.tolist()) == ([3, 1] * 4, [3, 1] * 4), "episode by episode"
    third = result.policies["agent_2"]
    assert (third.return_mean, third.return_std, third.length_mean, third.team_return_mean) == (None, None, None, 0)
    assert (result.episodes, result.cut, result.cuts) == (4, 4, "of 4 episodes 0 ended, 4 were cut")


def test_max_steps_cuts_the_episodes_of_worlds():
    """Two worlds of three steps an episode: after 8 steps the third and fourth have had one step."""
    both = {PLAYERS[0]: always(0), PLAYERS[1]: always(1)}
    envs = envs_of(f"{OWN}:three_rounds", {player: (player,) for player in PLAYERS}, 2)
    result = evaluate(both, envs, episodes=6, seed=SEED, options=PlayOptions(max_steps=8))
    assert result.policies[PLAYERS[1]].returns.tolist() == [3, 3, 1, 1]
    assert result.returns.tolist() == [-3, 3, -3, 3, -1, 1, -1, 1]
    assert (result.cut, result.not_begun, result.env_steps) == (2, 2, 8)


def test_an_error_of_a_world_says_after_how_many_env_steps_of_the_evaluation():
    wrong = {"driver": Rule(lambda row: row["observation"]), "gunner": Rule(_forbidden), "scout": always(0)}
    with pytest.raises(EnvFailed, match=r"failed after 0 env steps, when 0 of 3 .*its mask forbids"):
        evaluated(f"{WORLDS}:MixedSpaces", wrong)


def _forbidden(row: Tree) -> int:
    return int(row["observation/action_mask"].argmin())


# --- against worlds that are played one by one --------------------------------------------------------------


def network_of(spec: EnvSpec, seed: int) -> ActingPolicy:
    """A policy with random weights."""
    policy = make_policy(PolicySpec(spec.observation, spec.action, (4,), "tanh", "categorical", normalize=False))
    policy.load(random_vector(policy.spec, np.random.default_rng(seed)))
    return policy


def played_alone(
    env: Any, seed: int, policy_of: Mapping[str, ActingPolicy], episodes: int
) -> list[dict[str, tuple[float, int]]]:
    """Return and length of each agent in each episode of a world, which is stepped as PettingZoo steps it."""
    observations, _ = env.reset(seed=seed)
    played = []
    for _ in range(episodes):
        sums = dict.fromkeys(observations, (0.0, 0))
        while env.agents:
            acting = list(env.agents)
            actions = {
                agent: policy_of[agent].greedy({"observation": observations[agent][None]})[0] for agent in acting
            }
            observations, rewards, *_ = env.step(actions)
            for agent in acting:
                total, length = sums.get(agent, (0.0, 0))
                sums[agent] = total + rewards[agent], length + 1
        played.append(sums)
        observations, _ = env.reset()
    return played


OWNERS: dict[str, dict[str, tuple[str, ...]]] = {
    "shared": {DEFAULT_POLICY: ("cart_0", "cart_1", "cart_2")},
    "two": {"cat": ("cart_1",), "dog": ("cart_0", "cart_2")},
    "separate": {f"cart_{index}": (f"cart_{index}",) for index in range(3)},
}


@pytest.mark.parametrize(("worlds", "episodes"), [(3, 3), (2, 5), (1, 2)])
@pytest.mark.parametrize("owners", OWNERS.values(), ids=OWNERS)
def test_world_w_of_n_plays_the_episodes_w_and_w_plus_n_as_it_would_alone(owners, worlds, episodes):
    """Carts fall after different numbers of steps, of which the longest ends the episode: dead agents wait for it."""
    compare(f"{OWN}:short_carts", short_carts, owners, worlds, episodes)


def test_worlds_with_late_agents_play_as_they_would_alone():
    owners = {"first": ("agent_0",), "others": ("agent_1", "agent_2")}
    compare(LATE, LateArrivals, owners, worlds=2, episodes=5)


def compare(env: str, make: Any, owners: Mapping[str, tuple[str, ...]], worlds: int, episodes: int) -> None:
    envs = envs_of(env, owners, worlds)
    policies = {name: network_of(envs.columns[name].spec, seed) for seed, name in enumerate(owners)}
    policy_of = {agent: policies[name] for name, agents in owners.items() for agent in agents}
    result = evaluate(policies, envs, episodes=episodes, seed=SEED)
    alone = [
        played_alone(make(), derive_seed(SEED, ROLE, 0, 0, world), policy_of, -(-episodes // worlds))
        for world in range(worlds)
    ]
    expected = [alone[episode % worlds][episode // worlds] for episode in range(episodes)]
    for name, agents in owners.items():
        own = result.policies[name]
        assert own.returns.tolist() == [played[agent][0] for played in expected for agent in agents]
        assert own.lengths.tolist() == [played[agent][1] for played in expected for agent in agents]
        assert own.team_returns.tolist() == [sum(played[agent][0] for agent in agents) for played in expected]
    everything = [played[agent][0] for played in expected for agent in played]
    assert result.return_mean == pytest.approx(np.mean(everything))
    assert result.team_return_mean == pytest.approx(np.mean([sum(r for r, _ in each.values()) for each in expected]))
    envs.close()


class Counts(Rule):
    """Takes action 1 in the first three decisions of an episode, which its memory counts."""

    state_size = 1

    def __init__(self) -> None:
        super().__init__(None)

    def greedy(self, observation: Tree, state: Any = None) -> Array:  # noqa: ARG002 - the policy's interface
        state += 1
        return (state[:, 0] <= 3).astype(np.int64)


@pytest.mark.parametrize("policies", [{DEFAULT_POLICY: Counts()}, {f"agent_{index}": Counts() for index in range(3)}])
def test_the_memory_of_a_policy_is_new_in_each_episode_of_an_agent(policies):
    """Agents act five times. They appear late, and the rows before do not count."""
    assert evaluated(LATE, policies, episodes=70).returns.tolist() == [3] * 210


def test_sampled_actions_of_several_policies_are_determined_by_the_seed():
    def returns(seed: int) -> list[float]:
        owners = OWNERS["two"]
        envs = envs_of(f"{OWN}:short_carts", owners, 2)
        policies = {name: network_of(envs.columns[name].spec, number) for number, name in enumerate(owners)}
        result = evaluate(policies, envs, episodes=2, seed=seed, options=PlayOptions(sampled=True))
        envs.close()
        return list(result.returns)

    assert returns(0) == returns(0) != returns(1)
