"""What one run is and what happens to it: drawn from a seed and an index alone, and typed as arguments of `offbeat`."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import OPTIONAL_KEYS, runtime_entry

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
]
MISHAPS: dict[Mishap, int] = {
    "none": 4,
    "kill -9 a worker": 6,
    "kill -9 the evaluator": 2,
    "SIGSTOP a worker": 4,
    "SIGSTOP a worker for a second": 2,
    "SIGSTOP the evaluator": 2,
    "SIGSTOP all for three seconds": 1,
    "SIGINT": 2,
    "SIGTERM": 2,
    "SIGINT to all": 3,
    "SIGTERM to all": 3,
    "kill -9 the main process": 5,
    "full disk": 3,
    "full disk for a second": 2,
    "directory deleted": 2,
}
"""Mishap -> its weight in the draw. A worker is an actor process, or a worker of a lock-free run."""
Agents = Literal["one", "shared", "separate", "league", "league by turns"]
AGENTS: dict[Agents, int] = {"one": 10, "shared": 2, "separate": 2, "league": 2, "league by turns": 1}
"""The agents of an env and their policies -> their weight in the draw. All but one are a world with three agents:

- shared: one policy for all;
- separate: a policy each;
- league: one policy in a team of two and one alone, against snapshots; by turns: one of them learns at a time.
"""
POLICIES = "policies.toml"
TEAM = "benchmarks.soak.envs:Team"
Moment = Literal["starting", "begun", "learning"]
MOMENTS: dict[Moment, int] = {"starting": 1, "begun": 2, "learning": 7}
"""When the mishap comes -> its weight: as soon as the run can be stopped, as soon as there is a run directory, or after
the first line of metrics."""
KINDS = {
    ("ppo", "serial"): 2,
    ("ppo", "threads"): 3,
    ("ppo", "processes"): 6,
    ("ppo", "hogwild"): 2,
    ("a2c", "serial"): 1,
    ("a2c", "threads"): 1,
    ("a2c", "processes"): 2,
    ("a2c", "hogwild"): 3,
    ("impala", "serial"): 1,
    ("impala", "threads"): 1,
    ("impala", "processes"): 4,
    ("sac", "serial"): 1,
    ("sac", "threads"): 1,
    ("sac", "processes"): 3,
    ("sac", "hogwild"): 3,
    ("dqn", "serial"): 1,
    ("dqn", "threads"): 1,
    ("dqn", "processes"): 3,
    ("dqn", "hogwild"): 3,
}
"""Algorithm and runtime -> their weight in the draw."""
BEHAVIOURS = {"plain": 8, "raises": 1, "hangs": 1, "exits": 1, "nan": 1, "prints": 1, "spawns": 2}
"""What an env does now and then, beside being an env -> its weight in the draw; see `envs`."""


class Size(NamedTuple):
    """How large a run may be, so that it takes a few seconds."""

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
    "vector": Size(40_000, 3_000, 64, 16, Fraction(1, 4), 2000),
    "box": Size(40_000, 3_000, 64, 16, Fraction(1, 4), 2000),
    "image": Size(1_500, 600, 16, 4, Fraction(1, 16), 60),
    "recurrent": Size(4_000, 1_000, 16, 8, Fraction(1, 16), 100),
}
"""What is observed and done -> sizes. vector: one choice; box: numbers to act with; image: through a CNN; recurrent: a
vector, and a recurrent core."""
TIMEOUTS_S = {"step_timeout_s": 2, "reset_timeout_s": 10}
STALL_TIMEOUTS_S = {"stall_timeout_s": 2}
"""Only where processes are stopped: a busy machine makes others look as if they stood still."""
MOST_ROWS_OF_REPLAY = 64
"""Rows in a ticket of a replay, at most."""


@dataclass(frozen=True)
class Plan:
    """One run; `draw` makes it."""

    index: int
    algorithm: str
    runtime: str
    kind: str
    """A key of `SIZES`."""
    behaviour: str
    """A key of `BEHAVIOURS`."""
    times: int
    """How often envs raise, hang and so on, all envs of the run together."""
    actors: int
    """Workers, in hogwild."""
    max_lag: int
    """On a replay, how far actors are ahead beyond one ticket each."""
    lag: str
    unroll_length: int
    """On a replay, env steps of a ticket."""
    envs_per_actor: int
    learning_steps: int
    """About so many, unless `SIZES` allows fewer."""
    evaluates: bool
    mishap: Mishap
    kills: int
    """How many workers are killed."""
    moment: Moment
    """When the mishap comes."""
    delay_s: float
    """Seconds from then to the mishap."""
    victim: float
    """Which worker, from 0 to 1."""
    agents: Agents = "one"

    def __str__(self) -> str:
        layout = f"{self.actors} x {self.envs_per_actor} envs, lag {self.max_lag} {self.lag}"
        return (
            f"run {self.index}, {self.algorithm}, {self.runtime}, {self.kind} {self.behaviour}, agents {self.agents}, "
            f"{layout}, {self.mishap}"
        )

    @property
    def env(self) -> str:
        if self.agents != "one":
            return TEAM
        if self.behaviour == "plain" and self.kind in ("vector", "box"):
            return {"vector": "CartPole-v1", "box": "Pendulum-v1"}[self.kind]
        return f"soak/{self.shape}-{self.behaviour}-v0"

    @property
    def shape(self) -> str:
        """What the env is like: the first part of its name."""
        return {"vector": "Vector", "box": "Box", "image": "Image", "recurrent": "Vector"}[self.kind]

    @property
    def replayed(self) -> bool:
        return self.algorithm in ("sac", "dqn")

    @property
    def lock_free(self) -> bool:
        return self.runtime == "hogwild"

    @property
    def has_worker_processes(self) -> bool:
        return self.runtime in ("processes", "hogwild")

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
    def warmup(self) -> int:
        """Env steps of a replay before the first update: with a core it must hold whole sequences of each column."""
        return max(128, 2 * self.actors * self.batch) if self.kind == "recurrent" else 128

    @property
    def steps(self) -> int:
        """Env steps of the run."""
        size = SIZES[self.kind]
        wanted = min(self.learning_steps, size.learning_steps) * self.batch
        return min(wanted, size.replayed_steps if self.replayed else size.steps)

    def train(self, run_dir: str) -> list[str]:
        """Return the arguments of `offbeat` that train."""
        evaluations = 8 if self.mishap.endswith("the evaluator") else 2
        flags = (
            f"train {self.algorithm} {self.env} --runtime {self.runtime} --envs-per-actor {self.envs_per_actor} "
            f"--steps {self.steps} --seed {self.index} --eval-every {self.steps // evaluations * self.evaluates} "
            f"--progress none --run-dir {run_dir} --{'workers' if self.lock_free else 'actors'} {self.actors} "
            "--import benchmarks.soak.envs"
        )
        settings = [*self._network(), *self._timeouts(), *self._pace(), *self._learning(), "eval_episodes=2"]
        return [*flags.split(), *self._policies(), "--set", *settings, *self._world()]

    def _policies(self) -> list[str]:
        """Return the flag of the policies; the tables are in a file that the harness writes."""
        if self.agents in ("one", "shared"):
            return []
        return ["--policies", "separate" if self.agents == "separate" else POLICIES]

    @property
    def policy_tables(self) -> str:
        """The content of the file `POLICIES`: tables of two policies."""
        return '[policies.red]\nagents = "red_*"\n[policies.blue]\nagents = "blue_*"\n'

    def _world(self) -> list[str]:
        if self.agents == "one":
            return []
        league = ["league.window=2", "league.snapshot_every=10"] if self.agents.startswith("league") else []
        turns = ["league.team_change_every=5"] if self.agents == "league by turns" else []
        return [f"env.kwargs.shape={self.shape}", f"env.kwargs.behaviour={self.behaviour}", *league, *turns]

    def _network(self) -> list[str]:
        return {"image": [], "recurrent": ["hidden_sizes=16", "core=gru", "core_size=8"]}.get(
            self.kind, ["hidden_sizes=32,32"]
        )

    def _timeouts(self) -> list[str]:
        known = {field.name for field in fields(RuntimeConfig)}
        wanted = TIMEOUTS_S | (STALL_TIMEOUTS_S if self.mishap.startswith("SIGSTOP") else {})
        known -= {*OPTIONAL_KEYS} - {*runtime_entry(self.runtime).supports}
        here = {key: s for key, s in wanted.items() if key in known}
        return [f"{key}={seconds}" for key, seconds in here.items()]

    def _pace(self) -> list[str]:
        if self.lock_free:
            return []
        ahead = f"max_ahead={self.actors - 1 + self.max_lag}" if self.replayed else f"max_lag={self.max_lag}"
        return [f"lag={self.lag}", ahead]

    def _learning(self) -> list[str]:
        rows = self.unroll_length
        if self.replayed:
            sequences = [f"burn_in={rows}"] if self.kind == "recurrent" else []
            replay = (
                f"warmup={self.warmup} utd_ratio={SIZES[self.kind].utd_ratio} capacity=4000 batch_size={max(32, rows)}"
            )
            return [f"chunk_length={rows}", *replay.split(), *sequences]
        ppo = [f"minibatch_size={self.batch}", "epochs=2"] if self.algorithm == "ppo" else []
        return [f"unroll_length={rows}", *ppo]


def draw(seed: int, index: int) -> Plan:
    """Draw the plan of a run."""
    dice = random.Random(f"{seed}/{index}")
    algorithm, runtime = _one_of(dice, KINDS)
    kind = dice.choice([kind for kind in SIZES if algorithm != "dqn" or kind != "box"])
    mishap = _one_of(
        dice, {m: w for m, w in MISHAPS.items() if runtime in ("processes", "hogwild") or "worker" not in m}
    )
    size = SIZES[kind]
    rows = dice.choice([rows for rows in (8, 16, 32, 64) if rows <= size.rows])
    columns = dice.choice([columns for columns in (1, 2, 4, 8, 16) if columns <= size.columns])
    if algorithm in ("sac", "dqn"):
        rows = min(rows, 16)
        columns = min(columns, MOST_ROWS_OF_REPLAY // rows)
    agents = _one_of(dice, AGENTS)
    if runtime == "hogwild" and agents != "one":
        agents = "shared"  # lock-free workers share one policy
    return Plan(
        index=index,
        agents=agents,
        algorithm=algorithm,
        runtime=runtime,
        kind=kind,
        behaviour=_one_of(dice, BEHAVIOURS),
        times=dice.choice((1, 1, 2)),
        actors=dice.randint(1, 3),
        max_lag=dice.randint(0, 3),
        lag=dice.choice(("bounded", "exact")),
        unroll_length=rows,
        envs_per_actor=columns,
        learning_steps=dice.choice((200, 500, 1000, 2000)),
        evaluates=dice.random() < 0.6 or mishap.endswith("the evaluator"),
        mishap=mishap,
        kills=dice.choice((1, 1, 2)),
        moment=_one_of(dice, MOMENTS),
        delay_s=dice.uniform(0.0, 1.0),
        victim=dice.random(),
    )


def _one_of(dice: random.Random, weights: dict[Any, int]) -> Any:
    return dice.choices(tuple(weights), tuple(weights.values()))[0]
