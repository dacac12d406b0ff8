"""Matrix products of NumPy before and after BLAS has written its memory, in new processes by turns.

    python -m benchmarks.blas_memory [--rounds 7] [--out DIR]

The sizes are those of wide layers: rows of a minibatch, inputs, outputs. Each process computes them with one thread,
with or without `offbeat.core.process.threads.write_blas_memory` at its start. The time is CPU time, so the load of the
machine matters little.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from time import thread_time

import numpy as np
from threadpoolctl import ThreadpoolController

from benchmarks.common import by_turns, describe, machine, markdown_table, publish, spread
from benchmarks.options import new_parser, read_options
from offbeat.core.process.threads import blas_kernels, write_blas_memory

SIZES = [(8, 256, 256), (64, 64, 64), (64, 256, 256), (256, 64, 64), (256, 128, 128), (256, 256, 256), (256, 400, 300)]
"""Rows, inputs and outputs."""
PRODUCTS, DROPPED = 31, 3
SIDES = "as loaded", "written"


def measure() -> list[float]:
    """Return microseconds of a product of each size in this process."""
    random = np.random.default_rng(0)
    return [_product_us(random, *size) for size in SIZES]


def _product_us(random: np.random.Generator, rows: int, inputs: int, outputs: int) -> float:
    x, weight = (random.standard_normal((n, inputs), dtype=np.float32) for n in (rows, outputs))
    out, times = np.empty((rows, outputs), np.float32), []
    for _ in range(DROPPED + PRODUCTS):
        started = thread_time()
        np.matmul(x, weight.T, out=out)
        times.append(thread_time() - started)
    return round(1e6 * median(times[DROPPED:]), 1)


def in_new_process(side: str) -> list[float]:
    """Return what a new process measures."""
    command = [sys.executable, "-m", "benchmarks.blas_memory", "--side", side]
    times: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return times


def table(results: dict[str, list[list[float]]]) -> str:
    """Return the medians of the processes, and how many times as fast products are after the memory is written."""
    rows = []
    for index, size in enumerate(SIZES):
        loaded, written = ([times[index] for times in results[side]] for side in SIDES)
        ratios = [before / after for before, after in zip(loaded, written, strict=True)]
        rows.append(
            [" x ".join(map(str, size)), spread(loaded, ",.0f"), spread(written, ",.0f"), spread(ratios, ".2f")]
        )
    return markdown_table(["rows x inputs x outputs", "as loaded, us", "written, us", "times as fast"], rows)


def main() -> None:
    """Measure both sides by turns; write the raw results and the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="processes of each side")
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process, and print it")
    options = read_options(parser, "side")
    ThreadpoolController().limit(limits=1)
    if options.side:
        if options.side == "written":
            write_blas_memory()
        print(json.dumps(measure()))
        return
    results: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    for _, side in by_turns(SIDES, options.rounds):
        results[side].append(in_new_process(side))
    about = {**machine(), "blas_kernels": blas_kernels()}
    title = "# NumPy's products, before and after BLAS has written its memory"
    text = f"{describe(about)}; OpenBLAS's kernels: {about['blas_kernels']}. CPU time of a product, medians."
    publish(options.out, "blas-memory", {"machine": about, "us": results}, title, text, table(results))


if __name__ == "__main__":
    main()
