"""The update of SAC, or of TD3, with analytic gradients and by autograd, on the same minibatches.

    python -m benchmarks.replay_update sac [--rounds 21] [--skip SIDE ...] [--name sac-update] [--out DIR]
    python -m benchmarks.replay_update td3

The libraries can be limited to AVX2, as on a processor without AVX-512:

    export ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell
    python -m benchmarks.replay_update sac --name sac-update-avx2

The shapes are HalfCheetah-v5's: observations of 17 numbers, actions of 6, 256-256 ReLU for the policy and two critics,
256 transitions. TD3 has the settings of its preset for this env, and changes its policy in every second update. An
update is all that the learner makes of a minibatch: gradients, their norms, Adam, the slow copies, and SAC's
temperature. Sides take turns, block by block, forward and back; the first blocks are dropped. CPU time is that
of all threads. On a machine with other work, compare by CPU time, because wall time includes the waits for a core, and
skip "autograd, 2 threads", because the two threads of torch spin while they wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from benchmarks.common import by_turns, describe, machine, markdown_table, publish, spread
from benchmarks.options import new_parser, read_options
from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.replay_actor_critic import ReplayActorCritic
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3 import TD3
from offbeat.algorithms.td3_config import TD3Config
from offbeat.config.resolve import resolve
from offbeat.core.process.threads import blas_kernels, set_thread_count
from offbeat.core.types import F32, ActionSpec, EnvSpec, Leaf
from offbeat.fastpath.operators import BlasOperators, MKLOperators
from offbeat.fastpath.replay_gradients import ReplayGradients
from offbeat.fastpath.sac_gradients import SACWorkspace
from offbeat.models.mlp import Operators
from offbeat.workers.updates import UpdateMetrics, Updates

INPUTS, ACTIONS, ROWS = 17, 6, 256
MINIBATCHES = 16
BLOCK = 16
"""Updates of one side before it is another's turn: all minibatches once."""
DROPPED = 2
"""Rounds that only warm up."""
BOX = ActionSpec("box", (ACTIONS,), low=(-1.0,) * ACTIONS, high=(1.0,) * ACTIONS)
ENV = EnvSpec("HalfCheetah-v5", (Leaf("observation", (INPUTS,), "float32"),), BOX, columns=1)
Algorithm = ReplayActorCritic[Any, Any]
Make = Callable[[int], Algorithm]
"""From the number of threads to an algorithm at the start of training."""
Update = Callable[[int], None]


class RecordingOperators(BlasOperators):
    """Keeps the operands of all products with more than one output."""

    def __init__(self) -> None:
        self.products: list[tuple[F32, F32, F32]] = []

    def multiply(self, a: F32, b: F32, out: F32) -> None:
        self.products.append((a, b, out))
        super().multiply(a, b, out)


class WithoutSelection(SACWorkspace):
    """Sends all rows back through all critics, as autograd does, to compare with."""

    def write_action_gradients(self, thread: int) -> None:
        least = self.values.argmin(axis=0)
        everywhere, actions = np.arange(self.size), slice(INPUTS, None)
        for e in range(thread, len(self.values), 2):
            d = np.where(least == e, np.float32(-1 / self.size), np.float32(0))[:, None]
            layers = self._networks.critics[e]
            of_actions = self._critics[e].input_gradient(layers, d, everywhere, actions)
            rows = np.flatnonzero(least == e)
            self._d_action[rows] = of_actions[rows]


# --- the sides ----------------------------------------------------------------------------------------------


def make_sac(threads: int) -> SAC:
    """Return SAC at the start of training."""
    config = SACConfig()
    return SAC(config, config.policy_spec(ENV), seed=0, threads=threads)


def make_td3(threads: int) -> TD3:
    """Return TD3 at the start of training, with the settings of its preset for the env."""
    config = resolve("td3", ENV.id).settings_as(TD3Config)
    return TD3(config, config.policy_spec(ENV), seed=0, threads=threads)


def make_minibatches(algorithm: Algorithm) -> list[Minibatch]:
    """Return minibatches as a replay of random transitions would give them."""
    random = np.random.default_rng(0)
    minibatches = []
    for _ in range(MINIBATCHES):
        sampled = {
            "observation": random.standard_normal((ROWS, INPUTS), dtype=np.float32),
            "next/observation": random.standard_normal((ROWS, INPUTS), dtype=np.float32),
            "action": random.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
            "reward": random.standard_normal(ROWS, dtype=np.float32),
            "discount": np.full(ROWS, 0.99, np.float32),
        }
        tensors = {name: torch.from_numpy(array) for name, array in sampled.items()}
        minibatches.append(algorithm.minibatch(tensors, random))
    return minibatches


def by_autograd(make: Make, threads: int) -> Update:
    """Return the update of the losses as they are written, with so many threads of torch."""
    algorithm = make(1)
    algorithm.stages = tuple(replace(stage, gradients=None) for stage in algorithm.stages)
    update = update_of(algorithm)

    def with_threads(number: int) -> None:
        torch.set_num_threads(threads)
        update(number)
        torch.set_num_threads(1)

    return with_threads


def analytic(make: Make, threads: int, operators: Operators | None = None) -> Update:
    """Return the update with analytic gradients, shared by so many threads."""
    algorithm = make(threads)
    if operators:
        gradients = gradients_of(algorithm)
        gradients._networks = gradients._networks._replace(operators=operators)  # noqa: SLF001
        gradients._workspaces.clear()  # noqa: SLF001
    return update_of(algorithm)


def products_alone(make: Make) -> Update:
    """Return the matrix products of an update, without all else: the least time that a faster rest could leave."""
    operators, products = RecordingOperators(), []
    update = analytic(make, 1, operators)
    for number in range(2):  # TD3 changes its policy in every second update
        operators.products.clear()
        update(number)
        products.append(list(operators.products))

    def multiply(number: int) -> None:
        for a, b, out in products[number % 2]:
            np.matmul(a, b, out=out)

    return multiply


def without_selection() -> Update:
    """Return SAC's update that sends all rows back through all critics."""
    algorithm = make_sac(2)
    gradients = gradients_of(algorithm)
    gradients._workspaces[ROWS] = WithoutSelection(gradients._networks, ROWS)  # noqa: SLF001
    return update_of(algorithm)


def gradients_of(algorithm: Algorithm) -> ReplayGradients[Any]:
    """Return the analytic gradients of an algorithm."""
    gradients = algorithm._fast  # noqa: SLF001  (users have no switch: the fast path is used where there is one)
    assert isinstance(gradients, ReplayGradients)
    return gradients


def update_of(algorithm: Algorithm) -> Update:
    """Return the learner's update, by its number."""
    updates, rates, minibatches = Updates(algorithm), algorithm.start(0.0), make_minibatches(algorithm)

    def update(number: int) -> None:
        if not updates.apply(number, minibatches[number % MINIBATCHES], rates, UpdateMetrics()):
            raise SystemExit("an update was refused: its gradients were not finite")

    return update


AUTOGRAD, NO_SELECTION = "autograd, 1 thread", "analytic, 2 threads, all rows back through all critics"


def sides_of(make: Make) -> dict[str, Callable[[], Update]]:
    """Return what makes the update of each side, by its name."""
    sides: dict[str, Callable[[], Update]] = {
        AUTOGRAD: lambda: by_autograd(make, 1),
        "autograd, 2 threads": lambda: by_autograd(make, 2),
        "analytic, 1 thread": lambda: analytic(make, 1),
        "its matrix products alone, 1 thread": lambda: products_alone(make),
        "analytic, 2 threads": lambda: analytic(make, 2),
        "analytic, 2 threads, products by NumPy": lambda: analytic(make, 2, BlasOperators()),
        "analytic, 2 threads, products by torch": lambda: analytic(make, 2, MKLOperators()),
    }
    return sides | ({NO_SELECTION: without_selection} if make is make_sac else {})


ALGORITHMS: dict[str, tuple[str, Make]] = {"sac": ("SAC", make_sac), "td3": ("TD3", make_td3)}
"""Title and maker."""


# --- measuring ----------------------------------------------------------------------------------------------


def measure(make: Make, rounds: int, skipped: Collection[str]) -> dict[str, dict[str, list[float]]]:
    """Return microseconds per update of each block: wall, and CPU of all threads."""
    sides = sides_of(make)
    if unknown := set(skipped) - sides.keys() | {AUTOGRAD} & set(skipped):
        raise SystemExit(f"these cannot be skipped: {sorted(unknown)}; of {list(sides)[1:]}")
    updates = {name: make_update() for name, make_update in sides.items() if name not in skipped}
    results: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in updates}
    for number, name in by_turns(updates, DROPPED + rounds):
        wall, cpu = _block(updates[name])
        if number > DROPPED:
            results[name]["wall"].append(round(wall, 1))
            results[name]["cpu"].append(round(cpu, 1))
    return results


def _block(update: Update) -> tuple[float, float]:
    for number in range(2):  # caches are another side's
        update(number)
    wall, cpu = perf_counter(), process_time()
    for number in range(BLOCK):
        update(number)
    return 1e6 * (perf_counter() - wall) / BLOCK, 1e6 * (process_time() - cpu) / BLOCK


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Return the medians as Markdown, with autograd's time on one thread as a multiple of each."""
    first = results[AUTOGRAD]
    rows = [
        [
            name,
            spread(times["wall"], ",.0f"),
            spread(times["cpu"], ",.0f"),
            f"{median(first['wall']) / median(times['wall']):.2f}",
            spread([slow / fast for slow, fast in zip(first["cpu"], times["cpu"], strict=True)], ".2f"),
        ]
        for name, times in results.items()
    ]
    header = ["update", "us: median (least to most)", "CPU us", "times as quick as autograd", "by CPU time, per round"]
    return markdown_table(header, rows)


def main() -> None:
    """Measure all sides; write the raw results and the table."""
    parser = new_parser(__doc__)
    parser.add_argument("algorithm", choices=list(ALGORITHMS))
    parser.add_argument("--rounds", type=int, default=21, help="blocks of each side that count")
    parser.add_argument("--skip", nargs="+", default=[], metavar="SIDE", help="sides that are not measured")
    parser.add_argument("--name", help="file name of the results, without its ending; default: ALGORITHM-update")
    arguments = read_options(parser, "algorithm", "name")
    title, make = ALGORITHMS[arguments.algorithm]
    name = arguments.name or f"{arguments.algorithm}-update"
    set_thread_count(1)
    about = {**machine(), "blas_kernels": blas_kernels(), "capability": torch.backends.cpu.get_cpu_capability()}
    results = measure(make, arguments.rounds, arguments.skip)
    libraries = f"OpenBLAS's kernels: {about['blas_kernels']}; torch's: {about['capability']}."
    head = [f"# {title}'s update, 256-256, batch 256", f"{describe(about)}; {libraries}"]
    publish(arguments.out, name, {"machine": about, "us": results}, *head, table(results))


if __name__ == "__main__":
    main()
