"""Seatings: which of two players plays each side of a game."""

from __future__ import annotations

from collections.abc import Callable

Seating = tuple[int, ...]
"""For each side, 0 for the first player or 1 for the second one."""


def seatings(sides: int, can_play: Callable[[int, int], bool] = lambda player, side: True) -> tuple[Seating, ...]:  # noqa: ARG005
    """Return the seatings of two players in which one has one side, and the other one all other sides.

    With two sides these are both orders. Each player has each side alone once, so no side is an advantage.

    Args:
        sides: Number of sides, at least 2.
        can_play: Whether player 0 or 1 can play a side. In a game whose sides have different policies, a snapshot of
            one of them can only play its own sides.
    """
    alone = [
        tuple(player if side == own else 1 - player for side in range(sides))
        for player in (0, 1)
        for own in range(sides)
    ]
    return tuple(
        seating
        for seating in dict.fromkeys(alone)
        if all(can_play(player, side) for side, player in enumerate(seating))
    )
