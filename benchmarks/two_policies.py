"""Two policies in worlds of four CartPoles: offbeat beside Sample Factory and RLlib, on the same work.

    python -m benchmarks.two_policies                              all sides, three rounds: a quarter of an hour
    python -m benchmarks.two_policies --sides serial rllib-old --out /tmp/trial
    python -m benchmarks.two_policies --rounds 5 --out benchmarks/results

Rounds of runs, A B C, C B A, ..., each run a process of its own. The cost of an agent step is the CPU time of all
processes of a side, without the start-up: for a peer from a tenth of the steps to the last, for offbeat the difference
of two runs, of few and of many steps. Agent steps per second are those after the first tenth. A figure is the median of
the rounds. README.md says what is alike on all sides. Writes `results/two-policies.{json,md}`.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import (
    adopt_orphans,
    by_turns,
    children_cpu_s,
    describe,
    in_words,
    machine,
    markdown_table,
    reap,
    spread,
)
from benchmarks.options import new_parser, read_options
from benchmarks.records import Unfinished
from benchmarks.speed import speed
from benchmarks.works import PPO, Settings, run_offbeat, run_peer

WORK: Settings = {
    **PPO, "env": "benchmarks.peers.carts:Carts", "agents": 4, "policies": 2, "envs": 8, "unroll_length": 32,
    "minibatch_size": 128, "epochs": 4, "threads": 1,
}  # fmt: skip
"""A batch of 512 rows for each policy, in minibatches of 128; one thread for each learner."""
SIDES: dict[str, tuple[Settings, tuple[int, ...]]] = {
    "serial": ({}, (20_480, 122_880)),
    "processes": ({}, (20_480, 122_880)),
    "sample-factory": ({}, (16_384,)),
    "rllib-old": ({"stack": "old", "env_runners": 0}, (8_192,)),
    "rllib-new": ({"stack": "new", "env_runners": 0}, (8_192,)),
}
"""Name -> settings of the side, and agent steps of its runs in a round: the last is the one whose speed counts."""
REFERENCES = ("serial", "processes")


def run(side: str, steps: int, seed: int, pythons: dict[str, Path]) -> Settings:
    """Run one side for so many agent steps, and return its curve and what the whole run took."""
    work = {**WORK, **SIDES[side][0], "steps": steps, "seed": seed}
    started_s, cpu_before_s = time.perf_counter(), children_cpu_s()
    peer = "rllib" if side.startswith("rllib") else side
    report = run_peer(work, peer, pythons[peer]) if peer in pythons else run_offbeat(work, side)
    wall_s = time.perf_counter() - started_s
    reap(10.0)
    costs = {"wall_s": round(wall_s, 2), "waited_cpu_s": round(children_cpu_s() - cpu_before_s, 2)}
    return {**costs, "load": round(os.getloadavg()[0], 1), **report}


def measure(side: str, number: int, pythons: dict[str, Path]) -> Settings:
    """Run one side in a round, and return its costs."""
    runs = [run(side, steps, number, pythons) for steps in SIDES[side][1]]
    last = runs[-1]
    curves = [one["curve"] for one in runs]
    steps = [int(point[0]) for point in curves[-1]]
    if len(runs) > 1:
        seconds, count = last["waited_cpu_s"] - runs[0]["waited_cpu_s"], steps[-1] - curves[0][-1][0]
    else:
        first, spent = next(i for i, done in enumerate(steps) if done >= steps[-1] / 10), last["cpu_s"]
        seconds, count = spent[-1] - spent[first], steps[-1] - steps[first]
    returns = [point[2] for point in curves[-1] if point[2] is not None]
    return {
        "sps": round(speed(curves[-1], 0)),
        "cpu_us": round(1e6 * seconds / count, 1),
        "agent_steps": steps[-1],
        "last return": round(returns[-1], 2) if returns else None,
        "runs": runs,
    }


# --- results ------------------------------------------------------------------------------------------------


def page(record: Settings) -> list[str]:
    """Return the paragraphs of the page."""
    sides = {name: [one for one in record["runs"] if one["side"] == name] for name in SIDES}
    sides = {name: ones for name, ones in sides.items() if ones}
    references = [name for name in REFERENCES if name in sides]
    of_references = [column for name in references for column in (f"CPU x {name}", f"SPS x {name}")]
    header = ["side", "CPU us per agent step", "SPS", *of_references]
    rows = [
        [
            name,
            spread([one["cpu_us"] for one in ones], ",.0f"),
            spread([one["sps"] for one in ones], ",.0f"),
            *(_ratio(ones, sides[reference], key) for reference in references for key in ("cpu_us", "sps")),
        ]
        for name, ones in sides.items()
    ]
    loads = [run["load"] for ones in sides.values() for one in ones for run in one["runs"]]
    versions = {name: ones[0]["runs"][0].get("versions") for name, ones in sides.items()}
    rounds = max(one["round"] for one in record["runs"])
    about = (
        "Eight worlds of four CartPoles, two policies with two carts each. A figure is the median (least to most) of\n"
        f"{rounds} rounds, a ratio that of two runs of the same round. SPS: agent steps per second of wall-clock time."
    )
    places = [f"{describe(record['machine'])}.", *(f"{name}: {in_words(of)}." for name, of in versions.items() if of)]
    load = f"Load of the machine: {spread(loads, '.1f')}."
    return ["# Two policies", about, "\n".join(places), load, markdown_table(header, rows)]


def _ratio(ones: list[Settings], references: list[Settings], key: str) -> str:
    of_round = {one["round"]: one[key] for one in references}
    values = [one[key] / of_round[one["round"]] for one in ones if one["round"] in of_round]
    return "1" if ones is references else spread(values, ".2f")


def main() -> None:
    """Measure all sides and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--sample-factory-python", type=Path, default=Path(".venv-sample-factory/bin/python"))
    parser.add_argument("--rllib-python", type=Path, default=Path(".venv-rllib/bin/python"))
    options = read_options(parser, "sample_factory_python", "rllib_python")
    pythons = {"sample-factory": options.sample_factory_python, "rllib": options.rllib_python}
    adopt_orphans()
    unfinished = Unfinished(options.out, "two-policies", sides=options.sides, rounds=options.rounds)
    record: dict[str, Any] = {"work": WORK, "machine": machine(), "runs": []}
    for number, side in by_turns(options.sides, options.rounds):
        one = unfinished.run({"round": number, "side": side}, partial(measure, side, number, pythons))
        record["runs"].append(one)
        load = one["runs"][-1]["load"]
        print(f"round {number}, {side}: {one['cpu_us']} us, {one['sps']:,} SPS, load {load}", flush=True)
    unfinished.publish(record, *page(record))


if __name__ == "__main__":
    main()
