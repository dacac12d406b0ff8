"""Random runs on a Ray cluster of two nodes on this machine, whose actors, nodes and main processes are killed.

    python -m benchmarks.ray_soak                                       30 runs, one at a time
    python -m benchmarks.ray_soak --runs 3 --first 7 --out /tmp/trial   some of them again

A run follows from its seed and index. Something happens to each (`MISHAPS`); what was stopped or killed is resumed,
often in another runtime. A part of a run that takes longer than LIMIT_S has failed, and so has a run that does not
finish, that exceeds its lag, or that leaves a process behind. Needs Linux. Writes results/ray-soak.json and .md.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.ray_clusters import STORE, two_nodes
from tests.support.runs import is_alive

from benchmarks.common import OFFBEAT, markdown_table
from benchmarks.options import new_parser, read_options
from benchmarks.records import Unfinished
from benchmarks.soak.processes import command_of, descendants
from offbeat.metrics.sinks import read_metrics

RUNS = Path("runs/ray-soak")
LIMIT_S = 300.0
"""Seconds after which a part of a run counts as hung."""
LEFT_S = 20.0
"""Seconds after the end of a part in which its processes must end."""
MISHAPS = ("kill an actor", "stop an actor", "remove a node", "kill the main process", "SIGTERM", "none")
ENVS = {"ppo": "CartPole-v1", "impala": "CartPole-v1", "sac": "Pendulum-v1"}
STEPS = {"ppo": 10_000, "impala": 10_000, "sac": 800}


@dataclass
class Report:
    """A run, what happened to it, and what was wrong with it."""

    index: int
    algorithm: str
    mishap: str
    local: bool
    """Whether the run starts a Ray of its own, and does not use the cluster."""
    lag: str
    resumed_in: str = ""
    restarts: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def main() -> int:
    """Do all runs and write the results; 1 if any failed."""
    parser = new_parser(__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = read_options(parser)
    RUNS.mkdir(parents=True, exist_ok=True)
    given = {"runs": options.runs, "first": options.first, "seed": options.seed}
    unfinished = Unfinished(options.out, "ray-soak", **given)
    reports: list[Report] = []
    with two_nodes(cpus=2) as nodes:
        for index in range(options.first, options.first + options.runs):
            found = unfinished.find({"index": index})
            if found is None:
                found = unfinished.add(asdict(soak(index, random.Random(f"{options.seed}/{index}"), nodes)))
            reports.append(Report(**found))
            print(reports[-1], flush=True)
    unfinished.publish({"seed": options.seed, "runs": [asdict(report) for report in reports]}, *page(given, reports))
    return int(any(report.failures for report in reports))


def soak(index: int, draw: random.Random, nodes: Any) -> Report:
    """Do a run. The directory of one that fails is kept."""
    shutil.rmtree(RUNS / str(index), ignore_errors=True)
    mishap = draw.choice(MISHAPS)
    local = mishap != "remove a node" and draw.random() < 0.3
    report = Report(index, draw.choice(list(ENVS)), mishap, local, draw.choice(("bounded", "bounded", "exact")))
    run, started = RUNS / str(index), time.monotonic()
    try:
        part(report, ["train", report.algorithm, ENVS[report.algorithm], *arguments(report, run, nodes)], draw, nodes)
        if status(run) != "finished":
            report.resumed_in = draw.choice(("ray", "serial", "processes"))
            address = [] if report.local or report.resumed_in != "ray" else [f"ray_address={nodes.address}"]
            changes = ["--set", *address] if address else []
            part(report, ["resume", str(run), "--runtime", report.resumed_in, *changes], draw, nodes, mishap=False)
        check(report, run)
    except AssertionError as error:
        report.failures.append(str(error))
    report.seconds = round(time.monotonic() - started, 1)
    if not report.failures:
        shutil.rmtree(run, ignore_errors=True)
    return report


def arguments(report: Report, run: Path, nodes: Any) -> list[str]:
    """Return the settings of a run."""
    small = ["hidden_sizes=16,16", "eval_every=0", f"steps={STEPS[report.algorithm]}", f"lag={report.lag}"]
    small += ["stall_timeout_s=10", "checkpoint_every_s=2", "log_every_s=0.5", "actors=2", "envs_per_actor=4"]
    small += ["warmup=200", "batch_size=64", "capacity=5000"] if report.algorithm == "sac" else ["unroll_length=32"]
    address = [] if report.local else [f"ray_address={nodes.address}", "ray_placement=spread"]
    return ["--runtime", "ray", "--run-dir", str(run), "--progress", "lines", "--set", *small, *address]


def part(report: Report, command: list[str], draw: random.Random, nodes: Any, *, mishap: bool = True) -> None:
    """Do one part of a run, with its mishap, and wait until all its processes have ended."""
    said = (RUNS / f"{report.index}.txt").open("a")
    process = subprocess.Popen([OFFBEAT, *command], stdout=said, stderr=said, process_group=0)
    run, deadline = RUNS / str(report.index), time.monotonic() + LIMIT_S
    seen: set[int] = set()

    def wait(holds: Callable[[], bool]) -> None:
        while process.poll() is None and not holds():
            seen.update(descendants(process.pid))
            seen.update(actors())
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"hung: {' '.join(command[:2])}")
            time.sleep(0.1)

    if mishap and report.mishap != "none":
        wait(lambda: (run / "metrics.jsonl").exists() and bool((run / "metrics.jsonl").read_text().strip()))
        moment = time.monotonic() + draw.uniform(0, 2)
        wait(lambda: time.monotonic() > moment)
        strike(report.mishap, process.pid, draw, nodes)
    wait(lambda: False)
    until = time.monotonic() + LEFT_S
    while (left := {pid for pid in seen if is_alive(pid)}) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left, f"{len(left)} processes left: {[command_of(pid) for pid in left]}"
    expected = {"kill the main process": (0, -9), "SIGTERM": (0, 130)}.get(report.mishap, (0,)) if mishap else (0,)
    assert process.returncode in expected, f"exit code {process.returncode}"


def strike(mishap: str, main_process: int, draw: random.Random, nodes: Any) -> None:
    """Let the mishap happen."""
    with suppress(ProcessLookupError, IndexError):
        if mishap in ("kill an actor", "stop an actor"):
            number = signal.SIGKILL if mishap == "kill an actor" else signal.SIGSTOP
            os.kill(draw.choice(sorted(actors())), number)
        elif mishap == "remove a node":
            nodes.remove_node(draw.choice(sorted(nodes.worker_nodes, key=str)))
            time.sleep(draw.choice((0.0, 3.0)))
            nodes.add_node(num_cpus=2, object_store_memory=STORE, resources={"other": 1})
        else:
            os.kill(main_process, signal.SIGKILL if mishap == "kill the main process" else signal.SIGTERM)


def check(report: Report, run: Path) -> None:
    """Check the metrics and the end of a run."""
    assert status(run) == "finished", f"the run is {status(run)}"
    lines = read_metrics(run / "metrics.jsonl")
    report.restarts = int(max(line["actor_restarts"] or 0 for line in lines))
    lags = [line["policy_lag_max"] for line in lines if line["policy_lag_max"] is not None]
    assert report.algorithm == "sac" or max(lags) <= 1, f"the lag was {max(lags)}"
    assert STEPS[report.algorithm] <= lines[-1]["env_steps"] < STEPS[report.algorithm] + 1000, lines[-1]["env_steps"]
    steps = [line["env_steps"] for line in lines]
    assert steps == sorted(steps), "env steps went back"


def status(run: Path) -> str:
    """Return the state of a run."""
    return str(json.loads((run / "status.json").read_text())["state"]) if (run / "status.json").exists() else "missing"


# --- processes ----------------------------------------------------------------------------------------------


def actors() -> set[int]:
    """Return the actors of all runs that this process and its cluster have started."""
    return {pid for pid in descendants() if "RemoteActor" in command_of(pid)}


# --- results ------------------------------------------------------------------------------------------------


def page(given: dict[str, int], reports: list[Report]) -> list[str]:
    """Return the paragraphs of the page; `given`: the options of the command."""
    failed = [report for report in reports if report.failures]
    hung = sum("hung" in text for report in failed for text in report.failures)
    left = sum("left" in text for report in failed for text in report.failures)
    counts = Counter(report.mishap for report in reports)
    rows = [
        [
            mishap,
            str(counts[mishap]),
            str(sum(r.restarts for r in reports if r.mishap == mishap)),
            str(sum(bool(r.resumed_in) for r in reports if r.mishap == mishap)),
            str(sum(bool(r.failures) for r in reports if r.mishap == mishap)),
        ]
        for mishap in MISHAPS
    ]
    options = " ".join(f"--{name} {number}" for name, number in given.items())
    summary = (
        f"`python -m benchmarks.ray_soak {options}`: {len(reports)} runs, {len(failed)} "
        f"failed, {hung} hung, {left} left processes. {sum(report.local for report in reports)} started a Ray of their "
        "own, the others used two nodes on one machine."
    )
    table = markdown_table(["what happened", "runs", "restarts of actors", "resumed", "failed"], rows)
    told = [f"- run {report.index}, {report.mishap}: {'; '.join(report.failures)}" for report in failed]
    return ["# Random runs on a Ray cluster", summary, table, *(["\n".join(told)] if told else [])]


if __name__ == "__main__":
    sys.exit(main())
