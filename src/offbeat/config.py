"""What a run is made of: frozen tables, [run], [env], [runtime] and the algorithm's own, in TOML and out.

Values come from the defaults, then the preset, then flags and `--set`; each is read and checked by `fields.py`.
`Config` checks what one field cannot know alone. Everything is decided here, before any work starts.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from offbeat.env_config import EVALUATION_STEPS, UNSET, EnvConfig, family_of
from offbeat.errors import ConfigError, unknown
from offbeat.fields import Count, Name, Natural, Nice, NonNegative, Positive, Share, build, hints_of, read
from offbeat.files import replace_file
from offbeat.registry import ALGORITHMS, TABLES, algorithm_entry, import_modules
from offbeat.threads import usable_core_numbers, usable_cores
from offbeat.trust import code_of, require

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
        from offbeat.seeding import derive_seed  # here, as it loads NumPy

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


def load(path: Path) -> Config:
    """Read a config.toml, and import what it names.

    Raises:
        ConfigError: it is missing, no TOML, has a key or value that is not accepted, or names code that is neither
            installed nor named by the caller (see ``trust.py``).
    """
    tables = read_tables(path)
    _run_of(tables, str(path))
    require(code_of(tables), str(path))
    return _from_tables(tables, str(path))


def load_run(path: Path) -> RunConfig:
    """Read only the table [run] of a config.toml: no algorithm is needed for it, and so no torch.

    Raises:
        ConfigError: as `load`.
    """
    return _run_of(read_tables(path), str(path))


def read_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a config.toml, as they stand there.

    Raises:
        ConfigError: it is missing, or no TOML.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file: give a run directory, as `offbeat train` makes one")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise ConfigError(f"{path} {what}: give a run directory, as `offbeat train` makes one") from None
    except (ValueError, RecursionError) as error:  # of numbers with thousands of digits, ValueError itself
        raise ConfigError(f"{path} is not TOML ({error}): restore it from the run that wrote it") from None


def _run_of(tables: Mapping[str, Any], where: str) -> RunConfig:
    return build(RunConfig, tables.get("run", {}), f"{where}, table [run]")


def _from_tables(tables: Mapping[str, Any], where: str) -> Config:
    run = _run_of(tables, where)
    import_modules(run.imports)
    settings_class = _settings_class(run.algorithm)
    for name in tables:
        if name not in (*TABLES, run.algorithm):
            raise unknown("table", name, (*TABLES, run.algorithm), f"See {where}.")
    env = build(EnvConfig, tables.get("env", {}), f"{where}, table [env]")
    runtime = build(RuntimeConfig, tables.get("runtime", {}), f"{where}, table [runtime]")
    settings = build(settings_class, tables.get(run.algorithm, {}), f"{where}, table [{run.algorithm}]")
    return Config(run, runtime, settings, env.completed(run.env))


# --- from the command line ----------------------------------------------------------------------------------


def resolve(
    algorithm: str,
    env: str,
    *,
    preset: str | None = None,
    flags: Mapping[str, object] | None = None,
    assignments: Mapping[str, object] | None = None,
) -> Config:
    """Put a config together: defaults, then the preset, then flags and `--set` assignments.

    Without `preset`, the one for this algorithm and env applies, if there is one.

    Raises:
        ConfigError: a name or value is not accepted, or one key is given twice.
    """
    if not isinstance(env, str):
        raise ConfigError(f"env is {env!r}, but the id of an env is expected, such as 'CartPole-v1': register yours")
    _check_run_flags(flags or {})
    given_imports = {**(assignments or {}), **(flags or {})}.get("imports", ())
    import_modules(read("imports", given_imports, hints_of(RunConfig)["imports"]))
    algorithm_entry(algorithm)
    tables = _preset_tables(algorithm, env, preset)
    settings_class = _settings_class(algorithm)
    homes = {
        **dict.fromkeys(hints_of(settings_class), algorithm),
        **dict.fromkeys(hints_of(RuntimeConfig), "runtime"),
        **dict.fromkeys(hints_of(EnvConfig), "env"),
        **dict.fromkeys(hints_of(RunConfig), "run"),
    }
    for name in ("algorithm", "env", "preset"):
        del homes[name]
    given: set[str] = set()
    for source in (flags or {}, assignments or {}):
        for key, value in source.items():
            if key not in homes:
                raise unknown(
                    "key", key, homes, "`offbeat train --help` lists flags; docs/reference/options.md lists keys."
                )
            if key in given:
                raise ConfigError(f"{key} is given twice, by a flag and by --set: keep one of them")
            given.add(key)
            tables.setdefault(homes[key], {})[key] = value
    tables["run"].update(algorithm=algorithm, env=env)
    tables.setdefault("runtime", {})
    _refuse_unused(settings_class, algorithm, given)
    _leave_out_other_runtimes(tables["runtime"], given)
    if tables["runtime"].get("runtime") == "hogwild":
        _suit_hogwild(tables["runtime"], tables.setdefault(algorithm, {}), given)
    elif settings_class.learns_from == "replay":
        _suit_replay(tables["runtime"], tables.setdefault(algorithm, {}), given)
    else:
        _suit_runtime(tables["runtime"], given)
    return _from_tables(tables, "docs/reference/options.md")


def _check_run_flags(flags: Mapping[str, object]) -> None:
    """Check the flags that need no algorithm first: a mistyped number should not wait for torch to load."""
    hints = {**hints_of(RunConfig), **hints_of(RuntimeConfig)}
    for key, value in flags.items():
        if key in hints:
            read(key, value, hints[key])


def setting_names() -> set[str]:
    """Return every key that `--set` knows, of all algorithms."""
    tables = [RunConfig, EnvConfig, RuntimeConfig, *map(_settings_class, ALGORITHMS)]
    return {name for table in tables for name in hints_of(table)}


def _settings_class(algorithm: str) -> type[Any]:
    """Return the class of an algorithm's settings.

    Raises:
        ConfigError: there is no such algorithm, or a key of its settings has another meaning already.
    """
    settings = algorithm_entry(algorithm).config_class()
    taken = hints_of(RunConfig).keys() | hints_of(EnvConfig).keys() | hints_of(RuntimeConfig).keys()
    for key in hints_of(settings):
        if key in taken:
            raise ConfigError(
                f"{algorithm} has a setting {key}, which every run has: give the one of yours another name"
            )
    return settings


def _refuse_unused(settings: type[Any], algorithm: str, given: set[str]) -> None:
    """Refuse keys that the algorithm has no use for, though they say what is the default anyway."""
    for key, instead in settings.unsupported_keys.items():
        if key in given:
            raise ConfigError(f"{key} is given, which is not supported by {algorithm}: {instead}")


def _leave_out_other_runtimes(runtime: dict[str, Any], given: set[str]) -> None:
    """Leave out of a preset what the chosen runtime does not support; what was typed is refused."""
    name = runtime.get("runtime", "serial")
    for key, runtimes in ONLY.items():
        if key not in given and name not in runtimes:
            runtime.pop(key, None)


def _suit_hogwild(runtime: dict[str, Any], settings: dict[str, Any], given: set[str]) -> None:
    """Leave out of a preset what lock-free workers do not support; what was typed is refused.

    The number of workers is told in the config: elsewhere there may be more cores.
    """
    for key, why in TAKES_TURNS.items():
        if key in given:
            raise _takes_turns(key, runtime[key], why)
        runtime.pop(key, None)
    if "max_ahead" not in given:
        settings.pop("max_ahead", None)
    _suit_ratio(settings, given)
    runtime.setdefault("workers", usable_cores())


def _suit_replay(runtime: dict[str, Any], settings: dict[str, Any], given: set[str]) -> None:
    """Let all actors act at once, also beside the learner."""
    _suit_ratio(settings, given)
    actors = read("actors", runtime.get("actors", 1), hints_of(RuntimeConfig)["actors"])
    settings.setdefault("max_ahead", actors - (runtime.get("runtime", "serial") == "serial"))


def _suit_ratio(settings: dict[str, Any], given: set[str]) -> None:
    """Let a ratio that is given take the place of the preset's."""
    ratios = given & {"utd_ratio", "steps_per_update"}
    if len(ratios) == 1:
        (other,) = {"utd_ratio", "steps_per_update"} - ratios
        settings.pop(other, None)


def _suit_runtime(table: dict[str, Any], given: set[str]) -> None:
    """Fill in the defaults that depend on the runtime: some lag to overlap in, and a measured split.

    Raises:
        ConfigError: a split is to be measured, and is given.
    """
    if table.get("runtime", "serial") == "serial":
        return
    table.setdefault("max_lag", 1)
    if given >= {"actors", "split"} and table["split"] == "measured":
        raise ConfigError(
            "split is measured, which chooses the number of actors, but actors is given too: leave out one or the other"
        )
    if not given & {"actors", "envs_per_actor", "unrolls_per_batch"} and table.get("lag", "bounded") != "exact":
        table.setdefault("split", "measured")


def parse_assignments(items: list[str]) -> dict[str, str]:
    """Turn ['key=value', ...] into a dict.

    Raises:
        ConfigError: an item has no '=', or a key stands twice.
    """
    assignments: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {item!r} is no key=value: pass, for example, --set learning_rate=0.001")
        if key in assignments:
            raise ConfigError(f"--set gives {key} twice ({assignments[key]!r} and {value!r}): keep one of them")
        assignments[key] = value
    return assignments


# --- presets ------------------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    """Return the names of the presets that come with offbeat."""
    return sorted(p.name.removesuffix(".toml") for p in _presets().iterdir() if p.name.endswith(".toml"))


def _presets() -> Any:
    return resources.files("offbeat") / "presets"


def _preset_tables(algorithm: str, env: str, preset: str | None) -> dict[str, dict[str, Any]]:
    name = preset or _preset_for(algorithm, env)
    if name is None:
        return {"run": {}}
    if name not in preset_names():
        raise unknown("preset", name, preset_names(), "`offbeat list presets` shows them.")
    tables: dict[str, dict[str, Any]] = tomllib.loads((_presets() / f"{name}.toml").read_text())
    for table in ALGORITHMS:
        if table in tables and table != algorithm:
            raise ConfigError(f"preset {name!r} is for {table}, not {algorithm}: run offbeat train {table} {env}")
    tables.setdefault("run", {})["preset"] = name
    return tables


def _preset_for(algorithm: str, env: str) -> str | None:
    """Return the name of the preset for an algorithm and an env, or for the family of the env; None for none."""
    own, family = env.lower().replace("/", "-").replace(":", "-"), family_of(env)
    names = (f"{algorithm}-{which}" for which in (own, family) if which)
    return next((name for name in names if name in preset_names()), None)
