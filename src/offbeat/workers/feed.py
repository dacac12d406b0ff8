"""Feeds: what a learning step takes in, brought to the device that learns.

A learner asks its feed, `feed.take(step)`, and knows nothing of memory, staging or devices. `UnrollFeed` gives each
batch of unrolls once. `ReplayFeed` takes in one ticket a step, says how many updates that makes due, and samples for
them. Every update of a step samples from the same tickets, those up to the one that was taken in, however much more is
committed by then: so what is learned does not depend on who was quicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.base import Batch
from offbeat.core.pace import RatioCounts, ReplayPace
from offbeat.core.types import Array, Tree
from offbeat.memory.replay.base import AnyReplay, Samples
from offbeat.memory.unrolls import Unrolls
from offbeat.models.collective import ALONE, Collective, total

REPORTED = ("valid", "episode_return", "episode_length", "info")
"""Fields whose rows `Taken.rows` has, the last where there is one."""


class Staging:
    """Brings arrays to the device that learns: views on a CPU, copies through pinned memory to a GPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._pinned: dict[str, Tensor] = {}
        """Page-locked copies, one a field, which a GPU fetches by itself. Allocating one takes long, so they stay."""

    def tensors(self, arrays: Tree) -> Batch:
        """Return the batch on the device: on a CPU the very same memory."""
        if self._device == "cpu":
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
        return {name: self._sent(name, torch.from_numpy(array)) for name, array in arrays.items()}

    def moved(self, arrays: Tree) -> Batch:
        """Return arrays on the device that are not of one size each time, and not many: they are waited for."""
        return {name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}

    def _sent(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self._pinned:
            self._pinned[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        # The last copy from here has ended long ago: every update has waited for its loss.
        return self._pinned[name].copy_(tensor).to(self._device, non_blocking=True)


class Taken(NamedTuple):
    """What a learning step takes in."""

    rows: Tree
    """Rows [T, B] by field, on the host: at least those of `REPORTED`."""
    versions: NDArray[np.int64]
    """Version of the weights that each unroll, or the ticket, was acted with."""
    batch: Batch
    """On the device: a batch of unrolls, or the observations of the ticket's transitions, [M, ...] by leaf."""
    due: int = 0
    """Updates that a replay makes with it."""


class Feed:
    """Where a learner's data comes from."""

    def valid_rows(self, step: int) -> int:
        """Return the valid rows in the committed tickets of `step`: what it adds to env_steps."""
        raise NotImplementedError

    def take(self, step: int) -> Taken:
        """Return what learning step `step` takes in; its tickets are committed."""
        raise NotImplementedError

    def published(self, version: int) -> None:
        """Note that a version of the weights was published."""

    def sizes(self) -> dict[str, float]:
        """Return metrics of how much the memory holds."""
        return {}

    def checkpoint_arrays(self) -> Tree | None:
        """Return what a checkpoint keeps of the memory, as views of it; None where nothing needs to be kept."""
        return None

    def attach(self, arrays: Tree | None, step: int) -> str:  # noqa: ARG002
        """Go on at `step` with the checkpoint's `arrays`; return what there is to say of it, '' for nothing."""
        return ""

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs of it besides `checkpoint_arrays`."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over `state()`."""

    # --- a worker whose memory outlives its process ---------------------------------------------------------

    def ratio(self, made: int) -> RatioCounts:  # noqa: ARG002
        """Return what the ratio is held on, after `made` updates of the run."""
        return RatioCounts()

    def recover(self, step: int, ratio: RatioCounts, made: int) -> None:
        """Go on at `step` in the place of a learner that died, with the rows that its memory holds.

        Args:
            step: the first learning step that was not finished.
            ratio: as `ratio` was after the step before; updates that came later count too.
            made: updates of the whole run.
        """

    def reattach(self, state: Mapping[str, Any], priorities: Tree, ratio: RatioCounts, made: int, step: int) -> None:
        """Go on after `restore` with the rows that its memory holds.

        Args:
            state: what was restored.
            priorities: of the rows, where there are some.
            ratio: as a checkpoint has it.
            made: updates of the whole run, with those of a learner that went on from here before and died.
            step: the first learning step that is not finished.
        """


class UnrollFeed(Feed):
    """Gives each batch of unrolls once."""

    def __init__(self, unrolls: Unrolls, staging: Staging) -> None:
        self._unrolls, self._staging = unrolls, staging

    def valid_rows(self, step: int) -> int:
        return int(self._unrolls.batch(step)["valid"][:-1].sum())

    def take(self, step: int) -> Taken:
        arrays = self._unrolls.batch(step)
        rows = {name: arrays[name][:-1] for name in REPORTED if name in arrays}
        return Taken(rows, arrays["behavior_version"], self._staging.tensors(arrays))


class ReplayFeed(Feed):
    """Samples from a replay, as many times as the pace says."""

    def __init__(
        self, replay: AnyReplay, pace: ReplayPace, staging: Staging, *, saved: bool, collective: Collective = ALONE
    ) -> None:
        """Feed from a replay.

        Args:
            replay: of this learner.
            pace: how many updates transitions make due.
            staging: brings samples to the device.
            saved: whether checkpoints keep the replay.
            collective: all learners, whose transitions count alike.
        """
        self._collective = collective
        self._replay, self._pace, self._staging, self._saved = replay, pace, staging, saved
        self._valid = self._due = 0
        """Valid transitions taken in, and the updates that they made due. The ratio is held on these two: both count
        from the run's beginning, or from a resume without the replay."""
        self.made = 0
        """Updates of the whole run; refused ones count too."""
        self._had = np.zeros(pace.versions, np.int64)
        """The updates that each version of the weights has had, those that a ticket may be acted with."""

    def valid_rows(self, step: int) -> int:
        return int(self._replay.ticket(step)["valid"].sum())

    def take(self, step: int) -> Taken:
        rows = self._replay.ticket(step)
        versions = rows["behavior_version"]
        self._replay.take_in(step, behavior_updates=int(self._had[versions[0] % len(self._had)]))
        self._valid += total(self._collective, int(np.count_nonzero(rows["valid"])))
        due = max(0, self._pace.due(self._valid) - self._due)  # more may have been made where one died in the middle
        observations = {name: rows[name][rows["valid"]] for name in self._replay.leaves}
        return Taken(rows, versions, self._staging.moved(observations), due)

    def sample(self, random: np.random.Generator) -> tuple[Samples, Batch]:
        """Return what was sampled for one update, and the same on the device."""
        samples = self._replay.sample(random)
        return samples, self._staging.tensors(samples.arrays)

    @property
    def prioritized(self) -> bool:
        """Whether it samples by the size of the last errors."""
        return self._replay.prioritized

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        """Let the next samples depend on these errors, [M]."""
        self._replay.update_priorities(samples, errors)

    @property
    def env_steps_per_update(self) -> float:
        """Env steps that make one update due."""
        return float(1 / self._pace.utd_ratio)

    def count(self, due: int) -> None:
        """Count the updates of a learning step that have been made."""
        self._due += due

    def published(self, version: int) -> None:
        self._had[version % len(self._had)] = self.made

    def sizes(self) -> dict[str, float]:
        return {"replay_size": float(self._replay.valid)}

    def reached(self) -> dict[str, float]:
        """Return the ratio that has been reached; nothing in the warm-up."""
        beyond = self._valid - self._pace.warmup
        if beyond <= 0:
            return {}
        ratio = self._due / beyond
        return {"utd_ratio": ratio, "samples_per_insert": ratio * self._replay.transitions}

    def checkpoint_arrays(self) -> Tree | None:
        return self._replay.arrays() if self._saved else None

    def attach(self, arrays: Tree | None, step: int) -> str:
        if arrays is not None:
            self._replay.load(arrays)
            return f"the replay of {self._replay.valid} transitions restored"
        self._replay.reset(step)
        self._valid = self._due = 0
        return "the checkpoint has no replay: it warms up again, and the ratio counts from here"

    def state(self) -> dict[str, Any]:
        counted = {"valid": self._valid, "due": self._due, "made": self.made, "had": self._had}
        return {"replay": self._replay.state() if self._saved else None, "counted": counted}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["replay"] is not None:
            self._replay.restore(state["replay"])
        counted = state["counted"]
        self._valid, self._due, self.made = counted["valid"], counted["due"], counted["made"]
        self._had[:] = counted["had"]

    def ratio(self, made: int) -> RatioCounts:
        return RatioCounts(self._replay.origin, self._valid, made - self._due)

    def recover(self, step: int, ratio: RatioCounts, made: int) -> None:
        self._valid, self._due, self.made = ratio.valid, made - ratio.unheld, made
        self._replay.recover(ratio.origin, step, behavior_updates=made)

    def reattach(self, state: Mapping[str, Any], priorities: Tree, ratio: RatioCounts, made: int, step: int) -> None:
        if state["replay"] is None:
            self.attach(None, step)
        else:
            self._replay.attach(priorities)
            self._due, self.made = made - ratio.unheld, made
