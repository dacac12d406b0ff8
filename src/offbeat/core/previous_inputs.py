"""The leaves of an observation that no env gives: the previous action and the previous reward.

They are leaves like all others. So memory, replays, frame stacks, normalisation, networks, inference workers and
exported files need no code for them, and the observation after a transition has them too: the row of the next state has
its action and its reward. `offbeat.envs.previous_inputs` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from offbeat.core.choices import smallest_dtype
from offbeat.core.types import PREVIOUS_ACTION, PREVIOUS_REWARD, ActionSpec, Leaf


def previous_leaves(spec: ActionSpec, *, action: bool, reward: bool) -> tuple[Leaf, ...]:
    """Return the leaves of the previous action, one for each of its parts, and of the previous reward.

    All are 0 in the first row of an episode. The choices of an action are stored as 1 + the recorded choice, so that 0
    is one more choice: no action. The numbers of a Box are those that the env got.

    Args:
        spec: the actions.
        action: whether there are leaves of the action.
        reward: whether there is a leaf of the reward.
    """
    actions = [_leaf_of(name, part) for name, part in action_parts(spec, PREVIOUS_ACTION)] if action else []
    return (*actions, *([Leaf(PREVIOUS_REWARD, (), "float32")] if reward else []))


def action_parts(spec: ActionSpec, name: str = "action") -> Iterator[tuple[str, ActionSpec]]:
    """Yield the parts of an action by name; parts of Dicts and Tuples are named like leaves of observations."""
    if spec.kind != "mixed":
        yield name, spec
        return
    for key, part in zip(spec.keys or range(len(spec.parts)), spec.parts, strict=True):
        yield from action_parts(part, f"{name}/{key}")


def _leaf_of(name: str, part: ActionSpec) -> Leaf:
    if not part.nvec:
        return Leaf(name, part.shape, "float32")
    choices = tuple(count + 1 for count in part.nvec)
    start = tuple(first - 1 for first in part.start or (0,) * len(choices))
    return Leaf(name, part.shape, smallest_dtype(choices), choices, start)
