"""Rows of the matrix's envs tell whether they are whole: what was seen, done and earned belongs together.

A row that was read while it was written, written to the wrong place or kept from before a cut would not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import FRAME_AGE, Array, Tree
from offbeat.envs.testing.pixels import CELLS
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.sequences import SequenceReplay
from offbeat.memory.replay.tasks import CONTEXT, TaskReplay
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.unrolls import Unrolls
from offbeat.models.acting import make_policy
from offbeat.models.spec import PolicySpec
from offbeat.workers.learner import Learned, UnrollLearner
from offbeat.workers.unroll_feed import UnrollFeed


class Rows(NamedTuple):
    """M transitions."""

    here: Tree
    """What was observed, masks included, [M, ...]."""
    action: Array
    reward: Array
    there: Tree
    """What was observed next."""


# --- what each env's rows must be -------------------------------------------------------------------------------


def _cart_pole(rows: Rows) -> list[Array]:
    here, there = rows.here["observation"], rows.there["observation"]
    return [_close(there[:, [0, 2]], here[:, [0, 2]] + 0.02 * here[:, [1, 3]]), rows.reward == 1]  # Euler's steps


def _pendulum(rows: Rows) -> list[Array]:
    here, there = rows.here["observation"], rows.there["observation"]
    angle, after = (np.arctan2(seen[:, 1], seen[:, 0]) for seen in (here, there))
    turned = (after - angle - 0.05 * there[:, 2] + np.pi) % (2 * np.pi) - np.pi
    costs = angle**2 + 0.1 * here[:, 2] ** 2  # and at most 0.004 for the action
    return [_close(turned, 0, 1e-4), _close(-rows.reward, costs, 5e-3)]


def _pixels(rows: Rows) -> list[Array]:
    return [rows.reward == (rows.action == _side(rows.here["observation"]))]


def _goal(rows: Rows) -> list[Array]:
    goal = rows.here["observation/goal"][:, 0] > 0
    return [rows.reward == (rows.action == (_side(rows.here["observation/image"]) == goal))]


def _side(image: Array) -> NDArray[np.int64]:
    """Return on which half the bright square is."""
    column = (image == 255).any(axis=1).argmax(axis=1)
    return (column >= image.shape[2] // CELLS * (CELLS // 2)).astype(np.int64)


def _motion(rows: Rows) -> list[Array]:
    before, now = rows.here["observation"][:, -2], rows.here["observation"][:, -1]
    columns = [(seen == 255).any(axis=1).argmax(axis=1) // (seen.shape[2] // CELLS) for seen in (before, now)]
    moved = (columns[1] - columns[0]) % CELLS  # by one cell, on a ring; greys are drawn anew for each frame
    first = (before == now).all(axis=(1, 2))
    right = np.where(moved == 1, 1, 0)
    return [first | (moved == 1) | (moved == CELLS - 1), rows.reward == (~first & (rows.action == right))]


def _recall(rows: Rows) -> list[Array]:
    asked = rows.here["observation"][:, -2] == 1
    return [(rows.reward == 0) | asked]


def _inputs(rows: Rows) -> list[Array]:
    starts = rows.here["observation"][:, 0] == 0
    action, reward = rows.here["previous_action"], rows.here["previous_reward"]
    after = [rows.there["previous_action"] == rows.action + 1, rows.there["previous_reward"] == rows.reward]
    return [*after, (action == 0) | ~starts, (reward == 0) | (action > 0)]  # also 0 after random steps


def _locks(rows: Rows) -> list[Array]:
    mask, lamp = rows.here["observation/action_mask"], rows.here["observation/door/0"][:, 0]
    key, side, turn = rows.action.T
    off = np.abs(np.clip(turn, -1, 1) - (lamp - 0.5))
    missing = mask[:, :3].argmin(axis=1) == rows.here["observation/missing"]
    return [_close(rows.reward, key / 2 + 1 - off), _taken(mask, key), side == 0, missing]


def _doors(rows: Rows) -> list[Array]:
    return [_close(rows.reward, rows.action / 2), _taken(rows.here["action_mask"], rows.action)]


def _point_robot(rows: Rows) -> list[Array]:
    here, there = rows.here["observation"], rows.there["observation"]
    return [_close(there, here + 0.05 * rows.action.clip(-1, 1)), rows.reward <= 0]


def _taken(mask: Array, choice: Array) -> Array:
    allowed: Array = mask[np.arange(len(choice)), choice.astype(np.int64)].astype(bool)
    return allowed


def _close(found: Array, expected: Array | float, tolerance: float = 1e-5) -> Array:
    close: Array = np.abs(found.astype(np.float64) - expected) <= tolerance
    return close


FEATURE_CHECKS: dict[str, Callable[[Rows], list[Array]]] = {
    "vector": _cart_pole,
    "box": _pendulum,
    "image": _pixels,
    "dict": _goal,
    "stacks": _motion,
    "recurrent": _recall,
    "inputs": _inputs,
    "mixed": _locks,
    "masks": _doors,
    "world": _cart_pole,
    "policies": _cart_pole,
    "league": _cart_pole,
    "resident": _cart_pole,
    "inference": _cart_pole,
    "shards": _cart_pole,
    "tasks": _point_robot,
}
"""Feature of the matrix -> what is true of all rows on its env."""


# --- in a run ---------------------------------------------------------------------------------------------------


@dataclass
class CheckedStates:
    """What was checked in this process."""

    rows: int = 0
    """Rows that were learned from, each once, however often it was used."""
    cuts: int = 0
    """Unrolls whose core began anew, where the one before had not ended all its episodes; of recurrent policies."""
    _following: dict[int, Array] = field(default_factory=dict)
    """Actor -> what the policy remembered of its columns at the end of its last unroll."""

    def states(self, spec: PolicySpec, slots: list[Tree], actors: range, weights: list[Array]) -> None:
        """Go through an unroll of each actor as it did: what it began with must be what it had come to, or nothing."""
        for actor, slot, vector in zip(actors, slots, weights, strict=True):
            begun = slot["initial_state"]
            if not np.allclose(begun, self._following.get(actor, begun), atol=1e-6):
                assert not begun.any(), "a policy goes on from a state that its core did not come to"
                self.cuts += 1
            self._following[actor] = _walked(spec, slot, vector)


def _walked(spec: PolicySpec, slot: Tree, vector: Array) -> Array:
    """Return what a policy remembers after the rows of an unroll."""
    policy, state = make_policy(spec), slot["initial_state"].copy()
    policy.load(vector)
    for row, valid in enumerate(slot["valid"][:-1]):
        policy.forward({leaf.name: slot[leaf.name][row] for leaf in spec.observation}, state)
        state[~valid] = 0
    return state


@contextmanager
def checked_rows(feature: str) -> Iterator[CheckedStates]:
    """Check every row that is learned from in this process meanwhile; yield what was seen."""
    seen, holds = CheckedStates(), FEATURE_CHECKS[feature]
    learn, sample, sample_sequences = UnrollLearner.learn, TransitionReplay.sample, SequenceReplay.sample
    sample_tasks = TaskReplay.sample

    def check(rows: Rows, *, is_new: bool = True) -> None:
        for number, truth in enumerate(holds(rows)):
            assert truth.all(), f"rows of {feature} are not whole: they do not pass its check {number}"
        seen.rows += is_new * len(rows.reward)

    def learn_and_check(self: UnrollLearner, step: int, progress: float) -> Learned:
        check(_transitions(_unrolls(self).arrays_of(step)), is_new=_unrolls(self).pace.is_first_use(step))
        spec: PolicySpec = self._algorithm.spec  # type: ignore[attr-defined]
        if spec.recurrent:
            _check_states(self, step, spec)
        return learn(self, step, progress)

    def _unrolls(learner: UnrollLearner) -> Unrolls:
        assert isinstance(learner.feed, UnrollFeed)
        return learner.feed._unrolls

    def _check_states(self: UnrollLearner, step: int, spec: PolicySpec) -> None:
        tickets = _unrolls(self).pace.tickets_of(step)  # as many as actors
        slots = [_unrolls(self).open(ticket) for ticket in tickets]
        weights = [self._weights.read(int(slot["behavior_version"][0])) for slot in slots]
        seen.states(spec, slots, range(len(tickets)), weights)

    def sample_and_check(self: TransitionReplay, random: np.random.Generator) -> Samples:
        samples = sample(self, random)
        check(_of_samples(samples.arrays))
        return samples

    def sample_tasks_and_check(self: TaskReplay, random: np.random.Generator) -> Samples:
        samples = sample_tasks(self, random)
        check(_of_samples(samples.arrays))
        check(_of_samples(_with_prefix(CONTEXT, samples.arrays)))
        return samples

    def sample_sequences_and_check(self: SequenceReplay, random: np.random.Generator) -> Samples:
        samples = sample_sequences(self, random)
        check(_of_sequences(samples.arrays, self.leaves))
        return samples

    with (
        patch.object(UnrollLearner, "learn", learn_and_check),
        patch.object(TransitionReplay, "sample", sample_and_check),
        patch.object(TaskReplay, "sample", sample_tasks_and_check),
        patch.object(SequenceReplay, "sample", sample_sequences_and_check),
    ):
        yield seen


def _with_prefix(prefix: str, arrays: Tree) -> Tree:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _of_samples(arrays: Tree) -> Rows:
    return Rows(arrays, arrays["action"], arrays["reward"], _with_prefix("next/", arrays))


def _of_sequences(arrays: Tree, leaves: list[str]) -> Rows:
    """Return the valid rows of sequences [T, B, ...], behind their burn-in, and what follows them."""
    valid = arrays["valid"]
    here, there = (
        {name: arrays[name][first : first + len(valid) or None][valid] for name in leaves}
        for first in (-len(valid) - 1, -len(valid))
    )
    return Rows(here, arrays["action"][valid], arrays["reward"][valid], there)


def _transitions(batch: Tree) -> Rows:
    """Return the valid rows of a batch [T + 1, B, ...] and what follows them."""
    valid = batch["valid"][:-1]
    by_step = {name: array for name, array in batch.items() if array.shape[:2] == batch["valid"].shape}
    if FRAME_AGE in batch:
        by_step |= {name: _stacks(name, batch) for name, array in batch.items() if len(array) > len(batch["valid"])}
    here = {name: array[:-1][valid] for name, array in by_step.items()}
    there = {name: array[1:][valid] for name, array in by_step.items()}
    return Rows(here, here["action"], here["reward"], there)


def _stacks(name: str, batch: Tree) -> Array:
    """Return the frames that each row sees, [T + 1, B, stack, ...], one by one."""
    frames, age = batch[name], batch[FRAME_AGE]
    stack = len(frames) - len(age) + 1
    seen = np.empty((*age.shape, stack, *frames.shape[2:]), frames.dtype)
    for row, column in np.ndindex(age.shape):
        for back in range(stack):
            seen[row, column, -1 - back] = frames[row + stack - 1 - min(back, int(age[row, column])), column]
    return seen
