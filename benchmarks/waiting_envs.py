"""Envs that wait, such as simulators in other processes: what threads, processes and more actors gain.

    python -m benchmarks.waiting_envs
    python -m benchmarks.waiting_envs --rounds 1 --out /tmp/trial

Eight envs whose steps only sleep, divided between one, two, four or eight actors. Learning steps only sleep too, a
fifth as long as one actor acts for a batch. So nothing but the library needs a core, and the figures say the same on a
busy machine. The start of processes is left out. All layouts take turns in each round; shown are medians (least to
most) of the rounds. Beside them, without the library: eight threads, and eight processes, that sleep as long and then
add numbers. Writes `results/waiting-envs.{json,md}`.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

from benchmarks.actors_and_envs import Run, settings_of
from benchmarks.common import by_turns, describe, machine, markdown_table, spread
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from benchmarks.sleeping_env import ENV
from benchmarks.works import CARTPOLE
from offbeat.core.process.threads import set_thread_count

ENVS, UNROLL = 8, 16
STEP_S, LEARNING_S = 0.005, 0.128
"""Seconds of an env step and of a learning step. One actor acts 8 x 16 x 0.005 = 0.64 s for a batch."""
WARM_UP, BATCHES = 2, 8
LAYOUTS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "serial": ("serial", 1, {}),
    **{f"threads, actors: {actors}": ("threads", actors, {}) for actors in (1, 2, 4, 8)},
    **{f"processes, actors: {actors}": ("processes", actors, {}) for actors in (1, 2, 4, 8)},
    "processes, actors: 8, `actor_nice` 0": ("processes", 8, {"actor_nice": 0}),
}
"""Runtime, number of actors, and further flags."""
WORKERS = {"eight threads": ThreadPoolExecutor, "eight processes": ProcessPoolExecutor}
WAKES = 80
"""How often each of them wakes."""


def least_s(runtime: str, actors: int) -> float:
    """Return the seconds of a batch if only envs and learning take time."""
    acting = ENVS // actors * UNROLL * STEP_S
    return acting + LEARNING_S if runtime == "serial" else max(acting, LEARNING_S)


def wake_us(_worker: int) -> float:
    """Sleep and add numbers by turns; return the CPU microseconds of this thread per turn."""
    started = time.thread_time()
    for _ in range(WAKES):
        time.sleep(STEP_S)
        sum(number * number for number in range(300))
    return 1e6 * (time.thread_time() - started) / WAKES


def mean_wake_us(workers: Any) -> dict[str, float]:
    """Return the mean of `wake_us` of eight workers that run at the same time."""
    with workers(ENVS) as pool:
        costs: list[float] = list(pool.map(wake_us, range(ENVS)))
    return {"us": sum(costs) / ENVS}


def measured(runtime: str, actors: int, extra: dict[str, Any]) -> dict[str, float]:
    """Return seconds of a batch, and CPU microseconds per env step."""
    flags = settings_of(
        CARTPOLE,
        imports=("benchmarks.sleeping_env",),
        kwargs={"seconds": STEP_S},
        runtime=runtime,
        actors=actors,
        envs_per_actor=ENVS // actors,
        unroll_length=UNROLL,
        unrolls_per_batch=actors,
        minibatch_size=ENVS * UNROLL,
        max_lag=0 if runtime == "serial" else 1,
        **extra,
    )
    run = Run(ENV, flags, LEARNING_S)
    try:
        run.learn(WARM_UP)
        used = run.learn(BATCHES)
    finally:
        run.close()
    return {"batch_s": used.wall_s / BATCHES, "cpu_us": 1e6 * used.cpu_s / (BATCHES * ENVS * UNROLL)}


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    found, wakes = record["layouts"], record["wake us"]
    serial = [of_round["batch_s"] for of_round in found["serial"]]
    header = ["layout", "s per batch", "x serial", "x serial, at most", "CPU us per env step"]
    rows = []
    for name, (runtime, actors, _) in LAYOUTS.items():
        seconds = [of_round["batch_s"] for of_round in found[name]]
        rows.append(
            [
                name,
                f"{median(seconds):.3f}",
                spread([first / other for first, other in zip(serial, seconds, strict=True)], ".2f"),
                f"{least_s('serial', 1) / least_s(runtime, actors):.2f}",
                f"{median(of_round['cpu_us'] for of_round in found[name]):.0f}",
            ]
        )
    method = (
        f"`python -m benchmarks.waiting_envs`: {ENVS} envs whose steps sleep {1000 * STEP_S:.0f} ms, batches of "
        f"{UNROLL} steps of each, learning steps that sleep {1000 * LEARNING_S:.0f} ms, `max_lag` 1. Median (least to "
        f"most) of {record['rounds']} rounds."
    )
    costs = " and ".join(f"{spread(us, '.0f')} us with {name}" for name, us in wakes.items())
    bare = f"Without the library, to wake after {1000 * STEP_S:.0f} ms and add 300 numbers takes a CPU time of {costs}."
    return ["# Envs that wait", method, f"{describe(record['machine'])}.", markdown_table(header, rows), bare]


def main() -> None:
    """Measure all layouts and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = read_options(parser)
    warnings.simplefilter("ignore")
    import_module("benchmarks.sleeping_env")
    set_thread_count(1)
    found: dict[str, Any] = {name: [] for name in LAYOUTS}
    wakes: dict[str, list[float]] = {name: [] for name in WORKERS}
    unfinished = Unfinished(options.out, "waiting-envs", rounds=options.rounds)
    for number, name in by_turns(WORKERS, options.rounds):
        one = unfinished.run({"round": number, "bare": name}, partial(mean_wake_us, WORKERS[name]))
        wakes[name].append(one["us"])
    for number, name in by_turns(LAYOUTS, options.rounds):
        one = unfinished.run({"round": number, "layout": name}, partial(measured, *LAYOUTS[name]))
        print(*one.items(), flush=True)
        found[name].append({key: one[key] for key in ("batch_s", "cpu_us")})
    record = {"machine": machine(), "rounds": options.rounds, "layouts": found, "wake us": wakes}
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
