"""Simulate runs on 1 to 1,000 nodes with measured costs, and say which part limits each of them.

    python -m benchmarks.cluster_simulation                         all works: five minutes
    python -m benchmarks.cluster_simulation --works simulator --nodes 1 10 100 --out /tmp/trial

Acting and learning cost what `benchmarks/layouts.py` has measured, messages and weights what `benchmarks/ray_costs.py`
has. The simulator is in `cluster_events.py`. Writes `results/cluster-simulation.json`, `.md` and `.png`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster_events import Cluster, MessageCosts, Result
from benchmarks.common import RESULTS, describe, markdown_table, publish
from benchmarks.layouts import runs_of, summary
from benchmarks.options import new_parser, read_options
from offbeat.core.pace import OnPolicyPace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]
NODES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
ACTORS_PER_NODE = 16
GIGABIT = 1e9 / 8
"""Bytes per second."""
WARM_UP, STEPS = 3, 5
"""Learning steps before, and in, a measurement; more of them if a batch has fewer tickets than there are actors."""
SCALES = 0.8
"""A run scales as long as a node adds at least this part of what the first one reached."""


@dataclass(frozen=True)
class Setting:
    """What a run is set to."""

    ticket_ms: float = 100.0
    """Milliseconds of acting a ticket; 0: a message for each step of the envs, with the network beside the learner."""
    batch: int | None = None
    """Tickets of a batch; None: `tickets_per_actor` of each actor."""
    tickets_per_actor: int = 1
    """Tickets of each actor in a batch: with more of them there are fewer versions of the weights."""
    max_lag: int = 1
    learners: int = 1
    """Learners that share each update."""
    gigabits: float = 10.0
    """Network connection of the learner's node, in Gbit/s."""


@dataclass(frozen=True)
class Work:
    """An env, an algorithm and networks, and the settings that are compared on it."""

    title: str
    measured: tuple[str, str]
    """Work and side in `results/layouts.json` whose costs it has."""
    row_bytes: float
    """Bytes of a row of an unroll: observation, action, reward, ends, log-probability, episode."""
    weights_bytes: float
    envs_per_actor: int
    settings: dict[str, Setting]
    env_us: float | None = None
    """Assumed time of an env step; None: as measured."""
    learner_times: float = 1.0
    """Assumed: how many times faster the learner is than the measured one."""

    def costs(self) -> tuple[float, float]:
        """Return microseconds per env step of acting and of learning."""
        runs = json.loads((RESULTS / "layouts.json").read_text())["runs"]
        run = summary(runs_of(runs, *self.measured))
        env = run["c_env_us"] if self.env_us is None else self.env_us
        return env + run["c_act_us"], run["c_learn_us"] / self.learner_times


WORKS = {
    "halfcheetah": Work(
        "HalfCheetah-v5, 0.03 ms an env step, MLP", ("halfcheetah", "processes-2"), 117, 23_000, 16,
        {
            "tickets of 100 ms": Setting(),
            "4 learners share the updates": Setting(learners=4),
            "tickets of 10 ms": Setting(ticket_ms=10),
            "a message for each env step": Setting(ticket_ms=0),
        },
    ),
    "simulator": Work(
        "A simulator with 5 ms an env step, MLP", ("halfcheetah", "processes-2"), 117, 23_000, 4,
        {
            "tickets of 100 ms": Setting(),
            "tickets of 1 s": Setting(ticket_ms=1000),
            "tickets of 1 s, max_lag 3": Setting(ticket_ms=1000, max_lag=3),
            "tickets of 1 s, batches of 512 tickets": Setting(ticket_ms=1000, batch=512),
            "a message for each env step": Setting(ticket_ms=0),
        },
        env_us=5000,
    ),
    "images": Work(
        "A simulator with images and 5 ms an env step, Nature CNN", ("pong", "processes-2"), 7_530, 6_750_000, 4,
        {
            "tickets of 100 ms": Setting(),
            "8 learners share the updates": Setting(learners=8),
            "8 learners, 4 tickets of each actor in a batch": Setting(learners=8, tickets_per_actor=4),
            "8 learners, tickets of 1 s": Setting(learners=8, ticket_ms=1000),
            "8 learners, tickets of 1 s, 100 Gbit/s": Setting(learners=8, ticket_ms=1000, gigabits=100),
        },
        env_us=5000, learner_times=15.0,
    ),
}  # fmt: skip


def cluster(work: Work, setting: Setting, nodes: int, costs: MessageCosts) -> Cluster:
    """Return a run of a work on a cluster."""
    acting_us, learning_us = work.costs()
    actors = nodes * ACTORS_PER_NODE
    whole = max(work.envs_per_actor, round(1e3 * setting.ticket_ms / acting_us))
    batch = actors * setting.tickets_per_actor if setting.batch is None else setting.batch
    return Cluster(
        OnPolicyPace(batch, setting.max_lag),
        nodes,
        ACTORS_PER_NODE,
        env_steps=whole,
        acting_us=acting_us,
        learning_us=learning_us / setting.learners,
        row_bytes=work.row_bytes,
        weights_bytes=work.weights_bytes if setting.ticket_ms else 0.0,
        costs=costs,
        bytes_per_s=setting.gigabits * GIGABIT,
    )


def simulated(run: Cluster) -> Record:
    """Simulate a run and return what it reached, with the limits of the library's speed model."""
    rounds = max(1, run.actors // run.pace.unrolls_per_batch)
    result: Result = run.run((WARM_UP + STEPS) * rounds, WARM_UP * rounds)
    model = run.speed_model()
    return {
        "nodes": run.nodes,
        "actors": run.actors,
        "sps": round(result.sps, 1),
        "bound_by": result.bound_by,
        "busy": {name: round(part, 3) for name, part in result.busy.items()},
        "limit_sps": round(model.limit_sps, 1),
        "limit_of": model.bound_by,
        "actors_fed": round(model.actors_fed, 1),
    }


def simulate(names: list[str], nodes: list[int]) -> Iterator[Record]:
    """Simulate the works on these numbers of nodes; yield a record for each setting."""
    costs = MessageCosts.read(RESULTS / "ray-costs.json", "other")
    for name in names:
        work = WORKS[name]
        for title, setting in work.settings.items():
            first = cluster(work, setting, 1, costs)
            yield {
                "work": name,
                "setting": title,
                "env_steps_of_a_ticket": first.env_steps,
                "ticket_ms": round(1e3 * first.ticket_s, 2),
                "acting_us": first.acting_us,
                "learning_us": first.learning_us,
                "runs": [simulated(cluster(work, setting, count, costs)) for count in nodes],
            }


# --- results ------------------------------------------------------------------------------------------------


def scales_to(runs: list[Record]) -> Record:
    """Return the run with the most nodes of which each adds at least `SCALES` of what a node adds in the first run."""
    of_a_node = runs[0]["sps"] / runs[0]["nodes"]
    return max((run for run in runs if run["sps"] >= SCALES * run["nodes"] * of_a_node), key=lambda run: run["nodes"])


def page(record: Record) -> list[str]:
    """Return the paragraphs of the page."""
    method = (
        "`python -m benchmarks.cluster_simulation`. Nodes have 16 actors each, and the learner has another node with a "
        "network connection of 10 Gbit/s, unless a line says otherwise. The costs of acting and learning are those of "
        "[layouts.json](layouts.json), those of messages and weights those between two nodes in "
        "[ray-costs.md](ray-costs.md). A batch has one ticket of each actor, and `max_lag` is 1."
    )
    assumed = (
        "Assumed, not measured: the connection, the simulators' 5 ms, that the learner of the Nature CNN is 15 times "
        "as fast as one core (a GPU), that learners share the work evenly, and that the times of tickets differ by "
        "10 % (standard deviation)."
    )
    columns = (
        f"*Scales to*: the most nodes with at least {SCALES:.0%} of the speed per node of the fewest. *Bound by*: the "
        "part that is busy more than 90 % of the time with the most nodes; *pace* if none is, so that they wait for "
        "each other. *Limit*: that of the library's speed model."
    )
    parts = ["# Clusters, simulated", method, assumed, columns, f"Messages measured on: {describe(record['machine'])}."]
    parts.append("![Env steps per second by the number of nodes](cluster-simulation.png)")
    for name, work in WORKS.items():
        settings = [setting for setting in record["settings"] if setting["work"] == name]
        if settings:
            parts += [f"## {work.title}", _table(settings)]
    return parts


def _table(settings: list[Record]) -> str:
    fewest, most = (settings[0]["runs"][index]["nodes"] for index in (0, -1))
    header = [
        *(
            "setting",
            "env steps a ticket",
            f"{fewest:,} node{'s' * (fewest > 1)}, SPS",
            "scales to, nodes",
            "SPS there",
        ),
        *(f"{most:,} nodes, SPS", "limit, SPS", "bound by", "actors a learner can feed"),
    ]
    rows = []
    for setting in settings:
        runs = setting["runs"]
        there, last = scales_to(runs), runs[-1]
        rows.append([
            *(setting["setting"], f"{setting['env_steps_of_a_ticket']:,}", f"{runs[0]['sps']:,.0f}"),
            *(f"{there['nodes']:,}", f"{there['sps']:,.0f}", f"{last['sps']:,.0f}", f"{last['limit_sps']:,.0f}"),
            *(last["bound_by"], f"{last['actors_fed']:,.0f}"),
        ])  # fmt: skip
    return markdown_table(header, rows).rstrip()


MARKS = {"actors": "o", "learner": "s", "messages": "^", "sending weights": "v", "receiving rows": "D", "pace": "X"}
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""


def draw(record: Record, path: Path) -> None:
    """Draw env steps per second over nodes, a panel for each work; marks name what limits a run."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(setting["work"] for setting in record["settings"]))
    figure, panels = plt.subplots(1, len(names), figsize=(5.4 * len(names), 5), layout="constrained", squeeze=False)
    for axes, name in zip(panels[0], names, strict=True):
        _draw_work(axes, WORKS[name], [setting for setting in record["settings"] if setting["work"] == name])
    panels[0][0].set_ylabel("env steps per second")
    found = {run["bound_by"] for setting in record["settings"] for run in setting["runs"]}
    marks = [
        Line2D([], [], marker=mark, linestyle="", color="0.3", label=name)
        for name, mark in MARKS.items()
        if name in found
    ]
    figure.legend(handles=marks, ncols=len(marks), loc="outside lower center", title="bound by", fontsize="small")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _draw_work(axes: Axes, work: Work, settings: list[Record]) -> None:
    nodes = [run["nodes"] for run in settings[0]["runs"]]
    always = [1e6 / settings[0]["acting_us"] * run["actors"] for run in settings[0]["runs"]]
    axes.plot(nodes, always, color="0.6", linestyle=":", label="all actors act all the time")
    for color, setting in zip(COLORS, settings, strict=False):
        axes.plot(nodes, [run["sps"] for run in setting["runs"]], label=setting["setting"], color=color)
        for run in setting["runs"]:
            axes.plot(run["nodes"], run["sps"], MARKS[run["bound_by"]], color=color, markersize=6)
    speeds = [run["sps"] for setting in settings for run in setting["runs"]]
    axes.set(xscale="log", yscale="log", xlabel=f"nodes with {ACTORS_PER_NODE} actors each")
    axes.set_title(work.title, size="medium")
    axes.set_ylim(min(speeds) / 1.5, 12 * max(speeds))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small", loc="upper left")


def main() -> None:
    """Simulate, and write the results."""
    parser = new_parser(__doc__)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--nodes", nargs="+", type=int, default=list(NODES))
    options = read_options(parser)
    measured = json.loads((RESULTS / "ray-costs.json").read_text())
    record: Record = {"machine": measured["machine"], "ray": measured["ray"], "settings": []}
    for setting in simulate(options.works, options.nodes):
        record["settings"].append(setting)
        last = setting["runs"][-1]
        print(
            f"{setting['work']}, {setting['setting']}: {last['sps']:,.0f} SPS, bound by {last['bound_by']}", flush=True
        )
    publish(options.out, "cluster-simulation", record, *page(record))
    draw(record, options.out / "cluster-simulation.png")


if __name__ == "__main__":
    main()
