"""What a run is made of: frozen tables, [run], [env], [runtime] and the algorithm's own, in TOML and out.

Values come from the defaults, then the preset, then flags and `--set`; each is read and checked by `fields.py`.
`Config` checks what one field cannot know alone. Everything is decided here, before any work starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from offbeat.config.env import EVALUATION_STEPS, UNSET, EnvConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, Name, Natural, Nice, NonNegative, Positive, Share, hints_of, read
from offbeat.core.files import replace_file
from offbeat.core.threads import usable_core_numbers, usable_cores

LINES_PER_RUN = 200
"""Metrics lines over `steps`, at least, unless `log_every` says otherwise."""


@dataclass(frozen=True)
class RunConfig:
    """What is trained, for how long, and what is kept of it."""

    algorithm: Name
    """Name of the algorithm, as `offbeat list algorithms` shows it, or where it is: my_module:MyAlgorithm."""
    env: Name
    """Gymnasium id, an id with an adapter's prefix (envpool:), or where the env is: my_module:MyEnv."""
    steps: Count = 1_000_000
    """Env steps to learn from; schedules run over them."""
    stop_at: Count | None = None
    """Env steps after which to stop, with a checkpoint, without changing the schedules."""
    time: Positive | None = None
    """Seconds after which to stop, with a checkpoint."""
    seed: Natural = 0
    """Keys every random stream."""
    eval_every: Natural | None = None
    """Env steps between evaluations; none: a tenth of `steps`; 0: never."""
    eval_episodes: Count = 20
    """Episodes of an evaluation during training; the mean return defines the best checkpoint."""
    eval_time_share: Share = 0.1
    """Fraction of the time that evaluations during training may take: some are left out where they would take more, but
    not that of the end, and none with lag exact. 1: none is left out."""
    evaluator: Literal["process", "inline"] = "process"
    """Who evaluates during training. process: a supervised process, beside the learner where cores allow; inline: the
    process of the learner, to debug."""
    eval_max_episode_steps: Count = EVALUATION_STEPS
    """Env steps after which an evaluation during training cuts an episode; it counts with what it has earned."""
    eval_max_steps: Count = 1_000_000
    """Env steps after which an evaluation during training ends, all its envs together."""
    checkpoint_every: Natural | None = None
    """Env steps between checkpoints; none: a tenth of `steps`; 0: only the first, the last, and those by the clock."""
    checkpoint_every_s: NonNegative = 600.0
    """Seconds between checkpoints, at most, as far as the run pauses that often; 0: none by the clock."""
    checkpoints_kept: Count = 3
    """Newest checkpoints to resume from that are kept, the latest included; the best is kept besides."""
    log_every: Count | None = None
    """Env steps between metrics lines; none: a 200th of `steps`."""
    log_every_s: Positive | None = None
    """Seconds after which a metrics line is written in any case, once a learning step ends; none: 10, and never with
    `lag = "exact"`, so that the lines of equal runs are at the same env steps."""
    episodes_window: Count = 100
    """Training episodes, the last ones, that returns and lengths of metrics lines are of."""
    imports: tuple[str, ...] = ()
    """Python modules to import first: they may register envs, algorithms and encoders."""
    tracker: Literal["wandb", "trackio"] | None = None
    """Also send each metrics line, and the config, to Weights & Biases or Trackio; none: to neither."""
    preset: str | None = None
    """Name of the preset that the values began from."""
    init_from: str | None = None
    """Run directory whose weights the run began with."""

    @property
    def evaluation_interval(self) -> int:
        """Env steps between evaluations, 0 for none."""
        return max(1, self.steps // 10) if self.eval_every is None else self.eval_every

    @property
    def log_interval(self) -> int:
        """Env steps between metrics lines."""
        return max(1, self.steps // LINES_PER_RUN) if self.log_every is None else self.log_every

    @property
    def checkpoint_interval(self) -> int:
        """Env steps between checkpoints, 0 for none."""
        return max(1, self.steps // 10) if self.checkpoint_every is None else self.checkpoint_every


@dataclass(frozen=True)
class RuntimeConfig:
    """How acting and learning are laid out. With `lag = "exact"` the result's bits follow from the config alone."""

    runtime: Literal["serial", "threads", "processes", "hogwild"] = "serial"
    """serial: one thread walks the pace's order; threads, processes: actors act while the learner learns; hogwild:
    workers that act and learn, lock-free on shared parameters."""
    actors: Count = 1
    """Workers that step envs; each has its own envs and random streams."""
    workers: Count | None = None
    """Processes that act and learn, each on envs_per_actor envs; by default one a core. Only for hogwild."""
    hogwild: Literal["shared", "synced"] | None = None
    """shared: workers act and differentiate on the shared parameters themselves; synced: on a copy, which is renewed at
    each learning step's, or update's, start; none: shared. Only for hogwild."""
    hogwild_moments: Literal["shared", "per_worker"] | None = None
    """Whose Adam's moments are; none: shared. Only for hogwild."""
    envs_per_actor: Count = 8
    """Columns of an actor, N."""
    env_groups: Count = 1
    """Groups that an actor's columns are stepped in by turns; envs that step in the background overlap so."""
    unroll_length: Count = 32
    """Env steps of one column in an unroll, T."""
    unrolls_per_batch: Count | None = None
    """Unrolls in a batch, S; none: one per actor."""
    max_lag: Natural = 0
    """Learning steps that the weights which act may be behind those which learn, D; outside of serial 1 by default."""
    lag: Literal["bounded", "exact"] = "bounded"
    """bounded: act with the newest weights; exact: with those of exactly max_lag steps ago. Serial is both."""
    split: Literal["given", "measured"] = "given"
    """measured: actors, envs_per_actor and learner_threads are chosen at start for the same columns of a batch."""
    decorrelate: bool = False
    """Begin each env at another moment of its first episode, after up to unroll_length random env steps."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the learner's tensors live; auto: cpu, as small networks are quicker there."""
    learner_threads: Count | None = None
    """Threads of the learner; none: 1, or what a measured split chooses; on a replay 2, whose bits are those of 1. In
    hogwild of each worker; none: 1."""
    learner_cores: tuple[Natural, ...] | None = None
    """Cores that the learner may run on; none: any. Not for serial."""
    learner_nice: Nice | None = None
    """Niceness of the learner, from 0 to 19 (the lowest priority); none: as it is. One that is nicer already stays so.
    Not for serial."""
    actor_threads: Count | None = None
    """Threads that BLAS and OpenMP may use in an actor process, its envs included; none: 1. Processes, bounded lag."""
    actor_cores: tuple[Natural, ...] | None = None
    """Cores that actors are pinned to, one each by turns; none: any. Not for serial."""
    actor_nice: Nice | None = None
    """Niceness of the actors, likewise; none: as it is; of actor processes learner_nice, or 10 more than the learner
    where they can fill all cores. Not for serial."""
    step_timeout_s: Positive | None = None
    """Seconds after which a call of a worker's envs counts as hung; none: 60. In serial only of evaluations."""
    reset_timeout_s: Positive | None = None
    """The same for a call in which an episode begins; none: 300. In serial only of evaluations."""
    stall_timeout_s: Positive | None = None
    """Seconds after which a worker counts as hung that makes no progress outside of its envs; none: 120. In serial only
    of evaluations."""
    start_together: Count | None = None
    """Processes that are started at the same time, for slow envs; none: all. For processes and hogwild."""
    restart_budget: Natural | None = None
    """Restarts of one process within 10 minutes before the run is given up, or, of an evaluator, the evaluation; none:
    5. In serial and threads only of evaluations."""

    @property
    def batch_unrolls(self) -> int:
        """Unrolls in a batch, S."""
        return self.actors if self.unrolls_per_batch is None else self.unrolls_per_batch

    @property
    def batch_rows(self) -> int:
        """Rows in a batch, reset rows included."""
        return self.batch_unrolls * self.unroll_length * self.envs_per_actor


@dataclass(frozen=True)
class Config:
    """The whole of a run's settings. `settings` is the algorithm's own config."""

    run: RunConfig
    runtime: RuntimeConfig
    settings: Any
    env: EnvConfig = UNSET

    def __post_init__(self) -> None:
        runtime = self.runtime
        _require_meaning(runtime)
        self._require_use(runtime)
        self._require_lock_free()
        if runtime.envs_per_actor % runtime.env_groups:
            raise ConfigError(
                f"env_groups is {runtime.env_groups}, which does not divide envs_per_actor="
                f"{runtime.envs_per_actor}: pass --set env_groups=1, or a divisor"
            )
        self.settings.check(runtime)

    def _require_lock_free(self) -> None:
        """Refuse the hogwild runtime where the algorithm cannot run in it."""
        if self.runtime.runtime == "hogwild" and (reason := self.settings.not_lock_free):
            raise ConfigError(
                f"runtime is hogwild, but {self.run.algorithm} cannot run lock-free: {reason}. Pass another --runtime, "
                "or another algorithm"
            )

    def _require_use(self, runtime: RuntimeConfig) -> None:
        """Refuse settings of the runtime that the algorithm has no use for."""
        unused = RuntimeConfig()
        for key, instead in self.settings.unsupported_keys.items():
            if getattr(runtime, key) != getattr(unused, key):
                raise ConfigError(
                    f"{key} is {getattr(runtime, key)}, which is not supported by {self.run.algorithm}: {instead}"
                )

    @property
    def memory(self) -> Any:
        """The shape of what the run remembers, and the pace on it: an UnrollShape or a RingShape.

        Of a hogwild run, that of each worker.
        """
        if self.runtime.runtime == "hogwild":
            return self.of_worker(0).memory
        return self.settings.memory(self.runtime, (self.env.frame_stack or 1) - 1)

    @property
    def workers(self) -> int:
        """Processes that learn: 1, but for hogwild."""
        if self.runtime.runtime != "hogwild":
            return 1
        return self.runtime.workers or usable_cores()

    @property
    def columns(self) -> int:
        """Envs of the whole run."""
        acting = self.workers if self.runtime.runtime == "hogwild" else self.runtime.actors
        return acting * self.runtime.envs_per_actor

    def of_worker(self, index: int) -> Config:
        """Return what one worker of a hogwild run does: a serial run with its share of what is counted in total.

        Its seed keys its envs and its samples; the first worker has that of the run, so that one worker alone gives
        the bits of the serial runtime. The initial weights are everybody's, and keyed by the seed of the run.
        """
        from offbeat.core.seeding import derive_seed  # here, as it loads NumPy

        serial = self.in_runtime("serial").runtime
        seed = self.run.seed if index == 0 else derive_seed(self.run.seed, "worker", index)
        return Config(
            replace(self.run, seed=seed),
            replace(serial, learner_threads=self.threads),
            self.settings.of_worker(index, self.workers),
            self.env,
        )

    @property
    def threads(self) -> int:
        """Threads of the learner, or of each worker."""
        given, hogwild = self.runtime.learner_threads, self.runtime.runtime == "hogwild"
        return given or (min(2, usable_cores()) if self.settings.splits_updates and not hogwild else 1)

    @property
    def blas_threads(self) -> int:
        """Threads that torch and BLAS may use in the learner: 1 where the algorithm shares its work out itself."""
        return 1 if self.settings.splits_updates else self.threads

    @property
    def actor_threads(self) -> int:
        """Threads that BLAS may use in an actor process: in exact as in serial, where acting shares the learner's."""
        return self.blas_threads if self.runtime.lag == "exact" else self.runtime.actor_threads or 1

    def topology(self) -> dict[str, Any]:
        """Return the settings that a checkpoint's state belongs to, by key."""
        tables = self.tables()
        own = tables[self.run.algorithm]
        return {**tables["runtime"], **{key: own[key] for key in self.settings.topology_keys}}

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the tables as they stand in config.toml."""
        tables = {"run": self.run, "env": self.env, "runtime": self.runtime, self.run.algorithm: self.settings}
        return {name: {key: _in_toml(value) for key, value in asdict(table).items()} for name, table in tables.items()}

    def save(self, path: Path) -> None:
        """Write config.toml; a file that is there is replaced in one step."""
        replace_file(path, self.as_toml())

    def as_toml(self) -> bytes:
        """Return the content of config.toml."""
        import tomli_w

        return tomli_w.dumps(self.tables()).encode()

    def with_run(self, **changes: Any) -> Config:
        """Return a copy with changed fields of [run]."""
        return replace(self, run=replace(self.run, **changes))

    def in_runtime(self, runtime: str) -> Config:
        """Return a copy for another runtime, without the settings that are not supported there.

        Raises:
            ConfigError: there is no such runtime.
        """
        name = read("runtime", runtime, hints_of(RuntimeConfig)["runtime"])
        dropped = {key: None for key, runtimes in ONLY.items() if name not in runtimes}
        return replace(self, runtime=replace(self.runtime, runtime=name, **dropped))  # type: ignore[arg-type]


def _in_toml(value: object) -> object:
    """Return a value as config.toml has it: there is no null in TOML, and no fraction."""
    if value is None:
        return "none"
    return str(value) if isinstance(value, Fraction) else value


ONLY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("learner_cores", "learner_nice"), ("threads", "processes")),
    **dict.fromkeys(("actor_cores", "actor_nice"), ("threads", "processes", "hogwild")),
    "start_together": ("processes", "hogwild"),
    "actor_threads": ("processes",),
    **dict.fromkeys(("workers", "hogwild", "hogwild_moments"), ("hogwild",)),
}
"""key -> the runtimes that support it."""
TAKES_TURNS: Mapping[str, str] = {
    "actors": "pass --workers N: each worker acts and learns by turns",
    "max_lag": "each worker acts and learns by turns; what others change meanwhile is reported as gradient_staleness",
    "lag": "what workers do to one another depends on the clock",
    "split": "pass --workers N",
}
"""Keys of [runtime] that lock-free workers do not support -> why, or what to pass."""


def _require_meaning(runtime: RuntimeConfig) -> None:
    """Refuse settings that are not supported by the runtime, and cores that are not there."""
    for key, runtimes in ONLY.items():
        if getattr(runtime, key) is not None and runtime.runtime not in runtimes:
            raise ConfigError(
                f"{key} is {getattr(runtime, key)}, which is not supported by the {runtime.runtime} runtime: leave it "
                f"out, or pass --runtime {' or --runtime '.join(runtimes)}"
            )
    if runtime.runtime == "hogwild":
        _require_turns(runtime)
    if runtime.split == "measured" and (runtime.runtime == "serial" or runtime.lag == "exact"):
        raise ConfigError(
            f"split is measured, but with runtime {runtime.runtime} and lag {runtime.lag} nothing is measured, so that "
            "the result follows from the config: leave it out"
        )
    if runtime.actor_threads is not None and runtime.lag == "exact":
        raise ConfigError(
            "actor_threads is given, but with lag exact actors use learner_threads, as in serial: leave it out"
        )
    for key in ("learner_cores", "actor_cores"):
        if getattr(runtime, key) is not None and not hasattr(os, "sched_setaffinity"):
            raise ConfigError(f"{key} is given, but this system cannot pin processes to cores: leave it out")
        missing = set(getattr(runtime, key) or ()) - usable_core_numbers()
        if missing:
            raise ConfigError(
                f"{key} names {', '.join(map(str, sorted(missing)))}, but this process may run on the cores "
                f"{', '.join(map(str, sorted(usable_core_numbers())))}: pass some of these"
            )


def _require_turns(runtime: RuntimeConfig) -> None:
    """Refuse what is not supported by workers that act and learn by turns."""
    unused = RuntimeConfig()
    for key, why in TAKES_TURNS.items():
        if getattr(runtime, key) != getattr(unused, key):
            raise _takes_turns(key, getattr(runtime, key), why)


def _takes_turns(key: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"{key} is {value}, which is not supported by the hogwild runtime: {why}. Leave it out")
