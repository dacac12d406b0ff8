"""Decorrelation at start: how every adapter carries out `Envs.advance`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.envs.contract import Outcome
from offbeat.envs.spaces import random_actions
from offbeat.types import Array, EnvSpec


class Part(NamedTuple):
    """Columns that can only be stepped together: one env, or a whole vector env."""

    columns: slice
    step: Callable[[Array], Outcome]
    """Takes recorded actions [n, *shape]."""


def walk(
    spec: EnvSpec,
    parts: Sequence[Part],
    steps: NDArray[np.int64],
    random: np.random.Generator,
    before_step: Callable[[], None],
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Step each part as often as the largest of its columns' `steps`, [N], with random actions.

    The actions are drawn part by part, for all steps of a part at once; `before_step` is called before each step.

    Returns:
        Return and length so far of the episode under way in each column, [N].
    """
    returns, lengths = np.zeros(spec.columns, np.float32), np.zeros(spec.columns, np.int32)
    for part in parts:
        of_columns = steps[part.columns]
        drawn = random_actions(spec.action, int(of_columns.max()) * len(of_columns), random)
        for actions in drawn.reshape(-1, len(of_columns), *spec.action.shape):
            before_step()
            _count(part.step(actions), returns[part.columns], lengths[part.columns])
    return returns, lengths


def _count(outcome: Outcome, returns: NDArray[np.float32], lengths: NDArray[np.int32]) -> None:
    returns += outcome.reward
    lengths += outcome.valid
    ended = outcome.terminated | outcome.truncated
    returns[ended], lengths[ended] = 0, 0
