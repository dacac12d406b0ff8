"""A replay that samples sequences of one column, for recurrent policies (R2D2, Kapturowski et al. 2019).

    tickets of one column:   | burn-in: k - 2A | burn-in: k - A | ticket k: the sequence | next row
                             ^ stored state

A sequence is one column of a ticket k; with A actors, the actor's previous ticket is k - A. The network starts with the
recurrent state that the actor had at the start of the ticket. With burn-in it starts at an earlier ticket: the rows
before the sequence only update the state, with the current weights. Each row is in exactly one sequence, so uniform
sampling selects each row equally often. Episodes may end and start anywhere in a sequence.

In envs with rows without a decision, the last decision of a sequence may be followed by a wait that is longer than the
sequence. All sequences of a sample then have as many more rows as the longest of these waits, up to the row with the
next observation of its target. Decisions that are still open are not transitions of the sample yet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.types import FRAME_AGE, I64, INITIAL_STATE, NO_DECISION, Tree
from offbeat.memory.replay.base import Replay, Samples
from offbeat.memory.replay.decisions import Decisions
from offbeat.memory.replay.n_step import n_steps
from offbeat.memory.replay.priorities import Exponents
from offbeat.memory.replay.rings import Rings, RingShape

_NOT_COPIED = frozenset({"reward", "terminated", "truncated", "valid", NO_DECISION, FRAME_AGE})
"""Fields that are not copied from the rings: targets are computed from them."""


def check_sequences(shape: RingShape, batch_size: int, burn_in: int, n_step: int) -> None:
    """Raise ConfigError if the rings are too small for such sequences, or if sizes are not multiples of a ticket."""
    length = shape.length
    if batch_size % length:
        fewer = max(1, batch_size // length) * length
        raise ConfigError(
            f"batch_size is {batch_size} transitions, but with a core a batch has whole sequences of chunk_length = "
            f"{length}: pass --set batch_size={fewer}, or another multiple"
        )
    if burn_in % length:
        raise ConfigError(
            f"burn_in is {burn_in} env steps, but it must be a multiple of chunk_length = {length}, because the core's "
            f"state is stored only at the start of each ticket: pass --set burn_in={-(-burn_in // length) * length}, "
            "or another multiple"
        )
    if n_step > length:
        raise ConfigError(
            f"n_step is {n_step}, but with a core it can be at most chunk_length = {length}, because a target ends "
            f"with its sequence: pass --set n_step={length} or less, or --set chunk_length={n_step} or more"
        )
    tickets = (burn_in // length + 1) * shape.actors
    if shape.tickets < tickets:
        raise ConfigError(
            f"capacity is {shape.capacity} transitions, but a sequence of each of {shape.actors} actors, with its "
            f"burn_in, takes {burn_in} + {length} rows of {shape.columns} columns: pass "
            f"--set capacity={tickets * shape.ticket_rows} or more, or a smaller burn_in"
        )


class SequenceReplay(Replay):
    """A replay whose samples are single columns of tickets, if they have at least one transition.

    With burn-in, a ticket is sampled only if the window has enough tickets before it.
    """

    def __init__(
        self,
        rings: Rings,
        *,
        batch_size: int,
        burn_in: int,
        n_step: int,
        gamma: float,
        exponents: Exponents | None = None,
    ) -> None:
        """Start empty, at ticket 0.

        Args:
            rings: Rings that the actors write, with the field `INITIAL_STATE`.
            batch_size: Number of rows of all sequences in a sample.
            burn_in: Number of rows before each sequence.
            n_step: Env steps whose rewards are summed; fewer at the end of an episode or of the sequence. In envs with
                rows without a decision, the number of decisions.
            gamma: Discount per env step; in envs with rows without a decision, per decision.
            exponents: Exponents of prioritized sampling; None samples all sequences uniformly.

        Raises:
            ConfigError: the rings are too small for such samples.
        """
        shape = rings.shape
        check_sequences(shape, batch_size, burn_in, n_step)
        self._sequences, self._burn_in_tickets = batch_size // shape.length, burn_in // shape.length
        super().__init__(
            rings, ticket_cells=shape.columns, skipped=self._burn_in_tickets * shape.actors, exponents=exponents
        )
        self._gamma = gamma
        self._state = rings.per_ticket(INITIAL_STATE)
        steps, rows = np.arange(n_step)[:, None], np.arange(shape.length)
        self._steps = np.minimum(rows + steps, shape.length - 1)
        """[n, T]: the rows of the n steps from each row on, clipped to the last row."""
        self._left = np.repeat(shape.length - rows, self._sequences)

    @property
    def transitions(self) -> float:
        return self._sequences * self.size / max(1, self._sampler.count)

    def _can_be_sampled(self, complete: NDArray[np.bool_]) -> NDArray[np.bool_]:
        rows = complete.reshape(-1, self._shape.length, self._shape.columns)
        flags: NDArray[np.bool_] = np.logical_or.reduce(rows, axis=1)
        return flags.reshape(-1)

    def sample(self, random: np.random.Generator) -> Samples:
        """Sample sequences from the window with replacement, uniformly or by priorities.

        With B sequences of T rows, which are L rows with the burn-in, the arrays are:

        - each leaf of the observation, [L + 1, B, ...], with the row after the sequence;
        - resets, [L + 1, B]: whether the state is reset to zero after this row;
        - `INITIAL_STATE`, [B, state_size]: the state before the first of these L + 1 rows;
        - action, and the fields that the algorithm recorded, [T, B, ...];
        - valid, [T, B]: whether the row is a transition; reward, discount and next are defined only for transitions;
        - reward, [T, B]: discounted sum over the n steps;
        - discount, [T, B]: factor of the next value, 0 after a termination;
        - next, [T, B]: index of the row after the last step, 1 to T;
        - weight, [B]: importance weight, only with priorities.

        In envs with rows without a decision, observations and resets may have more rows, up to the largest `next`.
        Sequences that need fewer rows repeat their last one.

        Raises:
            RunFailed: the window has no transition.
        """
        cells = np.zeros(self._sequences, np.int64)
        self._sample_cells(random, cells)
        places, columns = np.divmod(cells, self._shape.columns)
        ring, slot = places % self._shape.actors, places // self._shape.actors
        arrays = self._arrays(self._positions(ring, slot, columns))
        arrays[INITIAL_STATE] = self._state[ring, (slot - self._burn_in_tickets) % self._shape.slots_per_ring, columns]
        if self._priorities:
            arrays["weight"] = self._priorities.weights(cells)
        return Samples(arrays, cells, self._tickets[places], self._behavior_updates[places])

    def _positions(self, ring: I64, slot: I64, columns: I64) -> I64:
        """Return the positions of the rows of sequences, [L + 1, B]. The burn-in may be at the other end of a ring."""
        shape = self._shape
        rows = slot * shape.length + np.arange(-self._burn_in_tickets * shape.length, shape.length + 1)[:, None]
        rows[rows < 0] += shape.rows
        positions: I64 = (ring * (shape.rows + 1) + rows) * shape.columns + columns
        return positions

    def _frames(self, name: str, positions: I64) -> I64:
        """Return the positions of a leaf's frames; a stacked leaf has several frames per row."""
        stack = self._rings.stacks.get(name)
        return positions if stack is None else self._rings.frames(positions, stack)

    def _arrays(self, positions: I64) -> Tree:
        """Return the arrays of sequences at positions [L + 1, B]."""
        learned = positions[-self._shape.length - 1 : -1]
        if self._decisions:
            targets = self._targets_of_decisions(self._decisions, learned)
            positions = self._with_waits(positions, targets["next"])
        else:
            targets = self._targets(learned)
        arrays = {
            name: rows[self._frames(name, positions) if name in self.leaves else learned]
            for name, rows in self._flat.items()
            if name not in _NOT_COPIED
        }
        return arrays | targets | {"resets": self._resets(positions)}

    def _targets(self, learned: I64) -> Tree:
        """Return valid, reward, discount and next of rows at positions [T, B]."""
        names, shape = ("reward", "terminated", "truncated", "valid"), learned.shape
        arrays = [self._flat[name][learned] for name in names]
        reward, terminated, truncated, valid = (array[self._steps].reshape(len(self._steps), -1) for array in arrays)
        sums = n_steps(reward, terminated, truncated, valid, self._left, self._gamma)
        return {
            "valid": arrays[-1],
            "reward": sums.reward.reshape(shape),
            "discount": sums.discount.reshape(shape),
            "next": sums.steps.reshape(shape) + np.arange(shape[0])[:, None],
        }

    def _targets_of_decisions(self, decisions: Decisions, learned: I64) -> Tree:
        """Return the same in envs with rows without a decision; `next` may be after the sequence."""
        valid = self._flat["valid"][learned] & ~decisions.is_open(learned)
        left = self._left.reshape(learned.shape)[valid]
        steps = decisions.steps(learned[valid], len(self._steps), self._gamma, left)
        reward, discount = np.zeros((2, *learned.shape), np.float32)
        reward[valid], discount[valid] = steps.reward, steps.discount
        following = np.repeat(np.arange(1, len(learned) + 1)[:, None], learned.shape[1], axis=1)
        following[valid] += steps.rows - 1
        return {"valid": valid, "reward": reward, "discount": discount, "next": following}

    def _with_waits(self, positions: I64, following: I64) -> I64:
        """Add rows to positions [L + 1, B], so that each sequence has the row of its largest `next`, `following`."""
        shape = self._shape
        last = following.max(axis=0) - shape.length  # [B], number of rows after the row that follows the sequence
        added = np.minimum(np.arange(1, last.max(initial=0) + 1)[:, None], last)
        after = positions[-1]
        # Other than in `Rings.later`, the row that follows a sequence may be the additional last row of a ring.
        wrapped = after // shape.columns % (shape.rows + 1) + added > shape.rows
        return np.concatenate((positions, after + (added - wrapped * shape.rows) * shape.columns))

    def _resets(self, positions: I64) -> NDArray[np.bool_]:
        """Return after which rows the state is reset, for positions [L + 1, B] or more rows."""
        in_episode = self._flat["valid"][positions]
        if self._decisions:
            in_episode |= self._flat[NO_DECISION][positions]
        resets: NDArray[np.bool_] = ~in_episode
        # Nothing is reset within a step, and an actor may be writing the flags of the last row now.
        resets[(self._burn_in_tickets + 1) * self._shape.length :] = False
        return resets
