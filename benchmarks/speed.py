"""Env steps per second of offbeat's runtimes and of other libraries, on the same work.

    python -m benchmarks.speed                                                   all works, all sides
    python -m benchmarks.speed --only halfcheetah                                one work
    python -m benchmarks.speed --only cartpole processes sb3 --out /tmp/trial    one work, two sides
    python -m benchmarks.speed --steps 50000 --out /tmp/trial                    to try it out

Rounds of runs, A B C C B A A B C ..., each run a process of its own, alone on the machine. Speeds are those after
the first tenth of the steps, or after those that a work names; a figure is the median of the rounds' ratios. README.md
says what is alike on all sides, and what is not. An interrupted work continues where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.common import adopt_orphans, by_turns, children_cpu_s, machine, reap, thinned, write_json
from benchmarks.options import new_parser, read_options
from benchmarks.records import Unfinished
from benchmarks.speed_report import draw, has_curves, write_tables
from benchmarks.works import (
    HOGWILD_WORKS,
    PEERS,
    REPLAY_WORKS,
    SIDES,
    TORCH_PEERS,
    WORKS,
    Curve,
    Settings,
    layouts_of,
    run_offbeat,
    run_peer,
)

ALL_WORKS = {**WORKS, **REPLAY_WORKS, **HOGWILD_WORKS}
TRIALS, TRIAL_STEPS = 3, 100_000
"""Trials of each number of torch threads, and their env steps at most."""
CURVE_POINTS = 50

Pythons = dict[str, Path]
"""A peer's name -> the interpreter of its environment."""


def measured(work: Settings, side: str, pythons: Pythons) -> Settings:
    """Return what a run reports, its speed once it is under way, and what its whole process and its children cost."""
    started_s, cpu_before_s = time.perf_counter(), children_cpu_s()
    report = run_peer(work, side, pythons[side]) if side in PEERS else run_offbeat(work, side)
    wall_s = time.perf_counter() - started_s
    reap(5.0)
    curve = report.pop("curve")
    points = [[steps, round(time_s, 3), score and round(score, 2)] for steps, time_s, score in curve]
    costs = {"process_s": round(wall_s, 2), "process_cpu_s": round(children_cpu_s() - cpu_before_s, 2)}
    sps = round(speed(curve, work.get("measured_after", 0)))
    return {"sps": sps, **costs, **report, "curve": thinned(points, CURVE_POINTS)}


def speed(curve: Curve, after: int) -> float:
    """Return env steps per second, from the first point after a tenth of the steps, or `after`, to the first with all.

    Raises:
        ValueError: there are not so many steps.
    """
    first_time_s = {steps: time_s for steps, time_s, _ in reversed(curve)}
    end = max(first_time_s)
    start = min(steps for steps in first_time_s if max(end / 10, after) <= steps < end)
    return (end - start) / (first_time_s[end] - first_time_s[start])


# --- rounds -------------------------------------------------------------------------------------------------


def compare(
    name: str, work: Settings, sides: list[str], pythons: Pythons, rounds: int, unfinished: Unfinished
) -> Settings:
    """Measure one piece of work on some sides and return the record."""
    tried = {
        side: unfinished.run({"peer": side}, partial(calibrate, work, side, pythons))["sps"]
        for side in sides
        if side in TORCH_PEERS
    }
    threads = {side: quickest(speeds) for side, speeds in tried.items()}
    runs = []
    for number, side in by_turns(sides, rounds):
        this = {**work, "seed": number, "threads": threads.get(side, 1)}
        runs.append(unfinished.run({"round": number, "side": side}, partial(measured, this, side, pythons)))
        print(f"{name}, round {number}, {side}: {runs[-1]['sps']:,} SPS", flush=True)
    return {
        "work": work,
        "machine": machine(),
        "layouts": {side: layout for side, layout in layouts_of(work).items() if side in sides},
        "versions": {run["side"]: run.pop("versions") for run in runs if "versions" in run},
        "threads": threads,
        "sps_by_threads": tried,
        "runs": runs,
    }


def calibrate(work: Settings, side: str, pythons: Pythons) -> dict[str, dict[str, list[float]]]:
    """Return a peer's SPS in trials by its torch threads, one and two by turns."""
    speeds: dict[str, list[float]] = {"1": [], "2": []}
    for number, count in by_turns(speeds, TRIALS):
        this = {**work, "seed": number, "steps": min(work["steps"], TRIAL_STEPS), "threads": int(count)}
        speeds[count].append(measured(this, side, pythons)["sps"])
    return {"sps": speeds}


def quickest(speeds: dict[str, list[float]]) -> int:
    """Return the number of threads with the largest median of the trials."""
    return int(max(speeds, key=lambda count: median(speeds[count])))


# --- command line -------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, write the raw records and figures, then the tables from all records that are there."""
    options = _options()
    adopt_orphans()
    for name, sides in options.chosen.items():
        work = {**ALL_WORKS[name]}
        work["steps"] = min(work["steps"], options.steps or work["steps"])
        work |= {} if options.device == "cpu" else {"device": options.device}
        unfinished = Unfinished(options.out, f"speed-{name}", work=work, sides=sides, rounds=options.pairs)
        record = compare(name, work, sides, options.pythons, options.pairs, unfinished)
        write_json(options.out / f"speed-{name}.json", record)
        unfinished.forget()
    paths = {name: options.out / f"speed-{name}.json" for name in ALL_WORKS}
    records = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    for name, record in records.items():
        if has_curves(record):
            draw(name, record, options.out / f"speed-{name}.png")
    print(write_tables(records, options.out / "speed.md"))


def _options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    names = [*ALL_WORKS, *dict.fromkeys(side for sides in SIDES.values() for side in sides)]
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="works and sides; default: all")
    parser.add_argument("--pairs", type=int, default=5, help="rounds; at least 5 for a figure that counts")
    parser.add_argument("--steps", type=int, help="at most, to try the benchmark out; default: the work's own")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where all sides learn")
    parser.add_argument(
        "--pythons",
        type=peer_and_python,
        nargs="+",
        default=[],
        metavar="PEER=PATH",
        help="interpreters of peers; default: .venv-PEER/bin/python",
    )
    options = read_options(parser, "pythons", "only")
    options.chosen = choose(options.only)
    if not options.chosen:
        parser.error(f"none of these works has one of these sides: {' '.join(options.only)}")
    for name, sides in options.chosen.items():
        file = options.out / f"speed-{name}.json"
        if lost := [side for side in sides_in(file) if side not in sides]:
            parser.error(
                f"{file} has {', '.join(lost)} too, which would be lost, because a record is of one machine and one "
                "time: name these sides too, pass another --out FOLDER, or delete the file"
            )
    options.pythons = {side: Path(f".venv-{side}/bin/python") for side in PEERS} | dict(options.pythons)
    for side, python in options.pythons.items():
        if not python.exists() and any(side in sides for sides in options.chosen.values()):
            parser.error(f"{python} does not exist: benchmarks/README.md says how to install the peer")
    return options


def peer_and_python(text: str) -> tuple[str, Path]:
    """Return the two parts of PEER=PATH.

    Raises:
        argparse.ArgumentTypeError: it is something else, or there is no such peer.
    """
    peer, _, path = text.partition("=")
    if peer not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"{text} is not PEER=PATH with a PEER of {', '.join(PEERS)}")
    return peer, Path(path)


def sides_in(file: Path) -> list[str]:
    """Return the sides of a record; none if there is no such file."""
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    return list(dict.fromkeys(run["side"] for run in runs))


def choose(only: list[str]) -> dict[str, list[str]]:
    """Return the works to do and the sides of each, as far as they are named; sides come in `SIDES`' order."""
    works = [name for name in ALL_WORKS if name in only] or list(ALL_WORKS)
    named = [name for name in only if name not in ALL_WORKS]
    chosen = {work: [side for side in SIDES[work] if not named or side in named] for work in works}
    return {work: sides for work, sides in chosen.items() if sides}


if __name__ == "__main__":
    main()
