"""What one run is and what happens to it, as arguments of `offbeat`. `draw` makes it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from benchmarks.soak.choices import (
    SHORT_TIMEOUTS_S,
    SIZES,
    STALL_TIMEOUTS_S,
    TIMEOUTS_S,
    Mishap,
    Moment,
    Policies,
    World,
)
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.runtimes import OPTIONAL_KEYS, runtime_entry

TABLES = "policies.toml"
"""File with the tables of the policies, in the folder of the run."""
EARLIER_TABLES = "earlier-policies.toml"
"""The same of the earlier run that has the weights of a policy that does not learn."""
EARLIER = "earlier"
"""The directory of that run."""
SHAPES = {"vector": "Vector", "box": "Box", "image": "Image", "recurrent": "Vector"}
"""What is observed and done -> the first part of the name of an env."""
FORMS = {"parallel": "Team", "late": "Late", "turns": "Turns", "mixed": "Team"}
"""World -> its class in `worlds`."""


@dataclass(frozen=True)
class Plan:
    """One run, or a population of runs."""

    index: int
    algorithm: str
    runtime: str
    kind: str
    """A key of `SIZES`."""
    behaviour: str
    """A key of `BEHAVIOURS`."""
    times: int
    """How often envs raise, hang and so on, all envs of the run together."""
    world: World
    policies: Policies
    league: tuple[str, ...]
    """Settings of the league; empty: none."""
    starts_from: bool
    """Whether the run starts from the weights of an earlier one."""
    actors: int
    """Workers, in hogwild."""
    max_lag: int
    """On a replay, how far actors are ahead beyond one ticket each."""
    lag: str
    unroll_length: int
    """On a replay, env steps of a ticket."""
    envs_per_actor: int
    env_groups: int
    learner_workers: int
    synced: bool
    """Whether lock-free workers compute with a copy of the parameters."""
    learning_steps: int
    """About so many, unless `SIZES` allows fewer."""
    evaluates: bool
    mishap: Mishap
    kills: int
    """How many workers are killed."""
    moment: Moment
    """When the mishap comes."""
    progress: float
    """Part of the env steps after which it comes, if the moment is "learning"."""
    delay_s: float
    """Seconds from any other moment to the mishap."""
    victim: float
    """Which worker, from 0 to 1."""
    resumes_in: str
    """The runtime in which the run is resumed."""
    passes: int = 1
    """How often a batch is used."""
    resident_batches: int = 1
    """Batches that are used in turn, if they are used several times."""
    load_ahead: int = 0
    """How far a thread of the learner loads ahead; 0: there is none."""
    inference_workers: int = 0
    """Inference workers, or groups for which actors compute the networks; 0: each actor computes its own."""
    arrival: bool = False
    """Whether inference workers make batches of the requests that have arrived."""
    shards: int = 1
    """Parts of a minibatch."""
    learners: int = 1
    """Learners that compute the shards, each a process."""
    members: int = 0
    """Members of a population; 0: a single run."""

    def __str__(self) -> str:
        layout = f"{self.actors} x {self.envs_per_actor} envs, lag {self.max_lag} {self.lag}"
        world = "" if self.world == "none" else f"{self.world} {self.policies}{' league' if self.league else ''}, "
        passes = f"{self.resident_batches} x {self.passes} passes, " if self.passes > 1 else ""
        inference = f"{self.inference_workers} inference workers, " if self.inference_workers else ""
        ahead = f"loads {self.load_ahead} ahead, " if self.load_ahead else ""
        shards = f"{self.shards} shards, {self.learners} learners, " if self.shards > 1 else ""
        population = f"{self.members} members, " if self.members else ""
        return (
            f"run {self.index}, {population}{self.algorithm}, {self.runtime}, {self.kind} {self.behaviour}, {world}"
            f"{layout}, {passes}{ahead}{inference}{shards}{self.mishap}"
        )

    # --- what follows from the plan ---------------------------------------------------------------------------

    @property
    def env(self) -> str:
        if self.world != "none":
            return f"benchmarks.soak.worlds:{FORMS[self.world]}"
        if self.behaviour == "plain" and self.kind in ("vector", "box"):
            return {"vector": "CartPole-v1", "box": "Pendulum-v1"}[self.kind]
        return f"soak/{SHAPES[self.kind]}-{self.behaviour}-v0"

    @property
    def shapes(self) -> str:
        """The shapes of the agents of a world."""
        if self.world != "mixed":
            return ",".join([SHAPES[self.kind]] * 3)
        return "Vector,Vector,Image" if self.algorithm == "dqn" else "Vector,Box,Image"

    @property
    def replayed(self) -> bool:
        return self.algorithm in ("sac", "dqn")

    @property
    def hogwild(self) -> bool:
        return self.runtime == "hogwild"

    @property
    def exact(self) -> bool:
        """Whether the config alone determines the weights; a restart of a worker ends that."""
        return not self.hogwild and (self.lag == "exact" or self.runtime == self.resumes_in == "serial")

    @property
    def has_earlier(self) -> bool:
        """Whether an earlier run has weights that this one starts from."""
        return self.starts_from or self.policies == "frozen"

    @property
    def rows(self) -> int:
        """Env steps of a ticket, its reset rows among them."""
        return self.envs_per_actor * self.unroll_length

    @property
    def batch(self) -> int:
        """Rows that a learning step takes in: an unroll of each actor, a worker's own one, or a ticket."""
        return self.rows if self.replayed or self.hogwild else self.actors * self.rows

    @property
    def most_shards(self) -> int:
        """Parts into which a minibatch can be cut, at least: with a core it has whole columns or sequences."""
        if self.kind != "recurrent":
            return self.batch_size if self.replayed else self.batch
        return self.batch_size // self.unroll_length if self.replayed else self.actors * self.envs_per_actor

    @property
    def batch_size(self) -> int:
        """Transitions of a minibatch of a replay: with a core at least one sequence."""
        return max(32, self.unroll_length)

    @property
    def beyond(self) -> int:
        """Rows by which a run may end after `steps`: less than these."""
        return self.batch * (self.actors if self.hogwild else 1)

    @property
    def in_flight(self) -> int:
        """Rows that can be under way, at most: a run with more left to learn cannot end without all of its actors."""
        ahead = self.actors - 1 + self.max_lag if self.replayed else self.max_lag
        return (ahead + 2 + self.actors * self.replayed) * self.batch

    @property
    def warmup(self) -> int:
        """Env steps of a replay before the first update: with a core it must hold whole sequences of each column."""
        agents = 3 if self.hogwild and self.world != "none" else 1
        return max(128, 2 * self.actors * self.batch * agents) if self.kind == "recurrent" else 128

    @property
    def steps(self) -> int:
        """Env steps of the run."""
        size = SIZES[self.kind]
        wanted = max(2, min(self.learning_steps, size.learning_steps) // self.passes) * self.batch
        return min(wanted, size.replayed_steps if self.replayed else size.steps)

    def batches_used(self, learning_steps: int) -> int:
        """Return how many batches have been used at least once in so many learning steps."""
        groups, steps = divmod(learning_steps, self.resident_batches * self.passes)
        return groups * self.resident_batches + min(steps, self.resident_batches)

    @property
    def reference(self) -> Plan:
        """The plan with which an exact run is compared: the same in serial, without anything that disturbs it."""
        return replace(
            self, runtime="serial", evaluates=False, learner_workers=1, load_ahead=0, learners=1, mishap="none"
        )

    @property
    def earlier(self) -> Plan:
        """The plan of the earlier run: two batches of the same policies, all of which learn."""
        policies: Policies = "teams" if self.policies in ("frozen", "drawn") else self.policies
        return replace(
            self.reference, learning_steps=2, max_lag=0, league=(), policies=policies, starts_from=False, lag="exact"
        )

    # --- the command line -------------------------------------------------------------------------------------

    def train(self, run_dir: str, tables: str = TABLES) -> list[str]:
        """Return the arguments of `offbeat` that train. `tables`: the file with the tables of the policies."""
        flags = (
            f"train {self.algorithm} {self.env} --steps {self.steps} --seed {self.index} --progress none "
            f"--run-dir {run_dir} --import benchmarks.soak.envs"
        )
        policies = {"shared": [], "separate": ["--policies", "separate"]}.get(self.policies, ["--policies", tables])
        earlier = ["--init-from", EARLIER] if self.starts_from else []
        return [*flags.split(), *policies, *earlier, "--set", *self.settings()]

    def settings(self) -> list[str]:
        """Return all other settings, as --set takes them."""
        evaluations = 8 if self.mishap.endswith("the evaluator") else 2
        count = f"{'workers' if self.hogwild else 'actors'}={self.actors}"
        return [
            *(f"runtime={self.runtime}", count, f"envs_per_actor={self.envs_per_actor}"),
            *(f"eval_every={self.steps // evaluations * self.evaluates}", "eval_episodes=2"),
            *([f"env_groups={self.env_groups}"] if self.env_groups > 1 else []),
            *([f"learner_workers={self.learner_workers}"] if self.learner_workers > 1 else []),
            *([f"load_ahead={self.load_ahead}"] if self.load_ahead else []),
            *self._inference(),
            *([f"shards={self.shards}"] if self.shards > 1 else []),
            *([f"devices={','.join(['cpu'] * self.learners)}"] if self.learners > 1 else []),
            *(["hogwild=synced"] if self.hogwild and self.synced else []),
            *self._network(),
            *self._timeouts(),
            *self._pace(),
            *self._learning(),
            *self._world(),
        ]

    def _inference(self) -> list[str]:
        if not self.inference_workers:
            return []
        batching = ["inference_batching=arrival"] if self.arrival else []
        return ["inference=worker", f"inference_workers={self.inference_workers}", *batching]

    def tables(self, *, earlier: bool = False) -> str:
        """Return the tables of two policies, in the run itself or in the earlier one."""
        frozen = self.policies == "frozen" and not earlier
        blue = f'train = false\ninit_from = "{EARLIER}"\n' if frozen else ""
        of_red, of_blue = ("*", "*") if self.policies == "drawn" and not earlier else ("red_*", "blue_*")
        return f'[policies.red]\nagents = "{of_red}"\n[policies.blue]\nagents = "{of_blue}"\n{blue}'

    def _world(self) -> list[str]:
        if self.world == "none":
            return []
        return [f"env.kwargs.shapes={self.shapes}", f"env.kwargs.behaviour={self.behaviour}", *self.league]

    def _network(self) -> list[str]:
        return {"image": [], "recurrent": ["hidden_sizes=16", "core=gru", "core_size=8"]}.get(
            self.kind, ["hidden_sizes=32,32"]
        )

    def _timeouts(self) -> list[str]:
        known = {field.name for field in fields(RuntimeConfig)}
        wanted = TIMEOUTS_S | (STALL_TIMEOUTS_S if self.mishap.startswith("SIGSTOP") else {})
        if self.mishap == "SIGSTOP all for three seconds":
            wanted |= SHORT_TIMEOUTS_S
        known -= {*OPTIONAL_KEYS} - {*runtime_entry(self.runtime).supports}
        if self.mishap.startswith("SIGSTOP"):
            wanted |= {"start_together": 1}  # as a stall timeout is one of the start too
        return [f"{key}={value}" for key, value in wanted.items() if key in known]

    def _pace(self) -> list[str]:
        if self.hogwild:
            return []
        ahead = f"max_ahead={self.actors - 1 + self.max_lag}" if self.replayed else f"max_lag={self.max_lag}"
        return [f"lag={self.lag}", ahead]

    def _learning(self) -> list[str]:
        rows = self.unroll_length
        if self.replayed:
            sequences = [f"burn_in={rows}"] if self.kind == "recurrent" else []
            replay = f"warmup={self.warmup} utd_ratio={SIZES[self.kind].utd_ratio} capacity=4000"
            return [f"chunk_length={rows}", f"batch_size={self.batch_size}", *replay.split(), *sequences]
        ppo = [f"minibatch_size={self.batch}", "epochs=2"] if self.algorithm == "ppo" else []
        several = [f"passes={self.passes}", f"resident_batches={self.resident_batches}"] if self.passes > 1 else []
        return [f"unroll_length={rows}", *ppo, *several]
