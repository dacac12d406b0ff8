"""A soak: hundreds of small runs with random settings, each with one random mishap, and what must hold after it.

    python -m benchmarks.soak                               500 runs, two at a time
    python -m benchmarks.soak --runs 20 --seed 7 --jobs 1
    python -m benchmarks.soak --seed 1 --first 137 --runs 1 one of them again

PPO and SAC in threads and processes, A2C and SAC lock-free. Mishaps: none; kill -9 of an actor or a worker, once or
twice; SIGINT or SIGTERM at any moment, start-up and shutdown included; kill -9 of the main process. What was stopped
or killed is gone on from with `offbeat resume`.
After each: the exit code is the expected one, the checkpoint whole and finite, no process of the run alive after five
seconds, nothing left in shared memory, no env step lost or counted twice, and every restart counted.
Needs Linux. Run directories of failures stay under runs/soak.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from benchmarks.common import (
    RESULTS,
    adopt_orphans,
    describe,
    machine,
    markdown_table,
    read_metrics,
    reap,
    write_json,
)
from offbeat.errors import OffbeatError

RUNS = Path("runs/soak")
SHARED_MEMORY = Path("/dev/shm")
MISHAPS = {"none": 1, "kill an actor": 4, "SIGINT": 2, "SIGTERM": 2, "kill the main process": 3}
"""Mishap -> its weight in the draw. In threads there is no actor process to kill; in hogwild it is a worker."""
KINDS = {
    ("ppo", "processes"): 8,
    ("ppo", "threads"): 2,
    ("sac", "processes"): 3,
    ("sac", "threads"): 1,
    ("a2c", "hogwild"): 3,
    ("sac", "hogwild"): 3,
}
"""Algorithm and runtime -> their weight in the draw."""
WARMUP, UTD_RATIO = 128, Fraction(1, 4)
"""Of SAC."""
OUTLIVE_S = 5.0
"""Seconds that a process may outlive its run."""
STOP_S = 10.0
"""Seconds from a signal to the end of the run."""
NOTICE_S = 2.0
"""Seconds after an actor's death at which a run that still goes on must have counted it."""
STEPS = 150_000
"""Env steps of a run, at most."""
STEPS_OF_SAC = 8_000
HANGS_S = 120.0
"""After which a run is taken to hang."""


@dataclass(frozen=True)
class Plan:
    """What one run is and what happens to it; it follows from (seed, index) alone."""

    index: int
    algorithm: str
    runtime: str
    env: str
    actors: int
    """Workers, in hogwild."""
    max_lag: int
    """On a replay, how far actors are ahead beyond one ticket each."""
    lag: str
    unroll_length: int
    """On a replay, env steps of a ticket."""
    envs_per_actor: int
    learning_steps: int
    """About so many, unless `STEPS` are fewer."""
    mishap: str
    kills: int
    """How many actors are killed."""
    learning: bool
    """Whether the mishap waits for the first line of metrics; else it comes as soon as the run can be stopped."""
    delay_s: float
    """Seconds from then to the mishap."""
    victim: float
    """Which actor, from 0 to 1."""

    @property
    def replayed(self) -> bool:
        return self.algorithm == "sac"

    @property
    def lock_free(self) -> bool:
        return self.runtime == "hogwild"

    @property
    def batch(self) -> int:
        """Rows that a learning step takes in: an unroll of each actor, a worker's own one, or a ticket."""
        alone = self.replayed or self.lock_free
        return (1 if alone else self.actors) * self.envs_per_actor * self.unroll_length

    @property
    def beyond(self) -> int:
        """Rows by which a run may end after `steps`: less than these."""
        return self.batch * (self.actors if self.lock_free else 1)

    @property
    def path(self) -> Path:
        return RUNS / str(self.index)

    @property
    def steps(self) -> int:
        """Env steps of the run."""
        return min(self.learning_steps * self.batch, STEPS_OF_SAC if self.replayed else STEPS)

    @property
    def printed(self) -> Path:
        """Where the output goes: a file, as what outlives a run would keep a pipe open."""
        return self.path.with_suffix(".txt")

    def command(self) -> list[str]:
        """Return the arguments of `offbeat`."""
        flags = (
            f"train {self.algorithm} {self.env} --runtime {self.runtime} --envs-per-actor {self.envs_per_actor} "
            f"--steps {self.steps} --seed {self.index} --eval-every {self.steps // 2} --progress none "
            f"--run-dir {self.path} --{'workers' if self.lock_free else 'actors'} {self.actors}"
        )
        return [*flags.split(), "--set", "hidden_sizes=32,32", "eval_episodes=2", *self._pace(), *self._learning()]

    def _pace(self) -> list[str]:
        if self.lock_free:
            return []
        ahead = f"max_ahead={self.actors - 1 + self.max_lag}" if self.replayed else f"max_lag={self.max_lag}"
        return [f"lag={self.lag}", ahead]

    def _learning(self) -> list[str]:
        if self.replayed:
            sizes = f"chunk_length={self.unroll_length} warmup={WARMUP} utd_ratio={UTD_RATIO} capacity=20000"
            return [*sizes.split(), "batch_size=32"]
        ppo = [f"minibatch_size={self.batch}", "epochs=2"] if self.algorithm == "ppo" else []
        return [f"unroll_length={self.unroll_length}", *ppo]


def draw(seed: int, index: int) -> Plan:
    """Draw the plan of a run."""
    dice = random.Random(f"{seed}/{index}")
    algorithm, runtime = dice.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    mishaps = {name: weight for name, weight in MISHAPS.items() if runtime != "threads" or name != "kill an actor"}
    return Plan(
        index=index,
        algorithm=algorithm,
        runtime=runtime,
        env=dice.choice(("CartPole-v1", "CartPole-v1", "Pendulum-v1")),
        actors=dice.randint(1, 3),
        max_lag=dice.randint(0, 3),
        lag=dice.choice(("bounded", "exact")),
        unroll_length=dice.choice((8, 16, 32, 64)),
        envs_per_actor=dice.choice((1, 2, 4, 8, 16)),
        learning_steps=dice.choice((200, 500, 1000, 2000)),
        mishap=dice.choices(tuple(mishaps), tuple(mishaps.values()))[0],
        kills=dice.choice((1, 1, 2)),
        learning=dice.random() < 0.6,
        delay_s=dice.uniform(0.0, 2.0),
        victim=dice.random(),
    )


# --- one run ------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """What one run came to."""

    plan: Plan
    exit_codes: list[int] = field(default_factory=list)
    """Of the run, and of the resume if there was one."""
    happened: bool = False
    """Whether the mishap came before the run had ended."""
    restarts: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    output: str = ""
    """The end of what was printed, where something failed."""

    def require(self, holds: bool, otherwise: str) -> None:
        """Note a failure unless it holds."""
        if not holds:
            self.failures.append(otherwise)


def soak(plan: Plan) -> Report:
    """Do one run in this process, which becomes the parent of everything that the run leaves behind."""
    adopt_orphans()
    shutil.rmtree(plan.path, ignore_errors=True)
    report, started_s, before = Report(plan), time.perf_counter(), _shared_memory()
    try:
        kills = _first_part(plan, report)
        if _state(plan) != "finished":
            _second_part(plan, report)
        if _state(plan) == "finished":
            _check_end(plan, report, kills)
    except (OSError, ValueError, LookupError, OffbeatError) as error:
        report.failures.append(f"{type(error).__name__}: {error}")
    report.require(_only(before), "something was left in shared memory")
    report.seconds = round(time.perf_counter() - started_s, 2)
    if not report.failures:
        shutil.rmtree(plan.path, ignore_errors=True)
        plan.printed.unlink(missing_ok=True)
        report.output = ""
    return report


def _first_part(plan: Plan, report: Report) -> tuple[int, int]:
    """Train, let the mishap happen and check the end; return the fewest and the most restarts there may be."""
    with _start(plan, plan.command()) as child:
        killed_s = _mishap(plan, child, report)
        _finish(plan, child, report, STOP_S if report.happened and plan.mishap.startswith("SIG") else HANGS_S)
    ended_s = time.perf_counter()
    _check_exit(plan, report)
    return sum(ended_s - at > NOTICE_S for at in killed_s), len(killed_s)


def _second_part(plan: Plan, report: Report) -> None:
    """Go on from the checkpoint; without one, `resume` must refuse."""
    found = _check_checkpoint(plan, report)
    with _start(plan, ["resume", str(plan.path), "--progress", "none"]) as child:
        _finish(plan, child, report, HANGS_S)
    expected = 0 if found else 2
    report.require(report.exit_codes[-1] == expected, f"resume ended with {report.exit_codes[-1]}, not {expected}")


def _start(plan: Plan, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).parent / "offbeat"), *arguments]
    with plan.printed.open("w") as printed:
        return subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)


def _finish(plan: Plan, child: subprocess.Popen[bytes], report: Report, seconds: float) -> None:
    """Wait for the end of a run, and for that of all its processes."""
    if not _ended_within(child, seconds):
        report.failures.append(f"still running after {seconds:g} s")
        child.kill()
        child.wait()
    report.exit_codes.append(child.returncode)
    report.output = (report.output + plan.printed.read_text())[-3000:]
    alive = reap(OUTLIVE_S)
    report.require(not alive, f"{len(alive)} processes alive {OUTLIVE_S:g} s after the end")
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    reap(OUTLIVE_S)


# --- mishaps ------------------------------------------------------------------------------------------------


def _mishap(plan: Plan, child: subprocess.Popen[bytes], report: Report) -> list[float]:
    """Let the plan's mishap happen; return when actors were killed."""
    if plan.mishap == "none":
        return []
    if plan.mishap == "kill an actor":
        times = [_kill_an_actor(plan, child) for _ in range(plan.kills)]
        report.happened = any(times)
        return [at for at in times if at]
    while child.poll() is None and not (_lines(plan) if plan.learning else _catches(child.pid, signal.SIGTERM)):
        time.sleep(0.01)
    number = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}.get(plan.mishap, signal.SIGKILL)
    report.happened = _ended_within(child, plan.delay_s) is False
    child.send_signal(number)
    return []


def _kill_an_actor(plan: Plan, child: subprocess.Popen[bytes]) -> float | None:
    """Kill one of the actors that status.json tells, a while after it does; return when, None if none was left."""
    while child.poll() is None and not _actors(plan):
        time.sleep(0.01)
    _ended_within(child, plan.delay_s)
    pids = [pid for pid in _actors(plan) if Path(f"/proc/{pid}").exists()]
    if child.poll() is not None or not pids:
        return None
    os.kill(pids[int(plan.victim * len(pids))], signal.SIGKILL)
    at = time.perf_counter()
    _ended_within(child, NOTICE_S)  # by then status.json tells who took its place
    return at


def _actors(plan: Plan) -> list[int]:
    """Return the pids of the actor processes, none while there is no status.json."""
    try:
        processes = json.loads((plan.path / "status.json").read_text())["processes"]
    except (OSError, ValueError, KeyError):
        return []
    return [process["pid"] for process in processes if process["role"] in ("actor", "worker")]


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal: from then on it can be stopped in good order."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
    return bool(caught >> (number - 1) & 1)


def _ended_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


# --- checks -------------------------------------------------------------------------------------------------


def _check_exit(plan: Plan, report: Report) -> None:
    """Check the exit code of the first part; a mishap may come too late to matter."""
    code = report.exit_codes[0]
    expected = {"SIGINT": (130,), "SIGTERM": (130,), "kill the main process": (-signal.SIGKILL,)}
    allowed = expected.get(plan.mishap, (0,)) if report.happened else (0,)
    finished = _state(plan) == "finished"
    report.require(code in allowed or (finished and code == 0), f"ended with {code}, not {allowed[0]}")
    report.require(finished or code != 0, f"ended with 0, but its state is {_state(plan)}")
    report.require("Traceback" not in report.output, "a traceback was printed")


def _state(plan: Plan) -> str | None:
    status = plan.path / "status.json"
    return json.loads(status.read_text())["state"] if status.exists() else None


def _check_checkpoint(plan: Plan, report: Report) -> bool:
    """Check the latest checkpoint, and return whether there is one."""
    from numpy import isfinite

    from offbeat.checkpoint import load

    latest = plan.path / "checkpoints" / "latest"
    if not latest.exists():
        began = report.plan.mishap != "kill the main process" and _lines(plan)
        report.require(not began, "learned, and stopped by a signal, but no checkpoint was kept")
        return False
    saved = load(latest)
    report.require(saved.state is not None, "the latest checkpoint cannot be resumed from")
    report.require(all(isfinite(array).all() for array in saved.weights.values()), "weights that are not finite")
    return True


def _lines(plan: Plan) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, none while there is none that is whole."""
    try:
        return read_metrics(plan.path)
    except (FileNotFoundError, ValueError):
        return []


def _check_end(plan: Plan, report: Report, kills: tuple[int, int]) -> None:
    """Check what a finished run has counted, and its last checkpoint."""
    report.require(_check_checkpoint(plan, report), "finished without a checkpoint")
    lines = _lines(plan)
    last = lines[-1]
    report.restarts = last["actor_restarts"]
    report.require(kills[0] <= report.restarts <= kills[1], f"{report.restarts} restarts counted, {kills} expected")
    excess = last["env_steps"] - plan.steps
    report.require(0 <= excess < plan.beyond, f"ended {excess} env steps after --steps, with batches of {plan.batch}")
    for name in ("env_steps", "learning_step", "updates", "episodes"):
        values = [line[name] for line in lines]
        report.require(values == sorted(values), f"{name} went backwards")
    if plan.replayed and not plan.lock_free:
        due = floor(UTD_RATIO * max(0, last["env_steps"] - WARMUP))
        report.require(last["updates"] == due, f"{last['updates']} updates, but {due} were due")
    elif not plan.lock_free:
        _check_rows(plan, report, last)


def _check_rows(plan: Plan, report: Report, last: dict[str, Any]) -> None:
    """Check that every row of every learned batch was an env step or a reset, and none was counted twice.

    Each episode that ended has one reset row, the last one of a column perhaps not yet, nor one that a restart or a
    resume without snapshots cut off.
    """
    columns = plan.actors * plan.envs_per_actor
    resets = last["learning_step"] * plan.batch - last["env_steps"]
    cuts = report.restarts * plan.envs_per_actor + (len(report.exit_codes) - 1) * columns
    least, most = last["episodes"] - columns - cuts, last["episodes"] + cuts
    report.require(
        least <= resets <= most,
        f"{last['learning_step']} batches of {plan.batch} rows have {last['env_steps']} env steps and so {resets} "
        f"reset rows, but {last['episodes']} episodes ended and at most {cuts} were cut",
    )


def _shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.exists() else set()


def _only(before: set[str]) -> bool:
    """Whether shared memory has nothing new; what other runs have there for a moment is given time to go."""
    fresh = _shared_memory() - before
    if fresh:
        time.sleep(1.0)
    return not fresh & _shared_memory()


# --- all runs -----------------------------------------------------------------------------------------------


def write_results(reports: list[Report], seed: int, out: Path) -> str:
    """Write the raw record and the counts, and return the text."""
    about = machine()
    reports = sorted(reports, key=lambda report: report.plan.index)
    records = [asdict(report) for report in reports]
    write_json(out / "soak.json", {"machine": about, "seed": seed, "runs": records})
    failed = [report for report in reports if report.failures]
    summary = f"{len(reports)} runs, seed {seed}: {len(failed)} failed."
    header = ["mishap", "runs", "came before the end", "restarts", "resumed", "failed"]
    rows = [_row(mishap, [report for report in reports if report.plan.mishap == mishap]) for mishap in MISHAPS]
    settings = [
        f"{name}: {_counts(getattr(report.plan, name) for report in reports)}"
        for name in ("algorithm", "runtime", "env", "actors", "max_lag", "lag", "unroll_length", "envs_per_actor")
    ]
    told = [f"- run {report.plan.index} ({report.plan.mishap}): {'; '.join(report.failures)}" for report in failed]
    parts = ["# Soak", summary, f"{describe(about)}.", markdown_table(header, rows), "  \n".join(settings)]
    text = "\n\n".join([*parts, *(["\n".join(told)] if told else [])]) + "\n"
    (out / "soak.md").write_text(text)
    return text


def _counts(values: Any) -> str:
    return ", ".join(f"{value} ({count})" for value, count in sorted(Counter(values).items()))


def _row(mishap: str, reports: list[Report]) -> list[str]:
    return [
        mishap,
        str(len(reports)),
        str(sum(report.happened for report in reports)),
        str(sum(report.restarts for report in reports)),
        str(sum(len(report.exit_codes) > 1 and report.exit_codes[-1] == 0 for report in reports)),
        str(sum(bool(report.failures) for report in reports)),
    ]


def main() -> int:
    """Do all runs and write the results; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="index of the first run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    # Who is started in the background inherits a SIGINT that is ignored, and would hand that on to the runs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    RUNS.mkdir(parents=True, exist_ok=True)
    plans = [draw(options.seed, options.first + number) for number in range(options.runs)]
    reports: list[Report] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(soak, plan) for plan in plans]):
            reports.append(done.result())
            _show(reports[-1], len(reports), len(plans))
    print(write_results(reports, options.seed, options.out))
    return int(any(report.failures for report in reports))


def _show(report: Report, number: int, runs: int) -> None:
    plan, told = report.plan, "; ".join(report.failures) or "ok"
    layout = f"{plan.actors} actors, max_lag {plan.max_lag} {plan.lag}"
    what = f"run {plan.index}, {plan.algorithm}, {plan.runtime}, {layout}, {plan.mishap}"
    print(f"{number}/{runs} {what}: {told} ({report.seconds} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
