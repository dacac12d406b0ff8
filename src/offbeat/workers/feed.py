"""Feeds: give a learner the data of each learning step, on the learner's device.

A learner calls `feed.take(step)` and does not know memory, staging or devices. `UnrollFeed` returns batches of
unrolls, each in as many learning steps as the pace says. `ReplayFeed` takes in one ticket per step, says how many
updates are then due, and samples for them. All updates of a step sample from the same tickets: those up to the ticket
of the step, even if later tickets are already committed. So the result does not depend on the speed of the actors.
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
from offbeat.core.types import ENV_STEP, Array, Tree
from offbeat.memory.replay.base import AnyReplay, Samples
from offbeat.memory.unrolls import Unrolls

REPORTED = ("valid", "episode_return", "episode_length", "info", ENV_STEP)
"""Fields that `Taken.rows` has; `info` only if the envs report numbers in their infos, ENV_STEP only with several
agents."""


def env_steps_in(rows: Tree) -> int:
    """Return the number of env steps in rows, [T, B]: those of the worlds, with one agent the valid rows."""
    return int(np.count_nonzero(rows[ENV_STEP if ENV_STEP in rows else "valid"]))


class Staging:
    """Moves arrays to the learner's device: views on a CPU, copies through pinned memory on a GPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._pinned: dict[tuple[str, torch.Size], Tensor] = {}
        """Pinned copies by field and shape, from which a GPU copies asynchronously. They are reused: allocation is
        slow. Only sequences with waits have several shapes."""

    def tensors(self, arrays: Tree) -> Batch:
        """Return a batch on the device; on a CPU the tensors share the memory of the arrays."""
        if self._device == "cpu":
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
        return {name: self._sent(name, torch.from_numpy(array)) for name, array in arrays.items()}

    def moved(self, arrays: Tree) -> Batch:
        """Return small arrays of varying size on the device, copied synchronously."""
        return {name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}

    def _sent(self, name: str, tensor: Tensor) -> Tensor:
        key = name, tensor.shape
        if key not in self._pinned:
            self._pinned[key] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        # The previous copy from this tensor has finished: each update waits for its loss.
        return self._pinned[key].copy_(tensor).to(self._device, non_blocking=True)


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
    """Gives a learner its data."""

    def env_steps(self, step: int) -> int:
        """Return the number of env steps that `step`, whose tickets are committed, adds to env_steps."""
        raise NotImplementedError

    def env_steps_per_use(self, step: int) -> float:
        """Return the number of env steps that learning step `step` stands for, if each batch is used several times."""
        return self.env_steps(step)

    def use_metrics(self, step: int) -> dict[str, float]:  # noqa: ARG002
        """Return metrics of how often batches have been used, at the end of learning step `step`."""
        return {}

    def take(self, step: int) -> Taken:
        """Return the data of learning step `step`, whose tickets must be committed."""
        raise NotImplementedError

    def published(self, version: int) -> None:
        """Note that this version of the weights has just been published."""

    def sizes(self) -> dict[str, float]:
        """Return metrics of how much the memory holds."""
        return {}

    def checkpoint_arrays(self) -> Tree | None:
        """Return the arrays of the memory that a checkpoint saves, as views; None if there are none."""
        return None

    def attach(self, arrays: Tree | None, step: int) -> str:  # noqa: ARG002
        """Restore the memory from a checkpoint's arrays; return a message for the user, or ''. `step` comes next."""
        return ""

    def state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, without `checkpoint_arrays`."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""

    # --- for lock-free workers, whose memory outlives their process -----------------------------------------

    def ratio(self, made: int) -> RatioCounts:  # noqa: ARG002
        """Return the counts from which the update ratio is computed; `made`: updates of the whole run so far."""
        return RatioCounts()

    def recover(self, step: int, ratio: RatioCounts, made: int) -> None:
        """Continue for a worker process that died, with the rows that the memory still holds.

        Args:
            step: the first learning step that is not finished.
            ratio: what `ratio` returned after the last finished step.
            made: updates of the whole run so far, also those that the dead process made in `step`.
        """

    def reattach(self, state: Mapping[str, Any], priorities: Tree, ratio: RatioCounts, made: int, step: int) -> None:
        """Continue after `restore`, with the rows that are already in the memory.

        Args:
            state: the state that was restored.
            priorities: priorities of the rows; empty if the replay has none.
            ratio: what `ratio` returned when the state was saved.
            made: updates of the whole run so far, also those of a process that continued from this state and died.
            step: the first learning step that is not finished.
        """


class UnrollFeed(Feed):
    """Returns batches of unrolls. A batch that is used several times stays on the device until its last use."""

    def __init__(self, unrolls: Unrolls, staging: Staging) -> None:
        self._unrolls, self._pace, self._staging = unrolls, unrolls.pace, staging
        self._resident: dict[int, Batch] = {}
        """Batches on the device that are used again, by number."""
        self._learned = 0
        """Number of finished learning steps."""

    def env_steps(self, step: int) -> int:
        return self._env_steps_of_batch(step) if self._pace.is_first_use(step) else 0

    def env_steps_per_use(self, step: int) -> float:
        return self._env_steps_of_batch(step) / self._pace.passes

    def _env_steps_of_batch(self, step: int) -> int:
        return env_steps_in(self._rows(self._unrolls.batch(step)))

    def _rows(self, arrays: Tree) -> Tree:
        return {name: arrays[name][:-1] for name in REPORTED if name in arrays}

    def take(self, step: int) -> Taken:
        arrays, batch = self._unrolls.batch(step), self._pace.batch_of(step)
        tensors = self._resident.pop(batch, None) or self._staging.tensors(arrays)
        if step < self._pace.last_use(batch):
            self._resident[batch] = tensors
        is_first_use = self._pace.is_first_use(step)
        return Taken(self._rows(arrays), arrays["behavior_version"], tensors, is_first_use=is_first_use)

    def use_metrics(self, step: int) -> dict[str, float]:
        if self._pace.passes == 1:
            return {}
        uses = (step + 1) / self._pace.batches_used(step + 1)
        return {"batch_uses": uses, "resident_share": 1.0 - self._pace.is_first_use(step)}

    def published(self, version: int) -> None:
        self._learned = version

    def checkpoint_arrays(self) -> Tree | None:
        return self._resident_arrays() or None

    def attach(self, arrays: Tree | None, step: int) -> str:
        self._learned = step
        for name, array in self._resident_arrays().items():
            array[...] = (arrays or {})[name]
        return ""

    def _resident_arrays(self) -> Tree:
        """Return the arrays of the batches that are used again, as views, by number of the batch and field."""
        return {
            f"{batch}/{name}": array
            for batch in self._pace.resident(self._learned)
            for name, array in self._unrolls.batch(self._pace.first_use(batch)).items()
        }


class ReplayFeed(Feed):
    """Takes tickets into a replay and samples from it, once for each update that the pace makes due."""

    def __init__(self, replay: AnyReplay, pace: ReplayPace, staging: Staging, *, saved: bool) -> None:
        """Make the feed of a replay.

        Args:
            replay: the replay of this learner.
            pace: says how many updates are due for a number of transitions.
            staging: moves samples to the device.
            saved: whether checkpoints include the replay.
        """
        self._replay, self._pace, self._staging, self._saved = replay, pace, staging, saved
        self._valid = self._due = 0
        """Transitions that the tickets taken in have completed, and updates made for them. The update ratio is computed
        from these two counts. Both start with the run, or with a resume without the replay."""
        self.made = 0
        """Updates of the whole run so far, refused ones included."""
        self._updates_of_version = np.zeros(pace.versions, np.int64)
        """[versions]: `made` when a version of the weights was published, for each version that may still act."""

    def env_steps(self, step: int) -> int:
        return env_steps_in(self._replay.ticket(step))

    def take(self, step: int) -> Taken:
        rows = self._replay.ticket(step)
        versions = rows["behavior_version"]
        completed = self._replay.take_in(step, behavior_updates=self._updates_of(versions[0]))
        self._valid += completed
        due = max(0, self._pace.due(self._valid) - self._due)  # a worker that died in this step may have made more
        observations = {name: rows[name][rows["valid"]] for name in self._replay.leaves}
        return Taken(rows, versions, self._staging.moved(observations), due)

    def _updates_of(self, version: int) -> int:
        """Return the number of updates that were made before this version was published."""
        return int(self._updates_of_version[version % len(self._updates_of_version)])

    def sample(self, random: np.random.Generator) -> tuple[Samples, Batch]:
        """Return the samples for one update, and their arrays on the device."""
        samples = self._replay.sample(random)
        return samples, self._staging.tensors(samples.arrays)

    @property
    def prioritized(self) -> bool:
        """Whether the replay samples by priority."""
        return self._replay.prioritized

    def update_priorities(self, samples: Samples, errors: Array) -> None:
        """Set the priorities of samples from their TD errors, [M]."""
        self._replay.update_priorities(samples, errors)

    def env_steps_per_update(self, step: int) -> float:
        """Return the number of env steps per update, if all env steps have as many decisions as those of `step`."""
        rows = self._replay.ticket(step)
        if ENV_STEP not in rows:
            return float(1 / self._pace.utd_ratio)
        decisions = max(1, int(np.count_nonzero(rows["valid"])))
        return float(env_steps_in(rows) / decisions / self._pace.utd_ratio)

    def count(self, due: int) -> None:
        """Count the updates of a finished learning step."""
        self._due += due

    def published(self, version: int) -> None:
        self._updates_of_version[version % len(self._updates_of_version)] = self.made

    def sizes(self) -> dict[str, float]:
        return {"replay_size": float(self._replay.valid)}

    def ratio_metrics(self) -> dict[str, float]:
        """Return metrics of the update ratio so far; none during the warm-up."""
        after_warmup = self._valid - self._pace.warmup
        if after_warmup <= 0:
            return {}
        ratio = self._due / after_warmup
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
        counted = {"valid": self._valid, "due": self._due, "made": self.made, "had": self._updates_of_version}
        return {"replay": self._replay.state() if self._saved else None, "counted": counted}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["replay"] is not None:
            self._replay.restore(state["replay"])
        counted = state["counted"]
        self._valid, self._due, self.made = counted["valid"], counted["due"], counted["made"]
        self._updates_of_version[:] = counted["had"]

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
