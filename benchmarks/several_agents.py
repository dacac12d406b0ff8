"""What several agents and several policies cost: pairs of runs in the serial runtime, measured in turn.

    python -m benchmarks.several_agents
    python -m benchmarks.several_agents --pairs 4 --out /tmp/trial

All sides have 32 columns of CartPole and the same hyperparameters:

- `single`: 32 envs with one agent each;
- `shared`: 8 worlds with 4 agents each, which one policy acts for;
- `two`: the same worlds, with two policies for two agents each.

In the work `short`, all episodes are truncated after 8 steps, so each side has the same share of reset rows. In
`whole`, the episode of each agent ends by itself. An agent that has ended waits for the others of its world in reset
rows, so an agent step of `whole` costs more: there, the cost of a row is compared.

A pair measures both sides for some learning steps each, A B, then B A, and so on, in one process. A figure is the
median of the pairs' ratios. Instructions are counted by `perf stat`, where the processor's counters can be read. Writes
`results/several-agents.{json,md}`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from time import process_time
from typing import Any, NamedTuple

from benchmarks.common import describe, machine, markdown_table, publish, spread
from benchmarks.options import new_parser, read_options
from offbeat.config.resolve import resolve
from offbeat.core.process.allocator import keep_freed_memory
from offbeat.core.process.threads import set_thread_count
from offbeat.envs.testing.worlds import CartPoles
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.runtime.runtimes import acting_of, build

SINGLE = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
"""CartPole by the path of its class: the id CartPole-v1 has a vector env, which steps all columns with one call."""
WORLDS = "benchmarks.several_agents:FourCarts"
CARTS, COLUMNS = 4, 32
SETTINGS: dict[str, Any] = {
    "runtime": "serial", "split": "given", "actors": 1, "unroll_length": 32, "eval_every": 0, "epochs": 4,
    "learning_rate_schedule": "linear", "normalize_observations": False, "normalize_returns": False,
}  # fmt: skip
TWO = {"first": {"agents": ["cart_0", "cart_1"]}, "second": {"agents": ["cart_2", "cart_3"]}}
SIDES: dict[str, tuple[str, dict[str, Any]]] = {
    "single": (SINGLE, {"envs_per_actor": COLUMNS, "minibatch_size": 256}),
    "shared": (WORLDS, {"envs_per_actor": COLUMNS // CARTS, "minibatch_size": 256}),
    "two": (WORLDS, {"envs_per_actor": COLUMNS // CARTS, "minibatch_size": 128, "policies": TWO}),
}
"""Env and flags of each side. Each policy makes as many updates of a batch as the others."""
PAIRS = (("single", "shared"), ("shared", "two"))
WORKS: dict[str, dict[str, Any]] = {"short": {"max_episode_steps": 8}, "whole": {"max_episode_steps": 500}}


class FourCarts(CartPoles):
    """A world with four carts."""

    def __init__(self) -> None:
        super().__init__(CARTS)


class Spent(NamedTuple):
    """CPU time of some learning steps, and what was done in it."""

    acting: float
    """Seconds, envs included."""
    learning: float
    agent_steps: int
    rows: int
    """Rows of all columns, reset rows included."""

    @property
    def total(self) -> float:
        return self.acting + self.learning


class Side:
    """A run that is made step by step."""

    def __init__(self, name: str, work: str) -> None:
        env, flags = SIDES[name]
        config = resolve("ppo", env, flags={**SETTINGS, **WORKS[work], **flags})
        self._parts: PacedParts = build(config)
        self._acting = acting_of(self._parts, 0, Reporting(print, lambda _role, _processes: None))
        for policy in self._parts.policies:
            policy.learner.publish(0)
        self._acting.start([None])
        self._step = 0

    def run(self, steps: int) -> Spent:
        """Make learning steps, and return what they took."""
        acting = learning = 0.0
        agent_steps = 0
        for _ in range(steps):
            started = process_time()
            self._acting.wait(self._parts.pace.acted_before_learn(self._step))
            acted = process_time()
            learned = [policy.learner.learn(self._step, 0.0) for policy in self._parts.policies]
            self._step += 1
            self._acting.finish(self._step)
            acting, learning = acting + acted - started, learning + process_time() - acted
            agent_steps += sum(of_policy.agent_steps for of_policy in learned)
        return Spent(acting, learning, agent_steps, steps * COLUMNS * self._parts.config.runtime.unroll_length)

    def close(self) -> None:
        self._acting.close()
        self._parts.close()


# --- pairs --------------------------------------------------------------------------------------------------


def measure(work: str, names: tuple[str, str], pairs: int, steps: int) -> Iterator[dict[str, Spent]]:
    """Yield what both sides took in each pair."""
    sides = {name: Side(name, work) for name in names}
    for side in sides.values():
        side.run(3)
    for pair in range(pairs):
        order = names if pair % 2 == 0 else names[::-1]
        spent = {name: sides[name].run(steps) for name in order}
        yield {name: spent[name] for name in names}
    for side in sides.values():
        side.close()


def ratios(work: str, pairs: list[dict[str, Spent]]) -> dict[str, list[float]]:
    """Return the ratios of the second side's costs to the first's: by part of the run, one for each pair."""
    per = "agent_steps" if work == "short" else "rows"
    found: dict[str, list[float]] = {"total": [], "acting": [], "learning": []}
    for pair in pairs:
        first, second = pair.values()
        for part, values in found.items():
            values.append(getattr(second, part) / getattr(second, per) / (getattr(first, part) / getattr(first, per)))
    return found


# --- instructions -------------------------------------------------------------------------------------------


def instructions(name: str, work: str, steps: int) -> float | None:
    """Return the instructions for each row of a side; None where they cannot be counted."""
    few = _counted(name, work, steps)
    many = None if few is None else _counted(name, work, 5 * steps)
    return None if few is None or many is None else (many - few) / (4 * steps * COLUMNS * SETTINGS["unroll_length"])


def _counted(name: str, work: str, steps: int) -> float | None:
    command = ["perf", "stat", "-x,", "-e", "instructions:u", sys.executable, "-m", "benchmarks.several_agents"]
    try:
        done = subprocess.run(
            [*command, "--only", name, work, "--steps", str(steps)], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):  # there is no perf, or it may not count
        return None
    counts = [line.partition(",")[0] for line in done.stderr.splitlines() if "instructions" in line]
    return float(counts[-1]) if counts and counts[-1].isdigit() else None


# --- results ------------------------------------------------------------------------------------------------


def page(record: dict[str, Any]) -> list[str]:
    """Return the paragraphs of the page."""
    counts = record["instructions per row"]
    header = ["work", "sides", "per", "run", "acting", "learning", "us per agent step"]
    rows = [_row(pairs) for pairs in record["pairs"]]
    counted = "Instructions per row: " + ", ".join(f"{name} {value:,.0f}" for name, value in counts.items() if value)
    return [
        "# Several agents",
        "CPU time of the second side, as a multiple of that of the first: median (least to most) of the pairs.",
        f"{describe(record['machine'])}.",
        markdown_table(header, rows),
        counted + "." if any(counts.values()) else "Instructions cannot be counted on this machine.",
    ]


def _row(record: dict[str, Any]) -> list[str]:
    first, second = record["sides"]
    parts = [spread(record["ratios"][part], ".2f") for part in ("total", "acting", "learning")]
    per = "agent step" if record["work"] == "short" else "row"
    costs = " / ".join(f"{record['us'][name]:.1f}" for name in (first, second))
    return [record["work"], f"{second} to {first}", per, *parts, costs]


def main() -> None:
    """Measure all pairs and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=80)
    parser.add_argument("--steps", type=int, default=2, help="learning steps of each side of a pair")
    parser.add_argument("--only", nargs=2, metavar=("SIDE", "WORK"), help="only run one side, and write nothing")
    options = read_options(parser, unless="only")
    set_thread_count(1)
    keep_freed_memory()
    if options.only:
        Side(*options.only).run(options.steps)
        return
    records = []
    for work in WORKS:
        for names in PAIRS:
            pairs = list(measure(work, names, options.pairs, options.steps))
            us = {name: 1e6 * median(pair[name].total / pair[name].agent_steps for pair in pairs) for name in names}
            raw = [{name: list(spent) for name, spent in pair.items()} for pair in pairs]
            records.append({"work": work, "sides": names, "ratios": ratios(work, pairs), "us": us, "raw": raw})
            print(_row(records[-1]), flush=True)
    counts = {name: instructions(name, "short", options.steps) for name in SIDES}
    columns = {"instructions per row": counts, "columns of raw": Spent._fields, "pairs": records}
    record = {"machine": machine(), **columns}
    publish(options.out, "several-agents", record, *page(record))


if __name__ == "__main__":
    main()
