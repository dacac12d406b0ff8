"""Many actors, and many envs: env steps per second, CPU time and memory.

    python -m benchmarks.actors_and_envs
    python -m benchmarks.actors_and_envs --rounds 1 --out /tmp/trial

- **Actors**: PPO on HalfCheetah-v5 in processes, four envs each, 1 to 32 actors. Batches have a ticket of each actor.
  `busy` is the CPU seconds of all its processes per second and core: on a calm machine it falls where processes wait
  for each other, on a busy one also where other programs have the cores. Env steps per CPU second say what one core
  makes.
- **Envs**: acting on CartPole-v1 in one process, 1 to 4,096 envs, without learning.

The CPU time to start an actor is that of its process until its first ticket is complete. Memory per actor is the
proportional share (PSS) of its process. Memory per env is what the run shares for it: the slots of its tickets. All
sizes take turns in each round; shown are medians (least to most) of the rounds. Writes
`results/actors-and-envs.{json,md,png}`.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.common import by_turns, describe, machine, markdown_table, spread
from benchmarks.options import new_parser, read_options
from benchmarks.records import Record, Unfinished
from benchmarks.works import CARTPOLE, HALF_CHEETAH
from offbeat.config.resolve import resolve
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_thread_count, usable_cores
from offbeat.runtime.children.supervised import Supervised
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

ACTORS = (1, 2, 4, 8, 16, 32)
ENVS = (1, 8, 64, 256, 512, 1024, 4096)
ENVS_PER_ACTOR, UNROLL = 4, 128
WARM_UP, BATCHES = 2, 8
"""Learning steps before the measurement, in which processes start and caches fill, and in it at least."""


def settings_of(work: dict[str, Any], **flags: Any) -> dict[str, Any]:
    """Return the flags of a run on a work of `works.py`."""
    kept = {key: value for key, value in work.items() if key not in {"env", "envs"}}
    return {**kept, "steps": 10**9, "split": "given", "eval_every": 0, **flags}


class Usage(NamedTuple):
    """What processes have used so far."""

    wall_s: float
    cpu_s: float
    switches: int
    """Context switches."""

    def since(self, earlier: Usage) -> Usage:
        """Return what was used after `earlier`."""
        return Usage(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s, self.switches - earlier.switches)


def usage(pids: Sequence[int]) -> Usage:
    """Return what processes have used so far (Linux)."""
    seconds, switches = 0.0, 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran_ns = (task / "schedstat").read_text().split()[0]
            seconds += int(ran_ns) / 1e9
            switches += sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())))
    return Usage(time.monotonic(), seconds, switches)


def proportional_mb(pid: int) -> float:
    """Return the memory of a process in MB, where pages of several processes are divided between them (Linux)."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found.group(1)) / 1e3 if found else float("nan")


class Run:
    """A run that is made learning step by learning step."""

    def __init__(self, env: str, flags: dict[str, Any], learning_s: float | None = None) -> None:
        """Start the actors. With `learning_s`, learning steps only sleep so many seconds."""
        self._pids: dict[int, int] = {}
        self._learning_s, self._step = learning_s, 0
        self._parts: PacedParts = build(resolve("ppo", env, flags=flags))
        self._acting = acting_of(self._parts, 0, Reporting(print, self._show))
        for policy in self._parts.policies:
            policy.learner.publish(0)
        self._acting.start([None] * self._parts.plan.runtime.actors)

    def _show(self, _role: str, processes: Sequence[Supervised]) -> None:
        self._pids = {process.index: process.pid for process in processes if process.pid}

    @property
    def steps_per_batch(self) -> int:
        """Env steps of a batch, reset rows included."""
        runtime = self._parts.config.runtime
        return int(runtime.actors * runtime.envs_per_actor * runtime.unroll_length)

    @property
    def slot_bytes(self) -> int:
        """Bytes of the arrays that actors and learner share."""
        return sum(array.nbytes for array in self._parts.arrays.values())

    @property
    def start_cpu_s(self) -> float | None:
        """CPU seconds of an actor process so far: the mean of all. None: there are none."""
        return usage([*self._pids.values()]).cpu_s / len(self._pids) if self._pids else None

    @property
    def actor_mb(self) -> float:
        """Memory of an actor process in MB: the mean of all."""
        return sum(map(proportional_mb, self._pids.values())) / len(self._pids)

    def learn(self, steps: int) -> Usage:
        """Make learning steps, and return what all processes used for them."""
        pids = [os.getpid(), *self._pids.values()]
        before = usage(pids)
        for _ in range(steps):
            self._acting.wait(self._parts.pace.acted_before_learn(self._step))
            for policy in self._parts.policies:
                if self._learning_s is None:
                    policy.learner.learn(self._step, 0.0)
                else:
                    time.sleep(self._learning_s)
                    policy.learner.publish(self._step + 1)
            self._step += 1
            self._acting.finish(self._step)
        return usage(pids).since(before)

    def close(self) -> None:
        """End the actors."""
        self._acting.close()
        self._parts.close()


# --- measurements -------------------------------------------------------------------------------------------


def measured(run: Run, env_steps: int) -> dict[str, float]:
    """Return what a run needs per env step, and close it."""
    try:
        run.learn(1)
        start = run.start_cpu_s
        run.learn(WARM_UP - 1)
        batches = max(BATCHES, env_steps // run.steps_per_batch)
        used, steps = run.learn(batches), batches * run.steps_per_batch
        return {
            "sps": steps / used.wall_s,
            "cpu_us": 1e6 * used.cpu_s / steps,
            "busy": used.cpu_s / used.wall_s / usable_cores(),
            "switches": 1e3 * used.switches / steps,
            "slot_bytes": float(run.slot_bytes),
            **({} if start is None else {"start_cpu_s": start, "actor_mb": run.actor_mb}),
        }
    finally:
        run.close()


def with_actors(actors: int, env_steps: int) -> dict[str, float]:
    """Measure a number of actors."""
    flags = settings_of(
        HALF_CHEETAH,
        runtime="processes",
        actors=actors,
        envs_per_actor=ENVS_PER_ACTOR,
        unroll_length=UNROLL,
        unrolls_per_batch=actors,
        minibatch_size=ENVS_PER_ACTOR * UNROLL,
        max_lag=1,
    )
    return measured(Run(HALF_CHEETAH["env"], flags), env_steps)


def with_envs(envs: int, env_steps: int) -> dict[str, float]:
    """Measure a number of envs of one actor."""
    flags = settings_of(
        CARTPOLE, runtime="serial", actors=1, envs_per_actor=envs, max_lag=0, minibatch_size=envs,
        normalize_advantages=False,  # refused in minibatches of one row; nothing is learned
    )  # fmt: skip
    return measured(Run(CARTPOLE["env"], flags, learning_s=0.0), env_steps)


MEASURES = {"envs": with_envs, "actors": with_actors}


# --- results ------------------------------------------------------------------------------------------------

Found = dict[str, list[dict[str, float]]]
"""By number of actors or envs: the measurements of all rounds."""


def figure(found: Found, size: str, key: str) -> list[float]:
    """Return a figure of all rounds."""
    return [of_round[key] for of_round in found[size]]


def cost_ratios(found: Found, size: str) -> list[float]:
    """Return the least CPU time of an env step, of all sizes, divided by that of a size: by round."""
    rounds = zip(*(figure(found, each, "cpu_us") for each in found), strict=True)
    return [min(of_round) / own for of_round, own in zip(rounds, figure(found, size, "cpu_us"), strict=True)]


def actor_rows(found: Found) -> Iterator[list[str]]:
    """Yield the rows of the table of actors."""
    for size in found:
        yield [
            size,
            spread(figure(found, size, "cpu_us"), ".1f"),
            spread(cost_ratios(found, size), ".2f"),
            spread(figure(found, size, "sps"), ",.0f"),
            spread(figure(found, size, "busy"), ".2f"),
            f"{median(figure(found, size, 'switches')):.0f}",
            f"{median(figure(found, size, 'start_cpu_s')):.2f}",
            f"{median(figure(found, size, 'actor_mb')):.0f}",
        ]


def env_rows(found: Found) -> Iterator[list[str]]:
    """Yield the rows of the table of envs."""
    for size in found:
        cost = figure(found, size, "cpu_us")
        yield [
            f"{int(size):,}",
            spread(cost, ".2f"),
            f"{1e6 / median(cost):,.0f}",
            f"{median(figure(found, size, 'slot_bytes')) / int(size) / 1e3:,.1f}",
        ]


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    header = [
        *("actors", "CPU us per env step", "least CPU / CPU", "env steps per second", "busy"),
        *("context switches per 1,000 env steps", "CPU s to start an actor", "MB per actor"),
    ]
    method = (
        f"`python -m benchmarks.actors_and_envs`: median (least to most) of {record['rounds']} rounds. "
        f"{describe(record['machine'])}. Load of the machine at the end: {record['load at the end']:.1f}."
    )
    return [
        "# Many actors and many envs",
        method,
        f"PPO on HalfCheetah-v5, processes, {ENVS_PER_ACTOR} envs per actor, unrolls of {UNROLL}, `max_lag` 1:",
        markdown_table(header, list(actor_rows(record["actors"]))),
        f"Acting on CartPole-v1 in one process, unrolls of {CARTPOLE['unroll_length']}:",
        markdown_table(
            ["envs", "CPU us per env step", "env steps per CPU second", "kB of slots per env"],
            list(env_rows(record["envs"])),
        ),
    ]


def draw(actors: Found, envs: Found, file: Path) -> None:
    """Draw both tables."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    picture, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for axes, found, name, title in (
        (left, actors, "actors", f"HalfCheetah-v5, PPO, processes, {ENVS_PER_ACTOR} envs per actor"),
        (right, envs, "envs", "CartPole-v1, acting, one actor"),
    ):
        speeds = [[1e6 / cost for cost in figure(found, size, "cpu_us")] for size in found]
        sizes = [int(size) for size in found]
        axes.plot(sizes, [median(speed) for speed in speeds], marker="o")
        axes.fill_between(sizes, [min(speed) for speed in speeds], [max(speed) for speed in speeds], alpha=0.2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axes.set_xlabel(name)
        axes.set_ylabel("env steps per CPU second")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    left.set_ylim(bottom=0)
    right.set_yscale("log")
    for axes in (left, right):
        axes.yaxis.set_major_formatter("{x:,.0f}")
    picture.savefig(file, dpi=120)


def main() -> None:
    """Measure all sizes and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--env-steps", type=int, default=16_384, help="env steps of each measurement, at least")
    parser.add_argument("--actors", type=int, nargs="+", default=ACTORS)
    parser.add_argument("--envs", type=int, nargs="+", default=ENVS)
    options = read_options(parser)
    warnings.simplefilter("ignore")
    set_thread_count(1)
    keep_freed_memory()
    given = {name: vars(options)[name] for name in ("rounds", "env_steps", *MEASURES)}
    unfinished = Unfinished(options.out, "actors-and-envs", **given)
    found: dict[str, Found] = {name: {str(size): [] for size in vars(options)[name]} for name in MEASURES}
    sizes = [(name, size) for name in MEASURES for size in vars(options)[name]]
    for number, (name, size) in by_turns(sizes, options.rounds):
        one = unfinished.run({"round": number, name: size}, partial(MEASURES[name], size, options.env_steps))
        print(*one.items(), flush=True)
        found[name][str(size)].append({key: value for key, value in one.items() if key not in ("round", name)})
    load = os.getloadavg()[0]
    record = {"machine": machine(), "load at the end": load, "rounds": options.rounds, **found}
    unfinished.publish(record, *page(record))
    draw(record["actors"], record["envs"], options.out / "actors-and-envs.png")


if __name__ == "__main__":
    main()
