"""The board of the learners, as rank 0 reads it while others write."""

from __future__ import annotations

from typing import Any

import pytest

from offbeat.memory.arena import private_arena
from offbeat.runtime.learners.board import LearnersBoard, learners_board_slabs
from offbeat.runtime.learners.processes import exchanges_differ


class FinishingRow:
    """The row of `next` of learner 1, which ends its last exchange and its step just before or after a read."""

    def __init__(self, board: LearnersBoard, *, before: bool) -> None:
        self._board, self._row, self._before = board, board.next[1], before

    def __getitem__(self, index: int) -> int:
        earlier = int(self._row[index])
        self._board.gathered[1] = 5
        self._row[index] = 1
        return int(self._row[index]) if self._before else earlier


@pytest.mark.parametrize("before", [True, False])
def test_a_learner_that_finishes_while_the_board_is_read_has_made_the_same_exchanges(before):
    board = LearnersBoard(private_arena(learners_board_slabs(2)), 2)
    board.requested[0] = 1
    board.gathered[:] = [5, 4]
    rows: list[Any] = [board.next[0], FinishingRow(board, before=before)]
    board.next = rows
    assert board.finished_and_gathered() == ([False, before], [5, 5])
    assert not exchanges_differ(*board.finished_and_gathered())


@pytest.mark.parametrize(
    ("finished", "made", "differ"),
    [
        ([False, False], [5, 4], False),
        ([False, True], [5, 5], False),
        ([False, True], [4, 5], False),
        ([False, True], [5, 4], True),
        ([True, True, False], [4, 4, 5], True),
        ([True, True], [4, 5], True),
    ],
)
def test_exchanges_differ_if_a_learner_has_finished_with_fewer_than_another(finished, made, differ):
    assert exchanges_differ(finished, made) is differ
