"""What becomes of Adam's first steps where two processes share its moments without a lock.

    python -m benchmarks.torn_steps

Both processes make a few steps on the same shared parameters and moments, beginning from zeros at the same moment, so
that they get in each other's way as much as they can; then again, many times. Adam moves an element by about one
learning rate a step. Counted are the elements that were moved by more than a hundred: by torch's kernel on the shared
memory itself, and with the bound on steps that `offbeat.models.flat` has. Writes `results/torn-steps.{json,md}`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import RESULTS, describe, machine, markdown_table, write_json
from offbeat.memory.arena import SharedArena, attach
from offbeat.models.flat import FlatAdam, FlatParameters
from offbeat.models.normalize import RunningStatistics

SIZE = 150_000
"""Elements: about the two critics of SAC on HalfCheetah-v5."""
ROUNDS, STEPS = 1_500, 4
LEARNING_RATE = 1e-3
FAR = 100 * LEARNING_RATE
SHARE_OF_ZEROS = 0.5
"""Of each gradient: units that a batch does not reach have none."""
SLABS = [
    *((name, (SIZE,), "float32") for name in ("values", "exp_avg", "exp_avg_sq")),
    ("arrived", (2, 8), "int64"),
]


@dataclass
class Shared:
    """A storage on an arena, for a single group."""

    arrays: dict[str, Any]
    shared: bool
    separate: bool = False

    def keep(self, name: str, initial: Tensor) -> Tensor:
        return torch.from_numpy(self.arrays[name.rpartition("/")[2]]).reshape(initial.shape)

    def keep_moments(self, name: str, initial: Tensor) -> Tensor:
        return initial if name.endswith("/step") else self.keep(name, initial)

    def statistics(self, name: str, size: int) -> RunningStatistics:
        raise NotImplementedError(f"{name} [{size}]: there is nothing to normalise")


def _learn(fd: int, me: int, *, bounded: bool) -> tuple[int, float]:
    """Be one of the two; return how many elements were moved far, and the farthest, as the first sees it."""
    torch.set_num_threads(1)
    arrays = attach(fd, SLABS)
    parameters = FlatParameters(nn.Linear(SIZE - 16, 1, bias=True), "group", Shared(arrays, shared=bounded))
    random = np.random.default_rng(me)
    gradients = [_gradient(random, parameters.gradients.numel()) for _ in range(16)]
    far, farthest = 0, 0.0
    for number in range(ROUNDS):
        if me == 0:
            for name in ("values", "exp_avg", "exp_avg_sq"):
                arrays[name][:] = 0
        adam = FlatAdam(parameters, eps=1e-8)
        _meet(arrays["arrived"], me, 3 * number + 1)
        for _ in range(STEPS):
            parameters.gradients.copy_(gradients[random.integers(len(gradients))])
            adam.step(LEARNING_RATE)
        _meet(arrays["arrived"], me, 3 * number + 2)
        if me == 0:
            moved = np.abs(arrays["values"])
            far, farthest = far + int((moved > FAR).sum()), max(farthest, float(moved.max()))
        _meet(arrays["arrived"], me, 3 * number + 3)
    return far, farthest


def _gradient(random: np.random.Generator, size: int) -> Tensor:
    values = random.standard_normal(size, dtype=np.float32)
    values[random.random(size) < SHARE_OF_ZEROS] = 0
    return torch.from_numpy(values)


def _meet(arrived: Any, me: int, number: int) -> None:
    """Wait for the other."""
    arrived[me, 0] = number
    while arrived[1 - me, 0] < number:
        pass


def _measure(*, bounded: bool) -> dict[str, Any]:
    arena = SharedArena(SLABS)
    os.set_inheritable(arena.fd, True)
    other = get_context("fork").Process(target=_learn, args=(arena.fd, 1), kwargs={"bounded": bounded})
    other.start()
    far, farthest = _learn(arena.fd, 0, bounded=bounded)
    other.join()
    arena.close()
    name = "bounded, as offbeat.models.flat" if bounded else "torch's kernel on shared memory"
    return {"steps": name, "far": far, "elements": ROUNDS * SIZE, "farthest": farthest}


def main() -> None:
    """Measure both, and write the results."""
    rows = [_measure(bounded=bounded) for bounded in (False, True)]
    write_json(RESULTS / "torn-steps.json", {"machine": machine(), "rows": rows})
    table = markdown_table(
        ["steps", f"elements moved by more than {FAR:g}", "of", "farthest"],
        [[row["steps"], f"{row['far']:,}", f"{row['elements']:,}", f"{row['farthest']:,.3f}"] for row in rows],
    )
    text = (
        "# Adam's first steps on moments that two processes share\n\n"
        f"{ROUNDS:,} times {2 * STEPS} steps of a learning rate of {LEARNING_RATE:g} on {SIZE:,} elements, from zeros, "
        f"at the same moment.\n{describe(machine())}\n\n{table}\n"
    )
    (RESULTS / "torn-steps.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
