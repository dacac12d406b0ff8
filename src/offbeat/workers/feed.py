"""Feeds: give a learner the data of each learning step, on the learner's device.

A learner calls `feed.take(step)` and does not know memory, staging or devices. `UnrollFeed` (unroll_feed.py) returns
batches of unrolls, each in as many learning steps as the pace says. `ReplayFeed` (replay_feed.py) takes in one ticket
per step, says how many updates are then due, and samples for them. Both can load ahead, in a thread (loader.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.algorithms.base import Batch
from offbeat.core.pace import RatioCounts
from offbeat.core.types import ENV_STEP, Tree
from offbeat.metrics.timings import Timings

REPORTED = ("valid", "episode_return", "episode_length", "info", ENV_STEP)
"""Fields that `Taken.rows` has; `info` only if the envs report numbers in their infos, ENV_STEP only with several
agents."""


def env_steps_in(rows: Tree) -> int:
    """Return the number of env steps in rows, [T, B]: those of the worlds, with one agent the valid rows."""
    return int(np.count_nonzero(rows[ENV_STEP if ENV_STEP in rows else "valid"]))


WaitForCommits = Callable[[int, Callable[[], bool]], None]
"""Waits until tickets 0 .. n - 1 are committed, in another thread than the learner's; n is the first argument. Raises
`Closed` if the second argument returns True."""


class Taken(NamedTuple):
    """The data of one learning step."""

    rows: Tree
    """[T, B, ...] by field, on the host: at least the fields in `REPORTED`."""
    versions: NDArray[np.int64]
    """Version of the weights that acted, for each column of the rows."""
    batch: Batch
    """On the device: a batch of unrolls; with a replay, the observations of the ticket's transitions, [M, ...] by
    leaf."""
    due: int = 0
    """With a replay: the number of updates to make in this step."""
    is_first_use: bool = True
    """Whether no earlier learning step has had these rows."""


class Feed:
    """Gives a learner its data.

    How it continues:
        in a resumed run                            restore(state()), load_checkpoint(checkpoint_arrays())
        in another learner process                  restore(state(with_rows=False)), attach_memory(memory_state())
        in a lock-free worker, from its state       restore(state()), attach_worker_memory(state(), priorities(), ...)
        in one that continues for a dead process    recover(step, ratio(), ...)
    """

    def env_steps(self, step: int) -> int:
        """Return the number of env steps that `step`, whose tickets are committed, adds to env_steps."""
        raise NotImplementedError

    def env_steps_per_use(self, step: int) -> float:
        """Return the number of env steps that learning step `step` stands for, if each batch is used several times."""
        return self.env_steps(step)

    def use_metrics(self, step: int) -> dict[str, float]:  # noqa: ARG002
        """Return metrics of how often batches have been used, at the end of learning step `step`."""
        return {}

    def take(self, step: int, timings: Timings) -> Taken:
        """Return the data of learning step `step`, whose tickets must be committed; add the time to `timings`."""
        raise NotImplementedError

    @property
    def loader_timings(self) -> tuple[str, ...]:
        """The names in `Timings` of what a loader does in a run; none if nothing is loaded ahead."""
        return ()

    def load_ahead(self, wait_for_commits: WaitForCommits) -> None:
        """Load ahead in a thread from the next learning step on, if the settings say so."""

    def stop_loading(self) -> None:
        """End the thread that loads ahead. The feed can still be used."""

    def published(self, version: int) -> None:
        """Note that this version of the weights has just been published."""

    def sizes(self) -> dict[str, float]:
        """Return metrics of how much the memory holds."""
        return {}

    def checkpoint_arrays(self) -> Tree | None:
        """Return the arrays of the memory that a checkpoint saves, as views; None if there are none."""
        return None

    def load_checkpoint(self, arrays: Tree | None, step: int) -> str:  # noqa: ARG002
        """Restore the memory from `checkpoint_arrays`; return a message for the user, or ''. `step` comes next."""
        return ""

    def state(self, *, with_rows: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the state that a resumed run needs, without `checkpoint_arrays`.

        Args:
            with_rows: whether rows of the memory are part of it. Another learner process of this run has them already.
        """
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""

    def priorities(self) -> Tree:
        """Return a copy of the priorities of the rows that can be sampled; nothing if there are none."""
        return {}

    def memory_state(self) -> dict[str, Any]:
        """Return what another learner process needs to use the rows in the memory, which it shares."""
        return {}

    def attach_memory(self, memory: Mapping[str, Any]) -> None:
        """Continue after `restore` in another learner process, with the rows that are already in the memory.

        Args:
            memory: the result of `memory_state` in the process that has called `state`.
        """

    # --- for lock-free workers, whose memory outlives their process -----------------------------------------

    def ratio(self, run_updates: int) -> RatioCounts:  # noqa: ARG002
        """Return the counts from which the update ratio is computed; `run_updates`: updates of the whole run so far."""
        return RatioCounts()

    def recover(self, step: int, ratio: RatioCounts, run_updates: int) -> None:
        """Continue for a worker process that died, with the rows that the memory still holds.

        Args:
            step: the first learning step that is not finished.
            ratio: what `ratio` returned after the last finished step.
            run_updates: updates of the whole run so far, also those that the dead process made in `step`.
        """

    def attach_worker_memory(
        self, state: Mapping[str, Any], priorities: Tree, step: int, ratio: RatioCounts, run_updates: int
    ) -> None:
        """Continue after `restore` in a lock-free worker, with the rows that are already in its memory.

        Args:
            state: the state that was restored.
            priorities: priorities of the rows; empty if the replay has none.
            step: the first learning step that is not finished.
            ratio: what `ratio` returned when the state was saved.
            run_updates: updates of the whole run so far, also those of a process that continued from this state and
                died.
        """
