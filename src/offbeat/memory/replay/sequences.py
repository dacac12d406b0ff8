"""Sequences of a replay, for who remembers: rows of one column that follow one another (R2D2, Kapturowski et al. 2019).

    tickets of one column:   | burn-in: k - 2A | burn-in: k - A | ticket k: learned from | the row after
                             ^ stored state

A sequence is one column of a ticket. It begins with the state that the actor had when it began the ticket, or, with
burn-in, one of those before: from there the rows up to the sequence only move the state on, with the weights of now. As
tickets follow one another without a gap, each row is learned from equally often, with as much before it as there is.
Episodes may end, and begin, anywhere in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import FRAME_AGE, Tree
from offbeat.memory.replay.n_step import n_steps
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.store import I64, AnyReplay, Samples

STATE = "initial_state"
"""The field with what was remembered where a ticket begins."""


def check_sequences(shape: RingShape, batch_size: int, burn_in: int, n_step: int) -> None:
    """Refuse sequences that the rings cannot give.

    Raises:
        ConfigError: with the arithmetic and the remedy.
    """
    length = shape.length
    if batch_size % length:
        fewer = max(1, batch_size // length) * length
        raise ConfigError(
            f"batch_size is {batch_size} transitions, but with a core a batch has whole sequences of chunk_length = "
            f"{length}: pass --set batch_size={fewer}, or another multiple"
        )
    if burn_in % length:
        raise ConfigError(
            f"burn_in is {burn_in} env steps, but a state is stored where each ticket of chunk_length = {length} "
            f"begins: pass --set burn_in={-(-burn_in // length) * length}, or another multiple"
        )
    if n_step > length:
        raise ConfigError(
            f"n_step is {n_step}, but with a core a target sees no more than its sequence of chunk_length = {length} "
            f"env steps: pass --set n_step={length} or less, or --set chunk_length={n_step} or more"
        )
    tickets = (burn_in // length + 1) * shape.actors
    if shape.tickets < tickets:
        raise ConfigError(
            f"capacity is {shape.capacity} transitions, but a sequence of each of {shape.actors} actors, with its "
            f"burn_in, takes {burn_in} + {length} rows of {shape.columns} columns: pass "
            f"--set capacity={tickets * shape.ticket_rows} or more, or a smaller burn_in"
        )


class SequenceReplay(AnyReplay):
    """Columns of tickets, each with a transition at least; with burn-in, those with enough tickets before them."""

    def __init__(
        self,
        rings: Rings,
        *,
        batch_size: int,
        burn_in: int,
        n_step: int,
        gamma: float,
        priorities: Exponents | None = None,
    ) -> None:
        """Begin empty, at ticket 0.

        Args:
            rings: what the actors write; among their fields is `STATE`.
            batch_size: rows of all sequences in a sample.
            burn_in: rows before each sequence.
            n_step: env steps of reward in a transition; less where the episode, or the sequence, ends.
            gamma: discount per env step.
            priorities: None samples all sequences equally often.

        Raises:
            ConfigError: the rings cannot give such samples.
        """
        shape = rings.shape
        check_sequences(shape, batch_size, burn_in, n_step)
        self._sequences, self._before = batch_size // shape.length, burn_in // shape.length
        super().__init__(rings, cells=shape.columns, lead=self._before * shape.actors, priorities=priorities)
        self._gamma = gamma
        self._state = rings.per_ticket(STATE)
        steps, rows = np.arange(n_step)[:, None], np.arange(shape.length)
        self._steps = np.minimum(rows + steps, shape.length - 1)
        """[n, T]: the rows of the n steps from each row on; beyond the last one it does not matter which."""
        self._left = np.repeat(shape.length - rows, self._sequences)

    @property
    def transitions(self) -> float:
        return self._sequences * self.valid / max(1, self._drawn.count)

    def _drawable(self, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        rows = valid.reshape(-1, self._shape.length, self._shape.columns)
        flags: NDArray[np.bool_] = np.logical_or.reduce(rows, axis=1)
        return flags.reshape(-1)

    def sample(self, random: np.random.Generator) -> Samples:
        """Draw sequences from the window, with replacement: equally often or by their priorities.

        With B sequences of T rows, and L the same with those of the burn-in before, the arrays are:

        - each leaf of the observation, [L + 1, B, ...], the row that follows included;
        - resets, [L + 1, B]: the state is zero after this row;
        - `STATE`, [B, state_size]: before the first of these rows;
        - action, and what the algorithm recorded, [T, B, ...]; valid, [T, B]: the row is a transition; and of those
          that are: reward, of n steps, discounted; discount, of the value that follows (0 after a termination); next,
          the row after the last step taken, 1 to T, counted as those of the sequence;
        - with priorities weight, [B].

        Raises:
            RunFailed: there is no transition.
        """
        cells = np.zeros(self._sequences, np.int64)
        self._draw(random, cells)
        slots, columns = np.divmod(cells, self._shape.columns)
        ring, slot = slots % self._shape.actors, slots // self._shape.actors
        arrays = self._rows(self._places(ring, slot, columns))
        arrays[STATE] = self._state[ring, (slot - self._before) % self._shape.slots_per_ring, columns]
        if self._priorities:
            arrays["weight"] = self._priorities.weights(cells)
        return Samples(arrays, cells, self._tickets[slots], self._born[slots])

    def _places(self, ring: I64, slot: I64, columns: I64) -> I64:
        """Return where the rows of sequences lie, [L + 1, B]: the burn-in may be at the other end of a ring."""
        shape = self._shape
        rows = slot * shape.length + np.arange(-self._before * shape.length, shape.length + 1)[:, None]
        rows[rows < 0] += shape.rows
        places: I64 = (ring * (shape.rows + 1) + rows) * shape.columns + columns
        return places

    def _seen(self, name: str, places: I64) -> I64:
        """Return where that lies which is seen of a leaf: in stacks, several frames a row."""
        stack = self._rings.stacks.get(name)
        return places if stack is None else self._frames(places, stack)

    def _rows(self, places: I64) -> Tree:
        """Return what there is to know of the rows at places [L + 1, B]."""
        learned = places[-self._shape.length - 1 : -1]
        arrays = {
            name: rows[self._seen(name, places) if name in self.leaves else learned]
            for name, rows in self._flat.items()
            if name != FRAME_AGE
        }
        flags = [arrays.pop(name) for name in ("reward", "terminated", "truncated")]
        reward, terminated, truncated, valid = (
            array[self._steps].reshape(len(self._steps), -1) for array in (*flags, arrays["valid"])
        )
        taken = n_steps(reward, terminated, truncated, valid, self._left, self._gamma)
        shape, first = learned.shape, np.arange(self._shape.length)[:, None]
        arrays["reward"], arrays["discount"] = taken.reward.reshape(shape), taken.discount.reshape(shape)
        arrays["next"] = taken.steps.reshape(shape) + first
        arrays["resets"] = ~self._flat["valid"][places]
        arrays["resets"][-1] = False  # the row after may be half written, and nothing comes after it
        return arrays
