"""Seatings: which of two players plays each side of a game."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Seating = tuple[int, ...]
"""For each side, 0 for the first player or 1 for the second one."""


def seatings(can_play: Sequence[Sequence[bool]]) -> tuple[Seating, ...]:
    """Return the seatings of two players in which one has one side, and the other one all other sides.

    With two sides these are both orders. Each player has each side alone once, so no side is an advantage.

    Args:
        can_play: For player 0 and player 1, whether it can play each side. In a game whose sides have different
            policies, a snapshot of one of them can only play its own sides.
    """
    sides = range(len(can_play[0]))
    alone = [tuple(player if side == own else 1 - player for side in sides) for player in (0, 1) for own in sides]
    return tuple(seating for seating in dict.fromkeys(alone) if all(can_play[seating[side]][side] for side in sides))


def can_meet(agents: Collection[Sequence[str]], sides: Sequence[Sequence[str]]) -> bool:
    """Whether versions of the policies of one run can play against each other: one must play all sides but one.

    Args:
        agents: The agents of each policy.
        sides: The agents of each side.
    """
    return any(sum(set(side) <= set(own) for side in sides) >= len(sides) - 1 for own in agents)
