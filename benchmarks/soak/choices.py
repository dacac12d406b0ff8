"""What a run of the soak is drawn from, with the weights of the draw; and how large a run may be."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, NamedTuple

Mishap = Literal[
    "none",
    "kill -9 a worker",
    "kill -9 the evaluator",
    "SIGSTOP a worker",
    "SIGSTOP a worker for a second",
    "SIGSTOP the evaluator",
    "SIGSTOP all for three seconds",
    "SIGINT",
    "SIGTERM",
    "SIGINT to all",
    "SIGTERM to all",
    "kill -9 the main process",
    "full disk",
    "full disk for a second",
    "directory deleted",
    "kill -9 a member",
    "kill -9 an inference worker",
    "SIGSTOP an inference worker",
    "kill -9 a learner",
    "SIGSTOP a learner",
]
MISHAPS: dict[Mishap, int] = {
    "none": 4,
    "kill -9 a worker": 6,
    "kill -9 the evaluator": 2,
    "SIGSTOP a worker": 3,
    "SIGSTOP a worker for a second": 2,
    "SIGSTOP the evaluator": 1,
    "SIGSTOP all for three seconds": 1,
    "SIGINT": 3,
    "SIGTERM": 3,
    "SIGINT to all": 3,
    "SIGTERM to all": 3,
    "kill -9 the main process": 7,
    "full disk": 3,
    "full disk for a second": 2,
    "directory deleted": 2,
}
"""Mishap of a single run -> its weight. A worker is an actor process, or a worker of a lock-free run."""
INFERENCE_MISHAPS: dict[Mishap, int] = {"kill -9 an inference worker": 3, "SIGSTOP an inference worker": 1}
"""What may happen instead, in processes with inference workers -> its weight."""
LEARNER_MISHAPS: dict[Mishap, int] = {"kill -9 a learner": 3, "SIGSTOP a learner": 1}
"""The same in runs with several learners. They end a run."""
POPULATION_MISHAPS: dict[Mishap, int] = {
    "none": 1,
    "kill -9 a member": 3,
    "SIGINT": 1,
    "SIGTERM": 1,
    "kill -9 the main process": 2,
}
"""Mishap of a population -> its weight."""
ALL_MISHAPS = MISHAPS | INFERENCE_MISHAPS | LEARNER_MISHAPS | POPULATION_MISHAPS
POPULATIONS = 0.04
"""Share of the runs that are populations."""

Moment = Literal["starting", "begun", "learning"]
MOMENTS: dict[Moment, int] = {"starting": 1, "begun": 2, "learning": 9}
"""When the mishap comes -> its weight: as soon as the run can be stopped, as soon as there is a run directory, or after
a part of its env steps."""
LATEST = 0.7
"""The largest part of the env steps after which a mishap comes."""
KINDS = {
    ("ppo", "serial"): 2,
    ("ppo", "threads"): 3,
    ("ppo", "processes"): 6,
    ("ppo", "hogwild"): 2,
    ("a2c", "serial"): 1,
    ("a2c", "threads"): 1,
    ("a2c", "processes"): 3,
    ("a2c", "hogwild"): 2,
    ("impala", "serial"): 1,
    ("impala", "threads"): 2,
    ("impala", "processes"): 4,
    ("sac", "serial"): 1,
    ("sac", "threads"): 2,
    ("sac", "processes"): 3,
    ("sac", "hogwild"): 2,
    ("dqn", "serial"): 1,
    ("dqn", "threads"): 2,
    ("dqn", "processes"): 3,
    ("dqn", "hogwild"): 2,
}
"""Algorithm and runtime -> their weight in the draw."""
RUNTIMES = ("serial", "threads", "processes")
"""Runtimes between which a run can move when it is resumed."""
BEHAVIOURS = {"plain": 9, "raises": 1, "hangs": 1, "exits": 1, "nan": 1, "prints": 1, "spawns": 1}
"""What an env does now and then, beside being an env -> its weight in the draw; see `envs`."""

World = Literal["none", "parallel", "late", "turns", "mixed"]
WORLDS: dict[World, int] = {"none": 8, "parallel": 3, "late": 3, "turns": 3, "mixed": 3}
"""The kind of env -> its weight; see `worlds`. All but none have three agents, whose episodes end at different times:

- none: an env with one agent;
- parallel: all agents act at the same time;
- late: the same, but two of them appear later than the first;
- turns: they act one after the other;
- mixed: they act at the same time, and have different spaces, one of them images.
"""
Policies = Literal["shared", "separate", "teams", "frozen", "drawn"]
POLICIES: dict[Policies, int] = {"shared": 3, "separate": 2, "teams": 3, "frozen": 3}
"""The policies of a world -> their weight. One for all; one per agent; one for a team of two and one for a single
agent; the same, but the team does not learn."""
DRAWN = 0.5
"""Share of the leagues with "teams" in which both policies are drawn for each side instead: "drawn"."""
LEAGUES = 0.4
"""Share of the worlds, outside of lock-free runs, with a league."""
SEVERAL_PASSES = 0.35
"""Share of the runs on unrolls, outside of lock-free runs and populations, whose batches are used several times."""
LOADERS = 0.3
"""Share of the runs in threads or processes whose learner loads ahead in a thread."""
INFERENCE = 0.3
"""Share of the runs, outside of lock-free runs, leagues and populations, in which inference workers compute the
networks."""
INFERENCE_HARMED = 0.4
"""Share of these in which something happens to an inference worker, if there are any."""
SHARDS = 0.35
"""Share of the runs, outside of lock-free runs and populations, whose minibatches are cut into shards. In processes
most of them have several learners."""
LEARNER_HARMED = 0.4
"""Share of the runs with several learners in which something happens to one of them, if anything happens."""


class Size(NamedTuple):
    """How large a run may be, so that it takes about a second when its programs are loaded."""

    steps: int
    """Env steps of a run, at most."""
    replayed_steps: int
    """The same of an algorithm on a replay."""
    rows: int
    """Env steps of one column in a ticket, at most."""
    columns: int
    """Envs of a worker, at most."""
    utd_ratio: Fraction
    learning_steps: int
    """At most."""


SIZES = {
    "vector": Size(12_000, 1_000, 64, 16, Fraction(1, 4), 300),
    "box": Size(12_000, 1_000, 64, 16, Fraction(1, 4), 300),
    "image": Size(700, 300, 16, 4, Fraction(1, 16), 30),
    "recurrent": Size(1_600, 500, 16, 8, Fraction(1, 16), 50),
}
"""What is observed and done -> sizes. vector: one choice; box: numbers to act with; image: through a CNN; recurrent: a
vector, and a recurrent core."""
MOST_ROWS_OF_REPLAY = 32
"""Rows in a ticket of a replay, at most."""
TIMEOUTS_S = {"step_timeout_s": 4, "reset_timeout_s": 15}
STALL_TIMEOUTS_S = {"stall_timeout_s": 4}
"""Only where processes are stopped: a busy machine makes others look as if they stood still."""
SHORT_TIMEOUTS_S = {"step_timeout_s": 2, "stall_timeout_s": 2}
"""Shorter than all processes are stopped for in "SIGSTOP all for three seconds"."""
