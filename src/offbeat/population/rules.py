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

    def donor_of(self, member: int, scores: Sequence[float], draw: float) -> int | None:
        """Return the member whose weights a member copies; None if it copies none.

        A member that has failed copies one of the best in any case, unless all have failed.

        Args:
            member: the member that decides.
            scores: the score of each member of one generation, or `FAILED`; higher is better.
            draw: a uniform random number in [0, 1), which selects one of the possible donors.
        """
        ranked, failed = ranking(scores), scores[member] == FAILED
        if not failed and member not in ranked[len(scores) - _count(self.replace_fraction, len(scores)) :]:
            return None
        spread = _spread(scores)
        best = ranked[: _count(self.donor_fraction, len(scores))]
        donors = [donor for donor in best if self._is_ahead(scores[donor], scores[member], spread)]
        return donors[int(draw * len(donors))] if donors else None

    def _is_ahead(self, donor: float, own: float, spread: float) -> bool:
        if own == FAILED:
            return donor > own
        size = max(abs(donor), abs(own))
        return donor - own > max(self.gap_absolute, self.gap_relative * size, self.gap_std * spread)


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


def may_decide(generation: int, lag: int, start: int, copied: Sequence[int]) -> bool:
    """Whether a member may copy another one at the end of a generation.

    The scores are of generation `generation - lag`. If the member has copied since then, its score is not that of its
    present weights: it would be replaced again for a fault that it no longer has.

    Args:
        generation: the generation that the member has finished.
        lag: generations between the scores and the decision.
        start: the first generation whose scores may decide.
        copied: the generations at whose ends the member has copied.
    """
    scored = generation - lag
    return scored >= max(start, 0) and all(end < scored for end in copied)
