"""The parts that the workers of a lock-free run share, and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.config import Config
from offbeat.core.closing import Closable, all_or_closed, closed_on_error
from offbeat.core.errors import ConfigError
from offbeat.core.types import EnvSpec, Tree
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.memory.arena import SharedArena, arena_bytes, require_bytes
from offbeat.memory.replay.base import checkpoint_fields
from offbeat.memory.replay.rings import Rings
from offbeat.metrics.counters import WorkerCounters
from offbeat.metrics.timings import Timings
from offbeat.models.storage import PrivateStorage
from offbeat.runtime.assembly import plan_of, policy_parts
from offbeat.runtime.devices import device_of
from offbeat.runtime.hogwild.board import WorkersBoard
from offbeat.runtime.hogwild.device_buffer import DeviceBuffer, needs_device_buffer
from offbeat.runtime.hogwild.shared_state import Arrays, SharedStateShape, SharedStorage, write_initial
from offbeat.runtime.loop.state_checks import require_like
from offbeat.runtime.main_thread import MainThreadWatch
from offbeat.runtime.parts import Parts, PolicyParts, blas_threads
from offbeat.runtime.plan import Plan
from offbeat.runtime.tested_envs import TestedEnvs, tested_envs
from offbeat.workers.updates import Updates

WORKER_BYTES = 300_000_000
"""Memory of a worker process without its slots or replay: Python, torch, networks and buffers."""


@dataclass(frozen=True, kw_only=True)
class HogwildParts(Parts):
    """The parts of a lock-free run, without its processes. The algorithm here only reads the shared parameters."""

    plans: tuple[Plan, ...]
    """The plan of each worker's actor, by worker."""
    shared_state: SharedStateShape
    storage: SharedStorage
    board: WorkersBoard
    state_arena: SharedArena
    """The arena of the shared state."""
    worker_arenas: tuple[SharedArena, ...]
    """By worker: the arena with its slots and weights."""
    buffer: DeviceBuffer | None
    """The learned tensors, if they are on a GPU."""

    @property
    def world(self) -> WorldSpec | None:
        return self.plans[0].world

    def weights(self) -> dict[str, Tree]:
        """Return the learned parameters, with the running statistics of all workers merged: views where possible."""
        algorithm = self.policy.algorithm
        algorithm.restore_statistics(algorithm.state())  # the state has the merged statistics of all workers
        return super().weights()

    def require_like(self, state: Mapping[str, Any]) -> None:
        require_like(state["learned"], self.storage.learned(), "learned")
        require_like(state["statistics"], self.storage.records(), "statistics")
        require_like(state["learner"]["algorithm"], self.policy.algorithm.state(), "learner, algorithm")
        if len(state["workers"]) != self.board.workers:
            raise ConfigError(f"the state has {len(state['workers'])} workers, but the run has {self.board.workers}")

    @property
    def has_replay(self) -> bool:
        """Whether workers learn from a replay."""
        return self.config.algorithm_settings.learns_from == "replay"

    @property
    def saves_replay(self) -> bool:
        """Whether checkpoints include the replays of the workers."""
        return self.has_replay and self.config.settings_as(ReplayConfig).save_replay

    def replay_rows(self, worker: int, counters: WorkerCounters) -> Tree:
        """Return views of the rows of a worker's replay that a checkpoint has, if the worker's counters are these."""
        rings = self.plans[worker].policy.slots(self.worker_arenas[worker].arrays)
        assert isinstance(rings, Rings)
        tickets = rings.shape.tickets_to_save(counters.learning_steps, counters.origin)
        return rings.contiguous_views(tickets, checkpoint_fields(rings))

    def close(self) -> None:
        super().close()
        for arena in (self.state_arena, *self.worker_arenas):
            arena.close()


def build_hogwild(config: Config, notify: Callable[[str], None]) -> HogwildParts:
    """Build the shared state of a run and the memory of each worker, after a few test steps in the env.

    Args:
        config: all settings.
        notify: is called with a message if the run needs much memory, or if a call of the tested env takes too long.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or there is not enough memory.
    """
    tested = tested_envs(config, notify)
    (env,) = tested.policies.values()
    plans, initial = _plans_and_initial_values(config, tested, env)
    policy_plan = plans[0].policy
    if message := policy_plan.memory_shape.describe(policy_plan.fields):
        notify(message if config.workers == 1 else f"each of {config.workers} workers has a {message}")
    shape = _shape_of(config, initial)
    slabs = (shape.slabs(), *(plan.slabs() for plan in plans))
    state_arena, *worker_arenas = all_or_closed(SharedArena(each) for each in slabs)
    made: list[Closable] = [state_arena, *worker_arenas]
    with closed_on_error(made):
        buffer = DeviceBuffer(shape.learned_slabs(), device_of(config)) if shape.in_device_buffer else None
        arrays: Arrays = {**state_arena.arrays, **(buffer.tensors if buffer else {})}
        write_initial(arrays, initial)
        storage = SharedStorage(shape, arrays)
        policy = policy_parts(config.of_worker(0), env, storage)
        made.append(policy.algorithm)
        return HogwildParts(
            config=config,
            env_spec=env,
            policies=(policy,),
            timings=Timings(),
            main_thread=MainThreadWatch(config.runtime),
            plans=plans,
            shared_state=shape,
            storage=storage,
            board=WorkersBoard(arrays, config.workers),
            state_arena=state_arena,
            worker_arenas=tuple(worker_arenas),
            buffer=buffer,
        )


def _plans_and_initial_values(
    config: Config, tested: TestedEnvs, env: EnvSpec
) -> tuple[tuple[Plan, ...], PrivateStorage]:
    """Return the plan of each worker's actor, and a storage with the initial values of the learned tensors.

    Raises:
        ConfigError: the env does not suit the settings, or there is not enough memory for all workers.
    """
    first_config, initial = config.of_worker(0), PrivateStorage()
    policy = policy_parts(first_config, env, initial)
    with closing(policy.algorithm):
        Updates(policy.algorithm)  # adds the optimizers' moments to `initial`
        first = _plan_of_worker(tested, first_config, policy)
        _require_memory(first, config.workers)  # before the others: there may be very many
        others = map(config.of_worker, range(1, config.workers))
        return (first, *(_plan_of_worker(tested, own, policy) for own in others)), initial


def _shape_of(config: Config, initial: PrivateStorage) -> SharedStateShape:
    """Return the shape of the shared state; `initial`: storage of one algorithm and its optimizers."""
    return SharedStateShape.of(
        initial,
        workers=config.workers,
        separate=config.runtime.hogwild == "synced",
        share_moments=config.runtime.hogwild_moments != "per_worker",
        in_device_buffer=needs_device_buffer(device_of(config)),
    )


def _plan_of_worker(tested: TestedEnvs, config: Config, policy: PolicyParts) -> Plan:
    """Return the plan of a worker's actor; `config`: that of the worker."""
    return plan_of(replace(tested, config=config), [policy], blas_threads(config, [policy]))


def _require_memory(plan: Plan, workers: int) -> None:
    """Check that there is enough memory for all workers.

    Raises:
        ConfigError: there is not; the message has the calculation.
    """
    own, shape = arena_bytes(plan.slabs()), plan.policy.memory_shape
    remedy = shape.remedy.removeprefix("pass ").replace(" or max_lag", "")
    require_bytes(
        workers * (WORKER_BYTES + own),
        f"workers is {workers}, and each needs {WORKER_BYTES / 1e6:.0f} MB for its process and {own / 1e6:.1f} MB "
        "for its slots or replay: they need",
        f"pass fewer --workers, or {remedy}",
    )
