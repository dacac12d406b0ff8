"""Rollouts of two copies of the same envs, to compare their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from offbeat.core.errors import ConfigError, EnvFailed
from offbeat.core.types import Tree
from offbeat.envs.checking.rows import rollouts, rollouts_in_turn
from offbeat.envs.checking.snapshots import EnvsByAgent, can_save

Start = Callable[[], AbstractContextManager[tuple[EnvsByAgent, Mapping[str, Tree]]]]
"""Opens envs and resets them; gives the envs and their first row, both by agent."""


def rollouts_of_two(
    start: Start, steps: int, stepped: Callable[[], None]
) -> tuple[dict[str, Tree], dict[str, Tree], bool]:
    """Make the `rollouts` of two copies of the same envs; return the rows of each, and whether the envs `can_save`.

    The copies step in turn, as in `rollouts_in_turn`. If this fails, as where a simulator allows only a few
    connections, they step one after the other.

    Args:
        start: opens a copy.
        steps: number of steps of each copy, at least 1.
        stepped: is called after each step of each copy.

    Raises:
        ConfigError: the envs of one copy cannot be made.
        EnvFailed: an env of one copy fails without the other copy.
    """
    try:
        with start() as one, start() as other:
            first, second = rollouts_in_turn([one, other], steps, stepped)
            return first, second, can_save(one[0])
    except (ConfigError, EnvFailed):
        first, _ = _rollouts_of_one(start, steps, stepped)
        return first, *_rollouts_of_one(start, steps, stepped)


def _rollouts_of_one(start: Start, steps: int, stepped: Callable[[], None]) -> tuple[dict[str, Tree], bool]:
    with start() as (columns, first):
        return rollouts(columns, first, steps, stepped), can_save(columns)
