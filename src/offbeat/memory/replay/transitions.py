"""A replay that samples single rows, each with the row after its n steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import FRAME_AGE, I64, NO_DECISION, Array
from offbeat.memory.replay.base import Replay, Samples
from offbeat.memory.replay.decisions import Decisions
from offbeat.memory.replay.n_step import n_steps
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings

_FLAGS = frozenset({"terminated", "truncated", "valid", NO_DECISION, FRAME_AGE})
"""Fields that are read for sampling but are not part of a sample."""
_NOT_COPIED = _FLAGS | {"reward"}
"""Fields that are not copied from the rings: the reward of a sample is the sum over its n steps."""


class TransitionReplay(Replay):
    """A replay whose samples are single rows.

    A subclass may override `sample` to return several samples per update, each with names of its own: take
    buffers from `new_buffers` and fill their cells as `sample` does, call `samples_of`, and join the arrays, with a
    prefix for those of each sample.
    """

    def __init__(
        self,
        rings: Rings,
        *,
        batch_size: int,
        n_step: int,
        gamma: float,
        exponents: Exponents | None = None,
        buffers: int = 2,
    ) -> None:
        """Start empty, at ticket 0.

        Args:
            rings: Rings that the actors write.
            batch_size: Number of transitions in a sample, M.
            n_step: Env steps whose rewards are summed; fewer at the end of an episode or of the window. In envs with
                rows without a decision, the number of decisions.
            gamma: Discount per env step; in envs with rows without a decision, per decision.
            exponents: Exponents of prioritized sampling; None samples all valid rows uniformly.
            buffers: Number of calls of `sample` after which the arrays of a sample are overwritten.

        Raises:
            ConfigError: the window is too small for such samples.
        """
        shape = rings.shape
        shape.check(batch_size, n_step)
        super().__init__(rings, ticket_cells=shape.ticket_rows, skipped=0, exponents=exponents)
        self._batch_size, self._n_step, self._gamma = batch_size, n_step, gamma
        self._buffer_count = buffers
        self._buffers = self.new_buffers(batch_size)
        places = np.arange(shape.actors * shape.slots_per_ring)
        ring, slot = places % shape.actors, places // shape.actors
        rows = ring * (shape.rows + 1) + slot * shape.length - places * shape.length
        self._shift: I64 = rows * shape.columns
        """[places]: position of a row in the rings, minus its cell."""

    def new_buffers(self, size: int) -> Iterator[SampleBuffers]:
        """Return an endless iterator over `buffers` buffers for this number of samples: take the next ones in each call
        of `sample`.
        """
        computed = ["discount", "weight"] if self.prioritized else ["discount"]
        return cycle([SampleBuffers(size, self._flat, self._rings, computed) for _ in range(self._buffer_count)])

    @property
    def transitions(self) -> float:
        return float(self._batch_size)

    def _can_be_sampled(self, complete: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return complete

    def sample(self, random: np.random.Generator) -> Samples:
        buffers = next(self._buffers)
        self._sample_cells(random, buffers.samples.cells)
        return self.samples_of(buffers)

    def samples_of(self, buffers: SampleBuffers) -> Samples:
        """Return the samples of the cells that were written to `buffers.samples.cells`. They are in the buffers."""
        cells, tickets, behavior_updates = buffers.samples[1:]
        np.floor_divide(cells, self._shape.ticket_rows, out=buffers.places)
        self._tickets.take(buffers.places, 0, tickets, "clip")
        self._behavior_updates.take(buffers.places, 0, behavior_updates, "clip")
        self._shift.take(buffers.places, 0, buffers.positions, "clip")
        buffers.positions += cells
        if self._decisions:
            self._take_decisions(buffers, self._decisions)
        elif self._n_step == 1:
            self._take_one_step(buffers)
        else:
            self._take_n_steps(buffers)
        buffers.copy_rows()
        for name, stack in self._rings.stacks.items():
            for positions, prefix in ((buffers.positions, ""), (buffers.next_positions, "next/")):
                self._flat[name].take(
                    self._rings.frames(positions, stack), 0, buffers.samples.arrays[prefix + name], "clip"
                )
        if self._priorities:
            buffers.samples.arrays["weight"][:] = self._priorities.weights(cells)
        return buffers.samples

    def _take_one_step(self, buffers: SampleBuffers) -> None:
        """Write reward, discount and the positions of the next observations, for one step."""
        arrays = buffers.samples.arrays
        self._flat["reward"].take(buffers.positions, 0, arrays["reward"], "clip")
        self._flat["terminated"].take(buffers.positions, 0, buffers.flags, "clip")
        np.logical_not(buffers.flags, out=buffers.flags)
        np.multiply(buffers.flags, np.float32(self._gamma), out=arrays["discount"])
        np.add(buffers.positions, self._shape.columns, out=buffers.next_positions)

    def _take_decisions(self, buffers: SampleBuffers, decisions: Decisions) -> None:
        """Write reward, discount and the positions of the next observations, for steps from decision to decision."""
        steps = decisions.steps(buffers.positions, self._n_step, self._gamma)
        buffers.samples.arrays["reward"][:] = steps.reward
        buffers.samples.arrays["discount"][:] = steps.discount
        np.add(steps.last, self._shape.columns, out=buffers.next_positions)

    def _take_n_steps(self, buffers: SampleBuffers) -> None:
        """Write reward, discount and the positions of the next observations, for n steps.

        The steps stop at the last row of the actor's newest ticket in the window.
        """
        shape, positions = self._shape, buffers.positions
        _, cells, tickets, _ = buffers.samples
        steps = np.arange(self._n_step)[:, None]
        rows = self._rings.later(positions, steps)  # [n, M]
        newer_tickets = (self.next_ticket - 1 - tickets) // shape.actors  # of the same actor
        left = (newer_tickets + 1) * shape.length - cells // shape.columns % shape.length
        names = ("reward", "terminated", "truncated", "valid")
        reward, terminated, truncated, valid = (self._flat[name].take(rows, 0, mode="clip") for name in names)
        sums = n_steps(reward, terminated, truncated, valid, left, self._gamma)
        buffers.samples.arrays["reward"][:] = sums.reward
        buffers.samples.arrays["discount"][:] = sums.discount
        np.add(rows[sums.steps - 1, np.arange(len(positions))], shape.columns, out=buffers.next_positions)


class SampleBuffers:
    """The arrays of one sample, allocated once."""

    def __init__(self, size: int, flat: Mapping[str, Array], rings: Rings, computed: Sequence[str]) -> None:
        self.places, self.positions, self.next_positions = (np.zeros(size, np.int64) for _ in range(3))
        self.flags = np.zeros(size, np.bool_)
        stacked = {name: (stack,) for name, stack in rings.stacks.items()}
        arrays = {
            name: np.zeros((size, *stacked.get(name, ()), *rows.shape[1:]), rows.dtype) for name, rows in flat.items()
        }
        nexts = {f"next/{name}": np.zeros_like(arrays[name]) for name in rings.leaves}
        self._copies = [(flat[name], arrays[name]) for name in flat if name not in _NOT_COPIED | stacked.keys()]
        self._next_copies = [(flat[name], nexts[f"next/{name}"]) for name in rings.leaves if name not in stacked]
        returned = {name: array for name, array in arrays.items() if name not in _FLAGS}
        cells, tickets, behavior_updates = (np.zeros(size, np.int64) for _ in range(3))
        others = {name: np.zeros(size, np.float32) for name in computed}
        self.samples = Samples(returned | nexts | others, cells, tickets, behavior_updates)

    def copy_rows(self) -> None:
        """Copy the fields of the sampled rows, and of the rows after their last steps, from the rings.

        Stacked leaves are not copied here: the rings contain single frames.
        """
        for rows, array in self._copies:
            # All indices are in range: "clip" only avoids a temporary buffer.
            rows.take(self.positions, 0, array, "clip")
        for rows, array in self._next_copies:
            rows.take(self.next_positions, 0, array, "clip")
