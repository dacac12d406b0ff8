"""The rules by which a member of a population copies another one. They are pure: numbers in, a decision out.

The rule is truncation selection: only a member among the worst copies, and only one of the best (Jaderberg et al. 2017,
arXiv:1711.09846). The best must be ahead by a gap, so that noise does not decide: an absolute gap, a relative one, and
one in standard deviations of the scores. The last two are the rule of DexPBT (Petrenko et al. 2023, arXiv:2305.12127).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import Annotated

from offbeat.core.fields import Bound, NonNegative

FAILED = -math.inf
"""In place of the score of a member that has failed in a generation."""
UpToHalf = Annotated[float, Bound(above=0, high=0.5)]
"""A fraction of the members: more than 0, at most a half."""
TRIMMED = 0.2
"""Fraction of the scores, the worst, that the standard deviation leaves out: one very bad member would make it so large
that no gap exceeds it."""


@dataclass(frozen=True)
class ReplaceRule:
    """Which members copy others. All three gaps must be exceeded."""

    replace_fraction: UpToHalf = 0.25
    """Fraction of members, those with the lowest scores, that may be replaced; at least one member."""
    donor_fraction: UpToHalf = 0.25
    """Fraction of members, those with the highest scores, that may be copied; at least one member."""
    gap_absolute: NonNegative = 0.0
    """The donor's score must be higher by more than this, in units of the objective."""
    gap_relative: NonNegative = 0.05
    """The same, as a fraction of the larger absolute value of the two scores. It is right for negative scores too."""
    gap_std: NonNegative = 0.5
    """The same, in standard deviations of the members' scores, without the worst 20 %."""


def donor_of(rule: ReplaceRule, member: int, scores: Sequence[float], draw: float) -> int | None:
    """Return the member whose weights a member copies; None if it copies none.

    A member that has failed copies one of the best in any case, unless all have failed.

    Args:
        rule: which members copy others.
        member: the member that decides.
        scores: the score of each member of one generation, or `FAILED`; higher is better.
        draw: a uniform random number in [0, 1), which selects one of the possible donors.
    """
    ranked, failed = ranking(scores), scores[member] == FAILED
    if not failed and member not in ranked[len(scores) - _count(rule.replace_fraction, len(scores)) :]:
        return None
    spread = _spread(scores)
    best = ranked[: _count(rule.donor_fraction, len(scores))]
    donors = [donor for donor in best if _is_ahead(rule, scores[donor], scores[member], spread)]
    return donors[int(draw * len(donors))] if donors else None


def _is_ahead(rule: ReplaceRule, donor: float, own: float, spread: float) -> bool:
    if own == FAILED:
        return donor > own
    size = max(abs(donor), abs(own))
    return donor - own > max(rule.gap_absolute, rule.gap_relative * size, rule.gap_std * spread)


def ranking(scores: Sequence[float]) -> list[int]:
    """Return the members from the best to the worst; of equal ones, the lower number first."""
    return sorted(range(len(scores)), key=lambda member: (-scores[member], member))


def _count(fraction: float, members: int) -> int:
    """Return a fraction of the members: at least one, at most half of them, so that no donor is replaced."""
    return min(members // 2, max(1, int(fraction * members + 1e-9)))


def _spread(scores: Sequence[float]) -> float:
    """Return the standard deviation of the scores without the worst ones, those of failed members first."""
    known = [score for score in scores if score != FAILED]
    kept = sorted(known)[max(0, int(TRIMMED * len(scores)) - (len(scores) - len(known))) :]
    return pstdev(kept) if kept else 0.0
