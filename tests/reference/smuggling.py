"""The game of `Smuggling`, solved exactly: best responses to mixtures of strategies, and the value of the game.

All returns are the smuggler's: those of the patrol are the opposite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np
from tests.reference.kuhn_poker import softmax

from offbeat.core.types import F64
from offbeat.envs.testing.smuggling import FINE, FOG, FOUND_IN_FOG, GAIN, OUT, SMUGGLER, STAY, WAIT, Smuggling
from offbeat.models.acting import ActingPolicy

WEATHER = np.array([1 - FOG, FOG])
"""Probabilities of clear weather and of fog."""
FOUND = np.array([1.0, FOUND_IN_FOG])
"""Probability by weather that a patrol finds a load."""
TRIP = np.array([[gain + np.zeros(2), gain - FOUND * (gain + fine)] for gain, fine in zip(GAIN, FINE, strict=True)])
"""[load, patrol, weather]: expected return of a trip."""


# --- best responses -----------------------------------------------------------------------------------------


def against_smugglers(strategies: F64, weights: Sequence[float], nights: int = 2, patrols: int = 1) -> float:
    """Return the expected return of a mixture of smugglers against the patrol that is best against it.

    Args:
        strategies: [K, nights, patrols + 1, weather, 3]: probabilities of the actions of each of K smugglers; the index
            of nights is the number of nights that are left - 1.
        weights: [K]: probability of each smuggler; one is drawn for a whole game.
        nights: Number of nights.
        patrols: How often the patrol can go out.
    """

    def rest(left: int, ready: int, still_here: F64) -> float:
        """`still_here`: [K], probability that this smuggler was drawn and has waited so far."""
        if left == 0:
            return 0.0
        acts = np.einsum("k,kwa,w->kaw", still_here, strategies[:, left - 1, ready], WEATHER)
        waited = acts[:, WAIT].sum(axis=1)
        out = [STAY, OUT] if ready else [STAY]
        return min(
            (acts.sum(axis=0) * TRIP[:, patrol]).sum() + rest(left - 1, ready - patrol, waited) for patrol in out
        )

    return float(rest(nights, patrols, _shares(weights)))


def against_patrols(strategies: F64, weights: Sequence[float], nights: int = 2, patrols: int = 1) -> float:
    """Return the expected return of the smuggler that is best against a mixture of patrols.

    Args:
        strategies: [K, nights, patrols + 1, 2]: probabilities of the actions of each of K patrols.
        weights: As for `against_smugglers`.
        nights: As for `against_smugglers`.
        patrols: As for `against_smugglers`.
    """

    def rest(left: int, ready: int, agreeing: F64) -> float:
        """`agreeing`: [K], probability that this patrol was drawn and has done what was seen so far."""
        if left == 0:
            return 0.0
        by_patrol = agreeing[:, None] * (strategies[:, left - 1, ready] if ready else [1.0, 0.0])  # [K, 2]
        best = np.einsum("kp,apw->aw", by_patrol, TRIP)
        best[WAIT] = sum(rest(left - 1, ready - p, by_patrol[:, p]) for p in ([STAY, OUT] if ready else [STAY]))
        return float(best.max(axis=0) @ WEATHER)

    return rest(nights, patrols, _shares(weights))


def _shares(weights: Sequence[float]) -> F64:
    given = np.asarray(weights, np.float64)
    shares: F64 = given / given.sum()
    return shares


def expected_return(smuggler: F64, patrol: F64, nights: int = 2, patrols: int = 1) -> float:
    """Return the smuggler's expected return, for two strategies without the axis of K."""

    def rest(left: int, ready: int) -> float:
        if left == 0:
            return 0.0
        out = patrol[left - 1, ready] if ready else np.array([1.0, 0.0])
        acts = smuggler[left - 1, ready] * WEATHER[:, None]  # [weather, 3]
        waited = acts[:, WAIT].sum() * sum(out[p] * rest(left - 1, ready - p) for p in (STAY, OUT) if out[p])
        return float(np.einsum("wa,p,apw->", acts, out, TRIP) + waited)

    return rest(nights, patrols)


# --- the value of the game ----------------------------------------------------------------------------------


@cache
def value(nights: int = 2, patrols: int = 1) -> float:
    """Return the smuggler's expected return if both sides play an equilibrium.

    The weather of a night says nothing about the next one, so the value of a night follows from those of the next
    night. The patrol goes out with the probability q that makes the best return of the smuggler lowest. This return is
    convex and piecewise linear in q, so its lowest point is where two actions of the smuggler are equally good, or at 0
    or 1.
    """
    if nights == 0:
        return 0.0
    trips = TRIP.copy()
    trips[WAIT] = [[value(nights - 1, patrols)] * 2, [value(nights - 1, max(patrols - 1, 0))] * 2]
    slopes = trips[:, OUT] - trips[:, STAY]  # [action, weather]
    lowest = [0.0, 1.0] if patrols else [0.0]
    for weather in range(2):
        for one, other in combinations(range(3), 2):
            change = slopes[one, weather] - slopes[other, weather]
            if change and patrols:
                lowest.append((trips[other, STAY, weather] - trips[one, STAY, weather]) / change)
    best = [float((trips[:, STAY] + q * slopes).max(axis=0) @ WEATHER) for q in lowest if 0 <= q <= 1]
    return min(best)


# --- policies -----------------------------------------------------------------------------------------------


def strategy_of(policy: ActingPolicy, side: str, nights: int = 2, patrols: int = 1) -> F64:
    """Return the probabilities of all actions of a policy, as `against_smugglers` and `against_patrols` expect them."""
    kinds = range(2) if side == SMUGGLER else range(1)
    world = Smuggling(nights, patrols)
    rows = []
    for left in range(1, nights + 1):
        for ready in range(patrols + 1):
            for fog in kinds:
                world.restore({"nights": left, "patrols": ready, "fog": bool(fog), "over": False})
                rows.append(world.observations()[side])
    shares = softmax(policy.parameters({"observation": np.array(rows)}).astype(np.float64))
    shape = (nights, patrols + 1, 2, 3) if side == SMUGGLER else (nights, patrols + 1, 2)
    return shares.reshape(shape)
