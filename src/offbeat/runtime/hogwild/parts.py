"""What the workers of a lock-free run share, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.config import Config
from offbeat.core.errors import ConfigError
from offbeat.core.types import Tree
from offbeat.memory.arena import SharedArena, arena_bytes, require_bytes
from offbeat.memory.replay.base import checkpoint_fields
from offbeat.memory.replay.rings import Rings
from offbeat.metrics.timings import Timings
from offbeat.models.storage import PrivateStorage
from offbeat.runtime.assembly import device_of, env_of, plan_of, policy_parts
from offbeat.runtime.hogwild.device_buffer import DeviceBuffer, needs_device_buffer
from offbeat.runtime.hogwild.shared_state import Arrays, SharedStateShape, SharedStorage, WorkersBoard, write_initial
from offbeat.runtime.parts import Parts
from offbeat.runtime.plan import Plan
from offbeat.runtime.saved_state import WorkerProgress, require_like
from offbeat.workers.updates import Updates

WORKER_BYTES = 300_000_000
"""What a worker process takes beside its replay: Python, torch, networks and buffers."""


@dataclass(frozen=True, kw_only=True)
class LockFreeParts(Parts):
    """What a lock-free run consists of, but for its processes. Its algorithm only reads what workers have learned."""

    plans: tuple[Plan, ...]
    """By worker."""
    shared_state: SharedStateShape
    storage: SharedStorage
    board: WorkersBoard
    arenas: tuple[SharedArena, ...]
    """The shared state, then the memory of each worker."""
    buffer: DeviceBuffer | None
    """What is learned, where that lies on a GPU."""

    def snapshot(self) -> dict[str, Tree]:
        """Return all that has been learned, with the normalisers of all workers merged: views as far as may be."""
        algorithm = self.policy.algorithm
        algorithm.restore_statistics(algorithm.state())  # which is read from what all workers report
        return super().snapshot()

    def require_like(self, state: Mapping[str, Any]) -> None:
        require_like(state["learned"], self.storage.learned(), "learned")
        require_like(state["statistics"], self.storage.records(), "statistics")
        require_like(state["learner"]["algorithm"], self.policy.algorithm.state(), "learner, algorithm")
        if len(state["workers"]) != self.board.workers:
            raise ConfigError(f"the state is of {len(state['workers'])} workers, the run has {self.board.workers}")

    @property
    def has_replay(self) -> bool:
        """Whether workers learn from replays."""
        return self.config.settings.learns_from == "replay"

    @property
    def saves_replay(self) -> bool:
        """Whether checkpoints keep them."""
        return self.has_replay and self.config.settings_as(ReplayConfig).save_replay

    def replay_rows(self, worker: int, done: WorkerProgress) -> Tree:
        """Return views of the rows that a worker's replay can sample when it has done so much."""
        rings = self.plans[worker].policy.slots(self.arenas[1 + worker].arrays)
        assert isinstance(rings, Rings)
        return rings.contiguous_views(rings.shape.window(done.learning_steps, done.origin), checkpoint_fields(rings))

    def close(self) -> None:
        super().close()
        for arena in self.arenas:
            arena.close()


def build_lock_free(config: Config, notify: Callable[[str], None]) -> LockFreeParts:
    """Make what the workers of a run share, and a memory for each, after a few steps in the env.

    Args:
        config: all settings.
        notify: is given how much memory will be taken, where that is much.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or memory does not suffice.
    """
    env = env_of(config)
    made, of_first = PrivateStorage(), config.of_worker(0)
    first = policy_parts(of_first, env, storage=made)
    Updates(first.algorithm)  # its moments are kept too
    _require_memory(plan_of(of_first, [first], of_first.blas_threads), config.workers)
    of_workers = [config.of_worker(worker) for worker in range(config.workers)]
    plans = tuple(plan_of(own, [first], own.blas_threads) for own in of_workers)
    first.algorithm.close()
    if needed := plans[0].policy.memory.describe(plans[0].policy.fields):
        notify(needed if config.workers == 1 else f"each of {config.workers} workers has a {needed}")
    shape = _shape_of(config, made)
    arenas = (SharedArena(shape.slabs()), *(SharedArena(plan.slabs()) for plan in plans))
    buffer = DeviceBuffer(shape.learned_slabs(), device_of(config)) if shape.apart else None
    arrays: Arrays = {**arenas[0].arrays, **(buffer.tensors if buffer else {})}
    write_initial(arrays, made)
    storage = SharedStorage(shape, arrays)
    return LockFreeParts(
        config=config,
        env=env,
        policies=(policy_parts(of_first, env, storage=storage),),
        timings=Timings(),
        plans=plans,
        shared_state=shape,
        storage=storage,
        board=WorkersBoard(arrays, config.workers),
        arenas=arenas,
        buffer=buffer,
    )


def _shape_of(config: Config, made: PrivateStorage) -> SharedStateShape:
    """Return what is shared of an algorithm, and of its optimizers, that were made on `made`."""
    return SharedStateShape.of(
        made,
        workers=config.workers,
        separate=config.runtime.hogwild == "synced",
        share_moments=config.runtime.hogwild_moments != "per_worker",
        apart=needs_device_buffer(device_of(config)),
    )


def _require_memory(plan: Plan, workers: int) -> None:
    """Refuse more workers than memory allows.

    Raises:
        ConfigError: with the arithmetic.
    """
    own, remedy = arena_bytes(plan.slabs()), plan.policy.memory.remedy.removeprefix("pass ").replace(" or max_lag", "")
    require_bytes(
        workers * (WORKER_BYTES + own),
        f"workers is {workers}, and each needs {WORKER_BYTES / 1e6:.0f} MB for its process and {own / 1e6:.1f} MB "
        "for what it remembers: they need",
        f"pass fewer --workers, or {remedy}",
    )
