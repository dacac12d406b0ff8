from __future__ import annotations

import json
import math
from dataclasses import asdict
from io import StringIO

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from rich.console import Console
from tests.support.thorough import examples

from offbeat.league.payoffs import Payoffs
from offbeat.league.ratings import expected_score, fit_ratings, updated_elo
from offbeat.league.standings import standings_of, standings_table

WEAK = 1e7
"""Standard deviation of a prior that changes nothing that is measured."""


def two_players(wins: float, losses: float) -> Payoffs:
    matrix = np.array([[0.0, wins], [losses, 0.0]])
    return Payoffs(("a", "b"), matrix + matrix.T, matrix)


def simulated(strengths: np.ndarray, games: int, seed: int = 0) -> Payoffs:
    """Each pair plays `games` games with the win rates that belong to the strengths."""
    random, count = np.random.default_rng(seed), len(strengths)
    wins = np.zeros((count, count))
    for i in range(count):
        for j in range(i):
            wins[i, j] = random.binomial(games, expected_score(strengths[i], strengths[j]))
            wins[j, i] = games - wins[i, j]
    return Payoffs(tuple(f"p{i}" for i in range(count)), wins + wins.T, wins)


@some.composite
def payoffs(drawn) -> Payoffs:
    """Any results of up to six players: pairs that have not met, players without a win, fractions of games."""
    count = drawn(some.integers(1, 6))
    numbers = some.lists(some.sampled_from([0.0, 0.0, 0.5, 1.0, 7.25, 300.0]), min_size=count**2, max_size=count**2)
    wins = np.array(drawn(numbers)).reshape(count, count)
    np.fill_diagonal(wins, 0)
    return Payoffs(tuple("abcdef"[:count]), wins + wins.T, wins)


# --- sequential updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("difference", "expected"), [(0, 0.5), (400, 10 / 11), (-400, 1 / 11), (100, 0.640065)])
def test_expected_scores_are_those_of_elos_formula(difference, expected):
    assert expected_score(1200 + difference, 1200) == pytest.approx(expected)


@given(some.floats(-1e6, 1e6), some.floats(-1e6, 1e6))
def test_expected_scores_of_two_players_add_up_to_one(first, second):
    assert expected_score(first, second) + expected_score(second, first) == pytest.approx(1)


@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
def test_an_elo_update_is_the_k_factor_times_the_surprise_and_keeps_the_sum(score):
    first, second = updated_elo(1300.0, 1250.0, score, 16.0)
    assert first - 1300 == pytest.approx(16 * (score - 1 / (1 + 10 ** (-50 / 400))))
    assert first + second == pytest.approx(2550)


def test_elo_ratings_reach_the_difference_that_belongs_to_the_win_rate():
    first, second, random = 1200.0, 1200.0, np.random.default_rng(0)
    late = []
    for game in range(6000):
        first, second = updated_elo(first, second, float(random.random() < 0.75), 4.0)
        late += [first - second] if game >= 2000 else []
    assert np.mean(late) == pytest.approx(400 * math.log10(3), abs=15)


# --- the fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wins", "losses"), [(75, 25), (50, 50), (1, 99), (3.5, 2.5)])
def test_ratings_of_two_players_have_the_closed_form(wins, losses):
    rate, games = wins / (wins + losses), wins + losses
    fitted = fit_ratings(two_players(wins, losses), anchor=1, prior_sd=WEAK)
    assert fitted.rating[0] - fitted.rating[1] == pytest.approx(400 * math.log10(rate / (1 - rate)), abs=1e-3)
    assert fitted.rating[1] == 1200
    scale = 400 / math.log(10)
    assert fitted.error == pytest.approx([scale / math.sqrt(games * rate * (1 - rate)), 0], rel=1e-4)


def test_a_draw_counts_as_half_a_win_of_each():
    draws = Payoffs.count(["a", "b"], [(0, 1, 0.5)] * 4 + [(0, 1, 1.0)] * 2)
    assert fit_ratings(draws).rating == pytest.approx(fit_ratings(two_players(4, 2)).rating)


def test_players_in_a_chain_of_games_have_the_sum_of_the_differences():
    chain = Payoffs.count("abc", [(0, 1, 1.0)] * 30 + [(0, 1, 0.0)] * 10 + [(1, 2, 1.0)] * 20 + [(1, 2, 0.0)] * 10)
    fitted = fit_ratings(chain, prior_sd=WEAK).rating
    assert fitted[0] - fitted[2] == pytest.approx(400 * (math.log10(3) + math.log10(2)), abs=1e-3)


UNEVEN = np.array([[0, 1e4, 1e4, 0], [1, 0, 1, 0], [1, 10, 0, 10], [0, 1e4, 0, 0]])
"""Full steps of Newton's method do not reach the maximum of these wins."""


@example(Payoffs(tuple("abcd"), UNEVEN + UNEVEN.T, UNEVEN))
@given(payoffs())
@examples(40)
def test_the_fit_is_the_maximum_that_a_general_optimizer_finds(matrix):
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    scale = 400 / math.log(10)

    def loss(points: np.ndarray) -> float:  # the formula, pair by pair
        total = (points**2).sum() / (2 * 1000.0**2)
        for i in range(len(points)):
            for j in range(len(points)):
                total += matrix.wins[i, j] * np.logaddexp(0, (points[j] - points[i]) / scale)
        return float(total)

    found = fit_ratings(matrix, initial_elo=0).rating
    best = minimize(loss, np.zeros(len(found)), tol=1e-10)
    assert loss(found) <= best.fun + 1e-7


@given(payoffs(), some.randoms())
@examples(40)
def test_the_fit_always_exists_and_does_not_depend_on_the_order_of_the_players(matrix, random):
    fitted = fit_ratings(matrix)
    assert np.isfinite(fitted.rating).all()
    assert np.isfinite(fitted.error).all()
    assert fitted.rating.mean() == pytest.approx(1200)
    order = list(range(len(matrix.players)))
    random.shuffle(order)
    grid = np.ix_(order, order)
    shuffled = fit_ratings(Payoffs(tuple(matrix.players[i] for i in order), matrix.games[grid], matrix.wins[grid]))
    assert shuffled.rating == pytest.approx(fitted.rating[order], abs=1e-5)
    assert shuffled.error == pytest.approx(fitted.error[order], abs=1e-5)


def test_the_fit_recovers_known_strengths_within_its_standard_errors():
    strengths = np.array([1000.0, 1100, 1150, 1300, 1420, 1230])
    deviations = []
    for seed in range(30):
        fitted = fit_ratings(simulated(strengths, 200, seed), initial_elo=strengths.mean())
        assert fitted.rating == pytest.approx(strengths, abs=60)
        deviations.append((fitted.rating - strengths) / fitted.error)
    assert np.std(deviations) == pytest.approx(1, abs=0.15)
    assert np.mean(deviations) == pytest.approx(0, abs=0.2)


def test_the_anchor_has_the_initial_rating_and_no_error():
    matrix = simulated(np.array([1000.0, 1200, 1300]), 100)
    free, fixed = fit_ratings(matrix), fit_ratings(matrix, anchor=2, initial_elo=500)
    assert (fixed.rating[2], fixed.error[2]) == (500, 0)
    assert fixed.rating - 500 == pytest.approx(free.rating - free.rating[2])


def test_the_rating_of_a_player_does_not_have_the_advantage_of_its_side():
    """White wins more often than its strength explains: two players of each side, 50 points apart."""
    white, black = np.array([25.0, -25.0]) + 300, np.array([25.0, -25.0])
    wins = np.zeros((4, 4))
    for i, own in enumerate(white):
        for j, other in enumerate(black):
            wins[i, 2 + j] = 4000 * expected_score(own, other)
            wins[2 + j, i] = 4000 - wins[i, 2 + j]
    matrix, groups = Payoffs(("w0", "w1", "b0", "b1"), wins + wins.T, wins), ["white", "white", "black", "black"]
    fitted = fit_ratings(matrix, groups=groups, prior_sd=WEAK)
    assert fitted.rating == pytest.approx([1225, 1175, 1225, 1175], abs=0.01)
    assert fitted.error == pytest.approx([fitted.error[0]] * 4, rel=0.1)
    assert (fitted.error < fit_ratings(matrix, prior_sd=WEAK).error).all()
    alone = fit_ratings(matrix, groups=["white", "white", "black", "other"])
    assert (alone.rating[2:].tolist(), alone.error[2:].tolist()) == ([1200, 1200], [0, 0])


def test_players_without_games_that_connect_them_have_a_large_error():
    matrix = Payoffs.count("abcd", [(0, 1, 1.0), (0, 1, 0.0), (2, 3, 1.0), (2, 3, 0.0)] * 50)
    fitted = fit_ratings(matrix, anchor=0)
    assert fitted.error[1] < 40
    assert (fitted.error[2:] > 500).all()


# --- standings ----------------------------------------------------------------------------------------------


BOTH = ("white", "black")
"""The agents of players that play both sides."""


def test_standings_are_sorted_by_rating_and_can_be_written_as_json():
    matrix = Payoffs.count(["weak", "strong", "new"], [(1, 0, 1.0)] * 9 + [(1, 0, 0.5)] * 2)
    found = standings_of(matrix, fit_ratings(matrix), [BOTH] * 3)
    assert [each.player for each in found] == ["strong", "new", "weak"]
    assert [each.games for each in found] == [11, 0, 11]
    assert [each.win_rate for each in found] == pytest.approx([10 / 11, None, 1 / 11])
    assert json.loads(json.dumps([asdict(each) for each in found]))[0]["player"] == "strong"


def test_players_of_different_sides_are_apart_and_one_that_is_alone_on_its_side_has_no_rating():
    matrix = Payoffs.count(["w0", "b", "w1"], [(0, 1, 1.0)] * 3 + [(2, 1, 1.0)] * 9 + [(2, 1, 0.0)] + [(0, 1, 0.0)])
    agents = [("white",), ("black",), ("white",)]
    found = standings_of(matrix, fit_ratings(matrix, groups=agents), agents)
    assert [each.player for each in found] == ["w1", "w0", "b"]
    assert (found[2].rating, found[2].error) == (None, None)
    assert found[2].win_rate == pytest.approx(2 / 14)
    assert sum(each.rating or 0 for each in found[:2]) == pytest.approx(2400)
    console = Console(width=80, file=StringIO())
    console.print(standings_table(found))
    rows = console.file.getvalue().split("\n")  # type: ignore[attr-defined]
    last = next(number for number, row in enumerate(rows) if row.split()[:1] == ["b"])
    assert rows[last].split()[-1] == "-"
    assert not rows[last - 1].strip(), "a gap between the sides"


def test_the_table_of_standings_shows_names_with_brackets_as_they_are():
    matrix = Payoffs.count(["runs/[bold]a", "b"], [(0, 1, 1.0)] * 3 + [(0, 1, 0.0)])
    console = Console(width=80, file=StringIO())
    console.print(standings_table(standings_of(matrix, fit_ratings(matrix), [BOTH] * 2)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "runs/[bold]a" in text
    assert "75.0%" in text
    assert "±" in text
