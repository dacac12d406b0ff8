"""The Nature CNN on stacks of Atari's frames: what memory layout, precision and kept memory change.

    python -m benchmarks.images [--rounds 9] [--out DIR]

"acting" is a forward pass of 32 images; "training" is a forward and a backward pass of 1,088, as many as an update of
64 envs, 16 steps and the row that follows looks at. Sides take turns, forward and back, on one thread; the first round
is dropped. Images begin as bytes, [M, 4, 84, 84], on every side. Memory that is freed is kept
(core/process/allocator.py), except on sides that say otherwise, which are measured in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from multiprocessing import get_context
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.common import by_turns, describe, machine, markdown_table, publish, spread
from benchmarks.options import new_parser, read_options
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_thread_count
from offbeat.core.types import Leaf
from offbeat.models.image_encoders import Convolution, NatureCNN
from offbeat.models.policy_network import Orthogonal

STACK = Leaf("observation", (84, 84), "uint8", stack=4)
ACTING, TRAINING = 32, 1_088
DROPPED = 1
Network = Callable[[Tensor], Tensor]


class Plain(nn.Module):
    """The same network in torch's own layers, whose images and weights lie channels first."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
        self.layers = nn.Sequential(*(nn.Conv2d(*size) for size in sizes))
        self.dense = nn.Linear(3136, 512)

    def forward(self, images: Tensor) -> Tensor:
        x = images.to(torch.float32).mul_(1 / 255)
        for layer in self.layers:
            x = functional.relu(layer(x))
        return functional.relu(self.dense(x.flatten(1)))


class SpaceToDepth(NatureCNN):
    """The first convolution, of 8 x 8 at each fourth pixel, as one of 2 x 2 on blocks of 4 x 4 pixels."""

    def __init__(self, leaf: Leaf, init: Orthogonal) -> None:
        super().__init__(leaf, init)
        self._images = Blocks()  # type: ignore[assignment]
        self.conv1 = Convolution(64, 32, 2, init)


class Blocks(nn.Module):
    """Converts stacks of four images to floats, each block of 4 x 4 pixels to one pixel of 64 channels."""

    def forward(self, images: Tensor) -> Tensor:
        blocks = images.reshape(len(images), 4, 21, 4, 21, 4).permute(0, 2, 4, 1, 3, 5).reshape(len(images), 21, 21, 64)
        return blocks.to(torch.float32).mul_(1 / 255).permute(0, 3, 1, 2)


class Generic(NatureCNN):
    """Bytes are brought into torch's channels last while they become floats."""

    def __init__(self, leaf: Leaf, init: Orthogonal) -> None:
        super().__init__(leaf, init)
        self._images = ToFloat()  # type: ignore[assignment]


class ToFloat(nn.Module):
    """What `Images` would be, if bytes were not moved first."""

    def forward(self, images: Tensor) -> Tensor:
        return images.to(torch.float32, memory_format=torch.channels_last).mul_(1 / 255)


def init() -> Orthogonal:
    """Return the first weights, alike on all sides."""
    return Orthogonal(torch.Generator().manual_seed(0))


class Side(NamedTuple):
    """A way to do it."""

    network: Callable[[], Network]
    bf16: bool = False
    kept: bool = True


SIDES = {
    "torch's own layout": Side(Plain),
    "torch's own layout, bf16": Side(Plain, bf16=True),
    "channels last": Side(lambda: Generic(STACK, init())),
    "channels last, blocks of 4 x 4 first": Side(lambda: SpaceToDepth(STACK, init())),
    "channels last, bytes first: as it ships": Side(lambda: NatureCNN(STACK, init())),
    "as it ships, but memory is not kept": Side(lambda: NatureCNN(STACK, init()), kept=False),
    "as it ships, bf16": Side(lambda: NatureCNN(STACK, init()), bf16=True),
    "as it ships, bf16, but memory is not kept": Side(lambda: NatureCNN(STACK, init()), bf16=True, kept=False),
}
Costs = dict[str, float]
"""What is done -> CPU microseconds an image."""


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the costs of each round."""
    results: dict[str, dict[str, list[float]]] = {name: {"acting": [], "training": []} for name in SIDES}
    with ExitStack() as stack:
        processes = {kept: stack.enter_context(_process(kept)) for kept in (True, False)}
        for number, name in by_turns(SIDES, DROPPED + rounds):
            costs = processes[SIDES[name].kept].submit(_costs, name).result()
            if number > DROPPED:
                for what, cost in costs.items():
                    results[name][what].append(round(cost, 1))
    return results


def _process(kept: bool) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), _set_up, (kept,))


def _set_up(kept: bool) -> None:
    set_thread_count(1)
    if kept:
        keep_freed_memory()


@cache
def _network(name: str) -> Network:
    return SIDES[name].network()


@cache
def _images(rows: int) -> Tensor:
    return torch.randint(0, 256, (rows, *STACK.stacked_shape), dtype=torch.uint8)


def _costs(name: str) -> Costs:
    network, bf16 = _network(name), SIDES[name].bf16
    return {
        "acting": _acting(network, _images(ACTING), bf16=bf16),
        "training": _training(network, _images(TRAINING), bf16=bf16),
    }


def _precision(*, bf16: bool) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else nullcontext()


def _acting(network: Network, images: Tensor, *, bf16: bool, times: int = 60) -> float:
    with torch.inference_mode(), _precision(bf16=bf16):
        network(images)  # caches are another side's
        begun = process_time()
        for _ in range(times):
            network(images)
    return 1e6 * (process_time() - begun) / (times * len(images))


def _training(network: Network, images: Tensor, *, bf16: bool) -> float:
    begun = process_time()
    with _precision(bf16=bf16):
        features = network(images)
    features.float().sum().backward()  # type: ignore[no-untyped-call]
    return 1e6 * (process_time() - begun) / len(images)


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Return the medians as Markdown."""
    first = median(results["torch's own layout"]["training"])
    rows = [
        [
            name,
            *(spread(costs[what], ",.0f") for what in ("acting", "training")),
            f"{first / median(costs['training']):.2f}",
        ]
        for name, costs in results.items()
    ]
    header = ["Nature CNN", "acting: us an image", "training: us an image", "times as quick"]
    return markdown_table(header, rows)


def main() -> None:
    """Measure all sides; write the raw results and the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count")
    arguments = read_options(parser)
    about, results = machine(), measure(arguments.rounds)
    method = f"{describe(about)}. CPU time on one thread."
    publish(arguments.out, "images", {"machine": about, "us": results}, "# Images", method, table(results))


if __name__ == "__main__":
    main()
