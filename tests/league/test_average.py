from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.reference.kuhn_poker import KuhnPoker, equilibrium_with_entropy, self_play, softmax

from offbeat.core.errors import ConfigError
from offbeat.league.average import average_policy, draw_snapshot

pyspiel = pytest.importorskip("pyspiel")
from open_spiel.python.algorithms.expected_game_score import policy_value  # noqa: E402
from open_spiel.python.algorithms.exploitability import nash_conv  # noqa: E402
from open_spiel.python.policy import TabularPolicy  # noqa: E402


@pytest.fixture(scope="module")
def kuhn() -> KuhnPoker:
    return KuhnPoker()


def random_policies(game, count: int, seed: int = 0) -> list[TabularPolicy]:
    """Policies with random probabilities, of which some are 0."""
    random, policies = np.random.default_rng(seed), []
    for _ in range(count):
        policy = TabularPolicy(game)
        weights = random.exponential(size=policy.action_probability_array.shape) * policy.legal_actions_mask
        weights = np.where((random.random(weights.shape) < 0.3) & (weights < weights.max(1, keepdims=True)), 0, weights)
        policy.action_probability_array = weights / weights.sum(axis=1, keepdims=True)
        policies.append(policy)
    return policies


@pytest.mark.parametrize("name", ["kuhn_poker", "kuhn_poker(players=3)"])
@pytest.mark.parametrize("player", [0, 1])
def test_the_average_has_the_return_of_a_mixture_against_any_opponent(name, player):
    game = pyspiel.load_game(name)
    snapshots, (opponent,) = random_policies(game, 4), random_policies(game, 1, seed=9)
    weights = np.array([0.1, 0.4, 0.0, 0.5])
    average = average_policy(game, snapshots, (weights * 7).tolist())

    def value(policy) -> float:
        joint = [policy if side == player else opponent for side in range(game.num_players())]
        return policy_value(game.new_initial_state(), joint)[player]

    assert value(average) == pytest.approx(weights @ [value(snapshot) for snapshot in snapshots], abs=1e-12)


def betting(probability: float):
    """The policy that bets with this probability at each decision."""
    return lambda _: {0: 1 - probability, 1: probability}


def test_the_average_weights_each_policy_by_the_probability_that_it_reaches_a_state():
    game = pyspiel.load_game("kuhn_poker")
    average = average_policy(game, [betting(1.0), betting(0.0), betting(0.25)])
    assert average.policy_for_key("0") == pytest.approx([1.75 / 3, 1.25 / 3])
    # after a pass and a bet: the first policy never passes, the second always, the third with 0.75
    assert average.policy_for_key("0pb") == pytest.approx([(1 + 0.75 * 0.75) / 1.75, 0.75 * 0.25 / 1.75])


def test_the_average_is_uniform_at_states_that_no_policy_reaches():
    game = pyspiel.load_game("kuhn_poker")

    def passing_after_a_bet(state) -> dict[int, float]:
        return {0: 1.0} if state.information_state_string().endswith("pb") else {1: 1.0}

    average = average_policy(game, [passing_after_a_bet])
    assert average.policy_for_key("0pb") == pytest.approx([0.5, 0.5])  # it bets at once


def test_the_average_of_one_policy_is_that_policy():
    game = pyspiel.load_game("kuhn_poker")
    average = average_policy(game, [betting(0.25)])
    assert average.action_probability_array == pytest.approx(np.tile([0.75, 0.25], (12, 1)))


def test_the_uniform_policy_of_kuhn_poker_has_its_known_nash_conv(kuhn):
    uniform = average_policy(kuhn.game, [kuhn.function(np.full((12, 2), 0.5))])
    assert nash_conv(kuhn.game, uniform) == pytest.approx(11 / 12)


def test_in_self_play_without_entropy_only_the_average_comes_close_to_the_equilibrium(kuhn):
    snapshots = [kuhn.function(each) for each in self_play(kuhn, steps=1500, entropy=0.0, rate=1.0, every=25)]
    last, average = average_policy(kuhn.game, snapshots[-1:]), average_policy(kuhn.game, snapshots)
    assert nash_conv(kuhn.game, last) > 0.2
    assert nash_conv(kuhn.game, average) < 0.05
    value = policy_value(kuhn.game.new_initial_state(), [average, average])[0]
    assert value == pytest.approx(-1 / 18, abs=0.02)


def test_self_play_with_entropy_brings_the_last_policy_close_to_the_equilibrium(kuhn):
    snapshots = [kuhn.function(each) for each in self_play(kuhn, steps=1500, entropy=0.1, rate=1.0, every=25)]
    assert nash_conv(kuhn.game, average_policy(kuhn.game, snapshots[-1:])) < 0.05
    assert nash_conv(kuhn.game, average_policy(kuhn.game, snapshots)) < 0.05


def test_the_gradient_of_the_reference_game_is_that_of_finite_differences(kuhn):
    policy = np.random.default_rng(3).uniform(0.2, 0.8, (12, 2))
    gradient = kuhn.gradient(policy)
    for state in range(12):
        for action in range(2):
            step = np.zeros_like(policy)
            step[state, action] = 1e-6
            change = (kuhn.value(policy + step) - kuhn.value(policy - step)) / 2e-6
            assert gradient[state, action] == pytest.approx(kuhn.sign[state, 0] * change, abs=1e-7)


def test_the_equilibrium_with_an_entropy_bonus_is_nearer_to_that_of_the_game_the_smaller_the_bonus(kuhn):
    policies = [equilibrium_with_entropy(kuhn, entropy, steps=3000) for entropy in (0.3, 0.2, 0.15)]
    distances = [nash_conv(kuhn.game, average_policy(kuhn.game, [kuhn.function(each)])) for each in policies]
    assert distances == pytest.approx([0.138, 0.087, 0.062], abs=2e-3)  # benchmarks/results/entropy-bonus.md
    returns = kuhn.gradient(policies[0]) / kuhn.visits(policies[0])[:, None]
    np.testing.assert_allclose(policies[0], softmax(returns / 0.3), atol=1e-3)


def test_rock_paper_scissors_as_a_turn_based_game_has_an_average():
    game = pyspiel.load_game_as_turn_based("matrix_rps")
    pure = [lambda _, action=action: {action: 1.0} for action in range(3)]
    assert nash_conv(game, average_policy(game, pure[:1])) == pytest.approx(2)
    assert nash_conv(game, average_policy(game, pure)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "policy",
    [
        lambda _: {0: 0.5, 1: 0.6},
        lambda _: {0: 1.5, 1: -0.5},
        lambda _: {0: 0.5, 7: 0.5},
        lambda _: {0: float("nan"), 1: 0.5},
    ],
)
def test_a_policy_that_returns_no_probabilities_is_refused(kuhn, policy):
    with pytest.raises(ConfigError, match="add up to 1"):
        average_policy(kuhn.game, [policy])


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [1.0, -1.0], [1.0, float("inf")], [1.0, float("nan")]])
def test_weights_that_are_no_distribution_are_refused(kuhn, weights):
    with pytest.raises(ConfigError, match="weights of 2 policies"):
        average_policy(kuhn.game, random_policies(kuhn.game, 2), weights)


def test_an_average_of_no_policies_is_refused(kuhn):
    with pytest.raises(ConfigError, match="weights of 0 policies"):
        average_policy(kuhn.game, [])


def test_a_game_in_which_all_act_at_once_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"load_game_as_turn_based\('matrix_rps'\)"):
        average_policy(pyspiel.load_game("matrix_rps"), [lambda _: {0: 1.0}])


def test_a_game_that_is_too_large_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr("offbeat.league.average.MOST_HISTORIES", 1000)
    with pytest.raises(ConfigError, match=r"more than 1,000 histories.*draw_snapshot"):
        average_policy(pyspiel.load_game("tic_tac_toe"), [lambda state: {state.legal_actions()[0]: 1.0}])


def test_a_mixture_draws_one_snapshot_per_episode_by_its_weights():
    drawn = [draw_snapshot([1.0, 0.0, 3.0], seed=5, world=n % 7, episode=n // 7) for n in range(3000)]
    again = [draw_snapshot([1.0, 0.0, 3.0], seed=5, world=n % 7, episode=n // 7) for n in range(50)]
    assert drawn[:50] == again
    shares = Counter(drawn)
    assert shares[1] == 0
    assert shares[0] / 3000 == pytest.approx(0.25, abs=0.03)
