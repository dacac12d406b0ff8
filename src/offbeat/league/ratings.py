"""Ratings on Elo's scale: sequential updates during training, and a fit to all results.

The expected score of a player is 1 / (1 + 10^((other - own) / 400)): 100 points more mean a score of 0.64.

Sequential updates (Elo 1978, "The Rating of Chessplayers") are cheap and follow a changing policy. The fit is the
Bradley-Terry model (Bradley and Terry 1952, "Rank Analysis of Incomplete Block Designs: I"), with a draw as half a win.
It does not depend on the order of the games and has standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from offbeat.core.types import F64
from offbeat.league.payoffs import Payoffs

POINTS = 400 / math.log(10)
"""Elo points per unit of the logistic function."""
PRIOR_SD = 1000.0
"""Standard deviation of the prior of each rating, in points. It is weak: with 5 wins in 100 games it changes a rating
by less than a point. Without it, a player who has won all games would have an infinite rating."""
TOLERANCE, MOST_STEPS = 1e-8, 200
"""Newton's method ends after a smaller step, or after this many."""
ROUNDING = 1e-12
"""Relative decrease of the log posterior that can be an error of rounding."""


def expected_score(rating: float, other: float) -> float:
    """Return the expected score against another player, from 0 to 1."""
    return 0.5 * (1 + math.tanh((rating - other) / (2 * POINTS)))


def updated_elo(rating: float, other: float, score: float, k_factor: float) -> tuple[float, float]:
    """Return the ratings of both players after a game. Their sum does not change.

    Args:
        rating: Rating of the first player.
        other: Rating of the second player.
        score: Score of the first player: 1, 0.5 or 0.
        k_factor: Largest change, in points.
    """
    change = k_factor * (score - expected_score(rating, other))
    return rating + change, other - change


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of P players that explain their results best."""

    rating: F64
    """[P], in points."""
    error: F64
    """[P]: standard error of the difference to the anchor or mean, in points. It is large for a player with few games,
    or without games that connect it to the others."""


def fit_ratings(
    payoffs: Payoffs,
    *,
    initial_elo: float = 1200.0,
    anchor: int | None = None,
    groups: Sequence[Hashable] = (),
    prior_sd: float = PRIOR_SD,
) -> Ratings:
    """Return the ratings with the largest posterior probability: a Bradley-Terry model with a normal prior.

    They always exist and are unique. The standard errors come from the second derivatives at the maximum.

    Args:
        payoffs: Results of the games.
        initial_elo: Rating of the anchor.
        anchor: Index of the player whose rating is fixed; None fixes the mean of all players. Fix a player to compare
            ratings of different times.
        groups: Group of each player. Without an anchor, the mean of each group is fixed instead: for players of
            different sides, whose ratings cannot be compared, because they would have the advantage of the side.
        prior_sd: Standard deviation of the prior, in points.
    """
    precision = (POINTS / prior_sd) ** 2
    strength = _maximum(payoffs, precision)
    count = len(payoffs.players)
    reference = _means(groups or [None] * count) if anchor is None else np.eye(count)[anchor]
    contrast = np.eye(count) - reference
    covariance = contrast @ np.linalg.inv(_curvature(payoffs, strength, precision)) @ contrast.T
    error = np.sqrt(np.clip(np.diagonal(covariance), 0, None))
    return Ratings(initial_elo + POINTS * (contrast @ strength), POINTS * error)


def _means(groups: Sequence[Hashable]) -> F64:
    """Return the matrix [P, P] that replaces each value by the mean of its group."""
    same: F64 = np.array([[group == other for other in groups] for group in groups], np.float64)
    means: F64 = same.reshape(len(groups), -1) / same.sum(axis=-1, keepdims=True)
    return means


def _maximum(payoffs: Payoffs, precision: float) -> F64:
    """Return the strengths [P] with the largest log posterior, in units of the logistic function."""
    strength = np.zeros(len(payoffs.players))
    best = _log_posterior(payoffs, strength, precision)
    for _ in range(MOST_STEPS):
        step = np.linalg.solve(_curvature(payoffs, strength, precision), _gradient(payoffs, strength, precision))
        allowed = best - ROUNDING * (1 + abs(best))
        while (value := _log_posterior(payoffs, strength + step, precision)) < allowed:
            step /= 2  # a full step can be too long far from the maximum
        strength, best = strength + step, value
        if abs(step).max(initial=0.0) < TOLERANCE:
            break
    return strength


def _expected(strength: F64) -> F64:
    """Return the expected score of i against j, [P, P]."""
    return 0.5 * (1 + np.tanh((strength[:, None] - strength) / 2))


def _log_posterior(payoffs: Payoffs, strength: F64, precision: float) -> float:
    log_likelihood = -(payoffs.wins * np.logaddexp(0, strength - strength[:, None])).sum()
    return float(log_likelihood - precision / 2 * (strength**2).sum())


def _gradient(payoffs: Payoffs, strength: F64, precision: float) -> F64:
    surplus: F64 = (payoffs.wins - payoffs.games * _expected(strength)).sum(axis=1)
    return surplus - precision * strength


def _curvature(payoffs: Payoffs, strength: F64, precision: float) -> F64:
    """Return the negative second derivatives of the log posterior, [P, P]. They are positive definite."""
    expected = _expected(strength)
    information = payoffs.games * expected * expected.T
    return np.diag(information.sum(axis=1) + precision) - information
