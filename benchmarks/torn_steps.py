"""What becomes of Adam's first steps where two processes share its moments without a lock.

    python -m benchmarks.torn_steps
    python -m benchmarks.torn_steps --device cuda

Both processes make a few steps on the same shared parameters and moments, beginning from zeros at the same moment, so
that they get in each other's way as much as they can; then again, many times. Adam moves an element by about one
learning rate a step. Counted are the elements that were moved by more than a hundred: by torch's kernel on the shared
memory itself, and with the bound on steps that `offbeat.models.flat` has. Writes `results/torn-steps.{json,md}`, or
`results/torn-steps-cuda.{json,md}`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import describe, machine, markdown_table, write_json
from benchmarks.options import new_parser, read_options
from offbeat.core.memory_shape import Slab
from offbeat.memory.arena import SharedArena, attach
from offbeat.models.flat import FlatAdam, FlatParameters
from offbeat.models.normalize import RunningStatistics
from offbeat.runtime.children.child import start_child
from offbeat.runtime.children.child_main import Report
from offbeat.runtime.hogwild.device_buffer import DeviceBuffer, needs_device_buffer, open_buffer

SIZE = 150_000
"""Elements: about the two critics of SAC on HalfCheetah-v5."""
ROUNDS, STEPS = 1_500, 4
LEARNING_RATE = 1e-3
FAR = 100 * LEARNING_RATE
SHARE_OF_ZEROS = 0.5
"""Of each gradient: units that a batch does not reach have none."""
LEARNED: list[Slab] = [(name, (SIZE,), "float32") for name in ("values", "exp_avg", "exp_avg_sq")]
ARRIVED: list[Slab] = [("arrived", (2, 8), "int64")]


@dataclass
class Shared:
    """A storage on shared tensors, for a single group."""

    tensors: Mapping[str, Tensor]
    shared: bool
    separate: bool = False

    @property
    def registered(self) -> Mapping[str, Tensor]:
        return self.tensors

    def register(self, name: str, initial: Tensor) -> Tensor:
        return self.tensors[name.rpartition("/")[2]].view(initial.shape)

    def register_moments(self, name: str, initial: Tensor) -> Tensor:
        return initial if name.endswith("/step") else self.register(name, initial)

    def statistics(self, name: str, size: int) -> RunningStatistics:
        raise NotImplementedError(f"{name} [{size}]: there is nothing to normalise")


def _learn(tensors: Mapping[str, Tensor], arrived: Any, me: int, *, bounded: bool) -> tuple[int, float]:
    """Be one of the two; return how many elements were moved far, and the farthest, as the first sees it."""
    torch.set_num_threads(1)
    device = tensors["values"].device
    model = nn.Linear(SIZE - 16, 1, bias=True).to(device)
    parameters = FlatParameters(model, "group", Shared(tensors, shared=bounded))
    random = np.random.default_rng(me)
    gradients = [_gradient(random, parameters.gradients.numel()).to(device) for _ in range(16)]
    far, farthest = 0, 0.0
    for number in range(ROUNDS):
        if me == 0:
            for tensor in tensors.values():
                tensor.zero_()
        adam = FlatAdam(parameters, eps=1e-8)
        _meet(device, arrived, me, 3 * number + 1)
        for _ in range(STEPS):
            parameters.gradients.copy_(gradients[random.integers(len(gradients))])
            adam.step(LEARNING_RATE)
        _meet(device, arrived, me, 3 * number + 2)
        if me == 0:
            moved = tensors["values"].abs()
            far, farthest = far + int((moved > FAR).sum()), max(farthest, float(moved.max()))
        _meet(device, arrived, me, 3 * number + 3)
    return far, farthest


def _gradient(random: np.random.Generator, size: int) -> Tensor:
    values = random.standard_normal(size, dtype=np.float32)
    values[random.random(size) < SHARE_OF_ZEROS] = 0
    return torch.from_numpy(values)


def _meet(device: torch.device, arrived: Any, me: int, number: int) -> None:
    """Wait until all that was launched is done, and for the other."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    arrived[me, 0] = number
    while arrived[1 - me, 0] < number:
        pass


# --- the other process --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchSpec:
    """What the other is told."""

    parent: int
    fd: int
    """Of the arena."""
    buffer: bytes | None
    """What it opens the buffer with, on a GPU."""
    bounded: bool


def main(launch: LaunchSpec, connection: Connection[Report, LaunchSpec], closing: ExitStack) -> None:  # noqa: ARG001
    """Be the other."""
    if launch.buffer is None:
        arrays = attach(launch.fd, LEARNED + ARRIVED)
        tensors = _tensors(arrays)
    else:
        arrays, tensors = attach(launch.fd, ARRIVED), open_buffer(launch.buffer, LEARNED)
    connection.send(Report("ready", None))
    _learn(tensors, arrays["arrived"], 1, bounded=launch.bounded)


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(arrays[name]) for name, _, _ in LEARNED}


# --- both of them -------------------------------------------------------------------------------------------


def _measure(device: str, *, bounded: bool) -> dict[str, Any]:
    buffer = DeviceBuffer(LEARNED, device) if needs_device_buffer(device) else None
    arena = SharedArena(ARRIVED if buffer else LEARNED + ARRIVED)
    launch = LaunchSpec(os.getpid(), arena.fd, buffer.handle() if buffer else None, bounded)
    child = start_child("benchmarks.torn_steps", launch, (arena.fd,))
    while not child.ready:
        child.take_reports(0.1)
        if not child.is_alive():
            child.kill()
            raise SystemExit(child.failure)
    tensors = buffer.tensors if buffer else _tensors(arena.arrays)
    far, farthest = _learn(tensors, arena.arrays["arrived"], 0, bounded=bounded)
    while not child.exits_within(60.0):
        pass
    child.kill()
    arena.close()
    name = "bounded, as offbeat.models.flat" if bounded else "torch's kernel on shared memory"
    return {"steps": name, "far": far, "elements": ROUNDS * SIZE, "farthest": farthest}


def measure_both() -> None:
    """Measure both, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the parameters lie")
    options = read_options(parser, "device")
    device, out = options.device, options.out
    rows = [_measure(device, bounded=bounded) for bounded in (False, True)]
    on = f"{torch.cuda.get_device_name()}; {describe(machine())}" if device == "cuda" else describe(machine())
    name = "torn-steps-cuda" if device == "cuda" else "torn-steps"
    write_json(out / f"{name}.json", {"machine": machine(), "on": on, "rows": rows})
    table = markdown_table(
        ["steps", f"elements moved by more than {FAR:g}", "of", "farthest"],
        [[row["steps"], f"{row['far']:,}", f"{row['elements']:,}", f"{row['farthest']:,.3f}"] for row in rows],
    )
    text = (
        "# Adam's first steps on moments that two processes share\n\n"
        f"{ROUNDS:,} times {2 * STEPS} steps of a learning rate of {LEARNING_RATE:g} on {SIZE:,} elements, from zeros, "
        f"at the same moment.\n{on}\n\n{table}\n"
    )
    (out / f"{name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    from benchmarks import torn_steps  # noqa: PLW0406 - by this name the other process finds its launch spec

    torn_steps.measure_both()
