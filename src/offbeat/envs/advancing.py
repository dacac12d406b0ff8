"""Decorrelation at start: how every adapter carries out `Envs.advance`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array, EnvSpec, Tree
from offbeat.envs.contract import Outcome
from offbeat.envs.spaces import random_actions


class Part(NamedTuple):
    """Columns that can only be stepped together: one env, or a whole vector env."""

    columns: slice
    step: Callable[[Array], Outcome]
    """Takes recorded actions [n, *shape]."""


def walk(
    spec: EnvSpec,
    observation: Tree,
    parts: Sequence[Part],
    steps: NDArray[np.int64],
    random: np.random.Generator,
    before_step: Callable[[], None],
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Step each part as often as the largest of its columns' `steps`, [N], with random actions.

    The actions are drawn part by part, for all steps of a part at once; step by step where the leaf of `observation`
    that is a mask, [N, ...], says which are allowed. `before_step` is called before each step.

    Returns:
        Return and length so far of the episode under way in each column, [N].
    """
    returns, lengths = np.zeros(spec.columns), np.zeros(spec.columns, np.int32)
    for part in parts:
        for actions in _drawn(spec, observation, part, int(steps[part.columns].max()), random):
            before_step()
            _count(part.step(actions), returns[part.columns], lengths[part.columns])
    return returns, lengths


def _drawn(spec: EnvSpec, observation: Tree, part: Part, steps: int, random: np.random.Generator) -> Iterator[Array]:
    """Yield the actions of each step of a part, [n, *shape]."""
    columns = part.columns.stop - part.columns.start
    if spec.mask is None:
        yield from random_actions(spec.action, steps * columns, random).reshape(-1, columns, *spec.action.shape)
        return
    mask = observation[spec.mask][part.columns]
    for _ in range(steps):
        yield random_actions(spec.action, columns, random, mask)


def _count(outcome: Outcome, returns: NDArray[np.float64], lengths: NDArray[np.int32]) -> None:
    returns += outcome.reward
    lengths += outcome.valid
    ended = outcome.ended
    returns[ended], lengths[ended] = 0, 0
