"""The env contract: rows in NEXT_STEP order, in two phases, over groups of columns.

A row is (observation, action, reward, terminated, truncated, valid). The observation of the next row *is* the
true next observation, also where an episode ends, so nothing is stored twice:

    row t      observation o_t       action a_t   reward r_t   terminated or truncated   valid
    row t + 1  the final observation  (ignored)    0            neither                   not valid: a reset row
    row t + 2  the first observation of the next episode                                  valid

A reset row is no decision and no transition: it enters no loss and no count. `terminated` wins over `truncated`.

There may be moments in which the agent has nothing to decide, a *row without a decision*: not valid either, and its
action ignored, but within an episode, with a reward that belongs to the last decision, and it may end the episode.
Where beginning anew takes several rows, all of them are reset rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import Array, EnvSpec, Tree

State = dict[str, Any]
"""A snapshot: nested dicts of arrays, numbers, strings, booleans and None. Never a pickle."""


class Outcome(NamedTuple):
    """What became of the actions sent: the rest of the row, and the observation of the row that follows.

    Arrays belong to the envs and may be overwritten by the next `recv` of the same group: copy what you keep.
    """

    observation: Tree
    """name -> [n, *shape], the next row's. A mask, if there is one, allows something in every row."""
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    """[n]: False where the row was a reset row or one without a decision, whose action the env ignored."""
    info: NDArray[np.float64]
    """[n, K]: what the env reported of the names in `EnvSpec.info`; NaN where it did not, and in reset rows."""
    over: NDArray[np.bool_] | None = None
    """[n]: where a game ended, if that is not the same as the end of an episode: with a life, an episode ends and the
    game goes on. Returns are those of games; what is earned in the reset rows between is counted, not learned from."""

    no_decision: NDArray[np.bool_] | None = None
    """[n]: where the agent had nothing to decide; None: nowhere."""

    @property
    def resets(self) -> NDArray[np.bool_]:
        """[n]: where the row was a reset row, after which an episode begins."""
        return ~self.valid if self.no_decision is None else ~(self.valid | self.no_decision)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """[n]: where what returns and lengths are counted of has ended."""
        return self.terminated | self.truncated if self.over is None else self.over


class Advanced(NamedTuple):
    """Where the columns stand after `advance`."""

    observation: Tree
    """name -> [N, *shape], that the next actions answer. It belongs to the envs, as that of an `Outcome`."""
    returns: NDArray[np.float64]
    lengths: NDArray[np.int32]
    """[N]: return and env steps so far of the episode under way, 0 where the last step ended one."""


class Envs(Protocol):
    """The columns of one actor, in one or more groups that can be stepped in turn."""

    spec: EnvSpec
    groups: tuple[slice, ...]
    """The columns of each group, in order and without a gap."""

    def set_progress(self, progress: float) -> None:
        """Tell the envs how far the training has come, from 0 to 1; it may be said between any two steps.

        Raises:
            EnvFailed: an env raised.
        """
        ...

    def reset(self) -> Tree:
        """Begin a new episode in every column; return the first observations, [N, *shape]."""
        ...

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Right after `reset`, step column c by itself `steps[c]` times, [N], with uniform random actions that
        are allowed.

        So columns whose episodes last equally long do not end them all in one row. These steps are rows like any
        others, but nobody's: they are counted nowhere. Where a column's last one ends an episode, the next row is
        the reset row.

        Columns of a vector env cannot be stepped alone: all take as many steps as the largest of their `steps`,
        and their episodes part only as far as their random actions make them. `before_step` is called before each
        step, so that whoever watches over calls of envs sees this one go on.

        Raises:
            EnvFailed: as `recv`.
        """
        ...

    def send(self, actions: Array, group: int = 0) -> None:
        """Hand a group its actions as they are recorded, [n, *shape]. May return before they have been carried out."""
        ...

    def recv(self, group: int = 0) -> Outcome:
        """Wait for what became of the group's last `send`.

        Raises:
            EnvFailed: an env raised, or returned NaN or a wrong shape.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class Snapshots(Protocol):
    """Envs whose state can be saved and put back, bit for bit, episodes under way included."""

    def snapshot(self) -> State: ...

    def restore(self, state: State) -> None: ...
