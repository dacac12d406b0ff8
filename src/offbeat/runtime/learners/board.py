"""The board of the learners of a run: the learning steps that rank 0 requests, and the rows that learners exchange."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slab
from offbeat.core.types import Tree
from offbeat.runtime.board import LINE, Board, board_slabs

BUFFER_BYTES = 8 << 20
"""Size of each of the two buffers for rows. More rows are exchanged in several parts. Memory that is not written is not
taken."""


def learners_board_slabs(learners: int) -> list[Slab]:
    """Return the arrays in the arena of this number of learners."""
    return [
        *board_slabs(learners),
        ("board/requested", (LINE,), "int64"),
        ("board/progress", (LINE,), "float64"),
        ("board/gathered", (learners, LINE), "int64"),
        ("board/sizes", (2, learners, LINE), "int64"),
        ("rows", (2, BUFFER_BYTES), "uint8"),
    ]


class LearnersBoard(Board):
    """The board of several learners. Rank 0 writes `requested`, `progress` and `closed`."""

    def __init__(self, arrays: Tree, learners: int) -> None:
        """Make a board on the arrays of an arena with `learners_board_slabs`."""
        super().__init__(arrays, learners)
        self.requested = arrays["board/requested"]
        """Number of learning steps that may be made: steps 0 .. requested-1."""
        self.progress = arrays["board/progress"]
        """Training progress in the last requested learning step."""
        self.gathered = arrays["board/gathered"][:, 0]
        """For each learner: the number of exchanges to which it has contributed its rows, or is about to."""
        self.sizes = arrays["board/sizes"][:, :, 0]
        """[2, learners]: bytes of a shard's rows in the last two exchanges, as each learner has written them."""
        self.rows: NDArray[np.uint8] = arrays["rows"]
        """[2, BUFFER_BYTES]: the rows of all shards in the last two exchanges."""

    def finished_and_gathered(self) -> tuple[list[bool], list[int]]:
        """Return for each learner whether it has finished the requested learning steps, and then its `gathered`.

        The order matters: the number of a learner that has finished does not change until the next request. Read first,
        it could be the number before its last exchange.
        """
        finished = [bool(row[0] >= self.requested[0]) for row in self.next]
        return finished, self.gathered.tolist()
