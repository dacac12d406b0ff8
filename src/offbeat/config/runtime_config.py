"""The table [runtime]: the runtime and its layout; and the checks which of its keys can be used together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from offbeat.config.runtimes import OPTIONAL_KEYS, RUNTIMES, RuntimeEntry, runtime_entry, supporting
from offbeat.core.argument_notation import value_for_reader
from offbeat.core.checks import Example, Flag, PrintableText
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, Device, Name, Natural, Nice, NonNegative, Resource, Seconds
from offbeat.core.process.threads import usable_core_numbers

CHANGED_BY_AUTO_LAYOUT = ("split", "actors", "envs_per_actor", "unrolls_per_batch", "learner_threads")
"""Keys that the start of a run with split = "measured" changes."""


@dataclass(frozen=True)
class RuntimeConfig:
    """The runtime and its layout. With `lag = "exact"` the config alone determines the result, bit for bit."""

    runtime: Annotated[Name, Flag("|".join(RUNTIMES))] = "serial"
    """serial: one thread acts and learns in the order of the pace; threads, processes: actors act while the learner
    learns; ray: the same with actors on a Ray cluster; hogwild: workers act and learn, lock-free on shared parameters.
    Or a runtime that your module registers."""
    actors: Annotated[Count, Flag()] = 1
    """Rollout workers (actors), which step envs; each has its own envs and random streams."""
    workers: Annotated[Count | None, Flag("W")] = None
    """Processes that act and learn, each with envs_per_actor envs; none: one per core. Only for hogwild."""
    hogwild: Literal["shared", "synced"] | None = None
    """shared: workers compute actions and gradients with the shared parameters; synced: with a copy, which is updated
    at the start of each learning step or update; none: shared. Only for hogwild."""
    hogwild_moments: Literal["shared", "per_worker"] | None = None
    """Whether the workers share Adam's moments or each has its own; none: shared. Only for hogwild."""
    envs_per_actor: Annotated[Count, Flag()] = 8
    """Envs of an actor: its environment slots (columns), N."""
    env_groups: Count = 1
    """Groups of an actor's columns, which are stepped in turn, so that one group can step while the policy acts for
    another: in the background, or with inference = worker in the actor itself."""
    inference: Literal["actor", "worker"] = "actor"
    """Who computes the policies' networks for acting. actor: each actor; worker: inference workers, in processes of
    their own, each for a batch of the columns of several actors. In serial and threads each actor computes such a batch
    itself, with the same bits. Not for hogwild or leagues."""
    inference_workers: Count | None = None
    """Inference workers; actor a is served by worker a % inference_workers. None: 1. Only for inference = worker."""
    inference_device: Annotated[tuple[Device, ...] | None, Example("cpu,cpu")] = None
    """Devices of the inference workers, in turn: cpu, cuda or cuda:N. None: cpu. Only for inference = worker."""
    inference_batching: Literal["fixed", "arrival"] | None = None
    """fixed: a batch has a fixed place for each actor, so the result does not depend on timing; arrival: a batch
    has the requests that have arrived, with bounded lag only; none: fixed. Only for inference = worker in processes."""
    inference_timeout_ms: Annotated[NonNegative | None, Example("2")] = None
    """Milliseconds that a request waits for others; none: 2. Only for inference_batching = arrival."""
    inference_max_requests: Count | None = None
    """Largest number of requests in a batch; a request has the columns of one env group of one actor. None: all
    requests. Only for inference_batching = arrival."""
    unroll_length: Count = 32
    """Env steps of one column in an unroll, T."""
    unrolls_per_batch: Count | None = None
    """Unrolls in a batch, S; none: one per actor."""
    shards: Count = 1
    """Parts into which each minibatch is cut, K. The gradients of each part are computed apart, and added in a fixed
    order. More than 1 changes the result by rounding only. Not for hogwild, CrossQ or PEARL."""
    max_lag: Annotated[Natural, Flag("D")] = 0
    """Largest number of learning steps that the acting weights may be behind the learner's weights, D. Default: 0 in
    serial, 1 in threads, processes and ray. Not for algorithms with a replay, which have their own key, or for
    hogwild."""
    lag: Annotated[Literal["bounded", "exact"], Flag("bounded|exact")] = "bounded"
    """bounded: act with the newest weights; exact: with the weights of exactly max_lag learning steps ago. Serial is
    always exact."""
    split: Literal["given", "measured"] = "given"
    """measured: actors, envs_per_actor and learner_threads are chosen at the start of the run by a measurement; the
    number of columns of a batch does not change. given: they are as the config says. measured is the default in threads
    and processes, if neither actors, envs_per_actor or unrolls_per_batch nor lag = exact is given. Only for algorithms
    without a replay."""
    decorrelate: bool = False
    """Start each env at another step of its first episode, after up to unroll_length random env steps. The columns of a
    vector env, such as CartPole-v1's, can only be stepped together: all of a group take equally many."""
    device: Annotated[Literal["auto", "cpu", "cuda"], Flag("auto|cpu|cuda")] = "auto"
    """Device of the learner's tensors; auto: cpu, because small networks are faster there."""
    devices: Annotated[tuple[Device, ...] | None, Example("cpu,cpu")] = None
    """Devices of the learners, one process each: cpu,cpu or cuda:0,cuda:1. They share the shards of each update, with
    the same bits as one learner on such a device. None: one learner on `device`. Only for processes and ray."""
    learner_threads: Count | None = None
    """Threads of each learner; none: 1, or the number that auto layout chooses. SAC, CrossQ and TD3 with plain MLPs and
    box actions on a CPU have at most 2, with the same bits; there none is 2 for a single learner, if there are at least
    two cores. In hogwild: threads of each worker; none: 1."""
    learner_workers: Count | None = None
    """Learners that run side by side in a run with several policies, each in a thread of its own, with the same bits as
    1. None: 1. Only for processes and ray."""
    load_ahead: Annotated[Annotated[int, Bound(0, 64)] | None, Example("1")] = None
    """Batches that a thread of the learner moves to its device while it learns from earlier ones; with a replay,
    minibatches of the same learning step, which the thread also samples. The bits do not depend on it. None: 1 on a GPU
    and 0 on a CPU, where batches are not copied. Only for threads, processes and ray."""
    learner_cores: Annotated[tuple[Natural, ...] | None, Example("0,1")] = None
    """Cores that the learner may run on; none: any. Not for serial or hogwild."""
    learner_nice: Annotated[Nice | None, Example("5")] = None
    """Niceness of the learner and of inference workers, from 0 to 19 (the lowest priority); none: unchanged. A higher
    niceness of the process is not lowered. Not for serial or hogwild."""
    actor_threads: Count | None = None
    """Threads that BLAS and OpenMP may use in an actor process, its envs included; none: 1. Only for processes and ray,
    with bounded lag."""
    actor_cores: Annotated[tuple[Natural, ...] | None, Example("0,1")] = None
    """Cores that actors are pinned to, one core per actor, in turn; none: any. Not for serial or ray."""
    actor_nice: Annotated[Nice | None, Example("10")] = None
    """Niceness of the actors, as learner_nice. None: unchanged for threads; for processes learner_nice, or 10 more than
    the learner if the actors can use all cores. Not for serial or ray."""
    step_timeout_s: Seconds = 60.0
    """Seconds after which a call of a worker's envs counts as hung. In serial, and in the test of an env
    before each run, a message is shown, and nothing ends the call."""
    reset_timeout_s: Seconds = 300.0
    """The same for a call in which an episode starts or the state is saved."""
    stall_timeout_s: Seconds = 120.0
    """Seconds without progress outside of its envs after which a worker counts as hung. A process has 2.5 times as long
    to start, and at least 30 seconds. If it is the learner in the main thread, a callback, or an env that closes there,
    the run continues, with a message."""
    start_together: Count | None = None
    """Processes that are started at the same time, for envs that start slowly; none: all. Only for processes
    and hogwild."""
    ray_address: Annotated[Name | None, Example("auto")] = None
    """Address of a Ray cluster, HOST:PORT, or auto for the one that RAY_ADDRESS names or that runs on this machine.
    None: Ray is started on this machine, and ended with the run. Only for ray."""
    ray_cpus: NonNegative | None = None
    """CPUs that an actor needs on its node; none: 1. Only for ray."""
    ray_gpus: NonNegative | None = None
    """GPUs, or parts of one, that an actor needs on its node; none: 0. Only for ray."""
    ray_resources: tuple[Resource, ...] | None = None
    """Custom resources that an actor needs on its node, each as NAME=AMOUNT; none: nothing. Only for ray."""
    ray_placement: Literal["pack", "spread"] | None = None
    """pack: fill a node with actors before the next; spread: give each node equally many. None: pack. Only for ray."""
    ray_runtime_env: Annotated[Annotated[str, PrintableText(10_000)] | None, Example("none")] = None
    """Ray's runtime environment of the actors, as a JSON object: pip, working_dir, env_vars, ... None: that of the
    nodes. Only for ray."""
    ray_object_store_mb: Annotated[Count | None, Example("1000")] = None
    """Size of the object store in MB, if Ray is started for this run; none: what the messages of the run need. Only for
    ray, without ray_address."""
    restart_budget: Natural = 5
    """Restarts of one process within 10 minutes, or without progress, after which the run fails; for an evaluator, the
    evaluation fails. In serial and threads only for evaluations."""

    default_texts: ClassVar[Mapping[str, str]] = {
        "max_lag": "0 in serial, 1 in threads, processes and ray",
        "split": "measured in threads and processes, if neither the layout nor lag = exact is given; else given",
    }
    """As in `AlgorithmSettings`."""

    def __post_init__(self) -> None:
        runtime_entry(self.runtime)

    @property
    def entry(self) -> RuntimeEntry:
        """The entry of the runtime in the registry: its properties and the keys that it supports."""
        return runtime_entry(self.runtime)

    @property
    def inference_processes(self) -> int:
        """Number of inference workers; 0 if actors compute the networks themselves."""
        return self.inference_workers or 1 if self.uses_inference and self.entry.has_inference_workers else 0

    @property
    def uses_inference(self) -> bool:
        """Whether networks are computed for inference groups: by inference workers, or by actors in their place."""
        return self.inference == "worker"

    @property
    def learning_threads(self) -> int:
        """Number of threads that learn side by side, each for one policy at a time."""
        return self.learner_workers or 1

    @property
    def learners(self) -> int:
        """Number of learners of a policy, each on a device of its own."""
        return len(self.devices or ("",))

    def cores_of_learner(self, rank: int) -> set[int] | None:
        """Return the cores of one learner: `learner_cores` are dealt out, if there are enough; None: any."""
        cores = self.learner_cores
        if cores is None:
            return None
        return set(cores[rank :: self.learners] if len(cores) >= self.learners else cores)

    @property
    def batch_unrolls(self) -> int:
        """Unrolls in a batch, S."""
        return self.actors if self.unrolls_per_batch is None else self.unrolls_per_batch

    @property
    def batch_rows(self) -> int:
        """Rows in a batch, reset rows included."""
        return self.batch_unrolls * self.unroll_length * self.envs_per_actor


def require_supported(runtime: RuntimeConfig) -> None:
    """Refuse settings that the runtime does not support or that contradict each other, and cores that do not exist.

    Raises:
        ConfigError: with the remedy.
    """
    entry = runtime.entry
    for key in OPTIONAL_KEYS:
        if getattr(runtime, key) is not None and key not in entry.supports:
            raise ConfigError(
                f"{key} is {value_for_reader(getattr(runtime, key))}, which is not supported by the {entry.name} "
                f"runtime: leave it out, or pass {supporting(key)}"
            )
    defaults = RuntimeConfig()
    for key in entry.refuses:
        if getattr(runtime, key) != getattr(defaults, key):
            raise refused_key(key, getattr(runtime, key), entry)
    if runtime.split == "measured" and (not entry.overlaps or runtime.lag == "exact"):
        raise ConfigError(
            f"split is measured, which is not supported with runtime {entry.name} and lag {runtime.lag}, because there "
            "the config alone determines the result: leave it out"
        )
    if runtime.actor_threads is not None and runtime.lag == "exact":
        raise ConfigError(
            "actor_threads is given, which is not supported with lag exact, because actors then have learner_threads "
            "threads: leave it out"
        )
    _require_cores(runtime)


def refused_key(key: str, value: object, entry: RuntimeEntry) -> ConfigError:
    """Return the error for a key that a runtime refuses."""
    return ConfigError(
        f"{key} is {value_for_reader(value)}, which is not supported by the {entry.name} runtime: "
        f"{entry.refuses[key]}. Leave it out"
    )


def _require_cores(runtime: RuntimeConfig) -> None:
    """Refuse cores that this process cannot run on."""
    for key in ("learner_cores", "actor_cores"):
        if getattr(runtime, key) is not None and not hasattr(os, "sched_setaffinity"):
            raise ConfigError(f"{key} is given, but this system cannot pin processes to cores: leave it out")
        missing = set(getattr(runtime, key) or ()) - usable_core_numbers()
        if missing:
            raise ConfigError(
                f"{key} names {', '.join(map(str, sorted(missing)))}, but this process may run on the cores "
                f"{', '.join(map(str, sorted(usable_core_numbers())))}: pass only these"
            )
