"""The worker pool of a lock-free run: its worker processes and what they share, as the training loop sees them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from offbeat.algorithms.base import Algorithm
from offbeat.config.registry import algorithm_entry
from offbeat.config.tables import Config
from offbeat.core.threads import usable_core_numbers
from offbeat.core.types import EnvSpec, Tree, env_fields
from offbeat.envs import sending
from offbeat.memory.arena import SharedArena, arena_bytes, require_bytes
from offbeat.memory.replay.base import checkpoint_fields
from offbeat.memory.replay.rings import Rings
from offbeat.metrics.timings import Timings
from offbeat.models.spec import PolicySpec
from offbeat.models.storage import PrivateStorage
from offbeat.runtime.acting import Plan
from offbeat.runtime.child import Child, Report, start_child
from offbeat.runtime.gate import NAP_S, Bell
from offbeat.runtime.hogwild.device_buffer import DeviceBuffer, lies_apart
from offbeat.runtime.hogwild.shared_state import (
    NOT_BEGUN,
    Arrays,
    SharedStateShape,
    SharedStorage,
    WorkersBoard,
    write_initial,
)
from offbeat.runtime.hogwild.worker_process import LaunchSpec, State, WorkerReport
from offbeat.runtime.saved_state import Done
from offbeat.runtime.supervisor import Notify, Supervisor
from offbeat.runtime.wiring import device_of, env_of
from offbeat.workers.updates import Updates

WORKER_BYTES = 300_000_000
"""What a worker process takes beside its replay: Python, torch, networks and buffers."""


@dataclass(frozen=True)
class LockFreeParts:
    """Everything that a lock-free run consists of, but for its processes."""

    config: Config
    env: EnvSpec
    policy: PolicySpec
    algorithm: Algorithm
    """One that never learns: it looks on at what is shared."""
    plans: tuple[Plan, ...]
    """By worker."""
    shared_state: SharedStateShape
    storage: SharedStorage
    board: WorkersBoard
    arenas: tuple[SharedArena, ...]
    """The shared state, then the memory of each worker."""
    buffer: DeviceBuffer | None
    """What is learned, where that lies on a GPU."""
    timings: Timings
    """Of this process."""

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return self.config.threads

    def snapshot(self) -> Tree:
        """Return all that has been learned, with the normalisers of all workers merged: views as far as may be."""
        self.algorithm.restore_statistics(self.algorithm.state())  # which is read from what all workers report
        return self.algorithm.weights()

    @property
    def has_replay(self) -> bool:
        """Whether workers learn from replays."""
        return bool(self.config.settings.learns_from == "replay")

    @property
    def saves_replay(self) -> bool:
        """Whether checkpoints keep them."""
        return self.has_replay and bool(self.config.settings.save_replay)

    def replay_rows(self, worker: int, done: Done) -> Tree:
        """Return views of the rows that a worker's replay can sample when it has done so much."""
        rings = self.plans[worker].slots(self.arenas[1 + worker].arrays)
        assert isinstance(rings, Rings)
        return rings.contiguous_views(rings.shape.window(done.learning_steps, done.origin), checkpoint_fields(rings))

    def close(self) -> None:
        self.algorithm.close()
        for arena in self.arenas:
            arena.close()


def build_lock_free(config: Config, news: Callable[[str], None] = lambda _text: None) -> LockFreeParts:
    """Make what the workers of a run share, and a memory for each, after a few steps in the env.

    Args:
        config: all settings; runtime is hogwild.
        news: is given how much memory will be taken, where that is much.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings, or memory does not suffice.
    """
    runtime, device = config.runtime, device_of(config)
    env = env_of(config)
    policy = config.settings.policy_spec(env)
    make = partial(algorithm_entry(config.run.algorithm).algorithm_class().for_run, config.of_worker(0), policy, device)
    made = PrivateStorage()
    first = make(made)
    Updates(first)  # its moments are kept too
    fields = (*env_fields(env), *first.fields())
    first.close()

    def plan(own: Config) -> Plan:
        return Plan(own.run, own.env, own.runtime, env, policy, fields, own.memory, own.blas_threads)

    _require_memory(plan(config.of_worker(0)), config.workers)  # first, as there may be very many
    plans = tuple(plan(config.of_worker(worker)) for worker in range(config.workers))
    shape = SharedStateShape.of(
        made,
        workers=config.workers,
        separate=runtime.hogwild == "synced",
        share_moments=runtime.hogwild_moments != "per_worker",
        apart=lies_apart(device),
    )
    if needed := plans[0].memory.describe(fields):
        news(needed if config.workers == 1 else f"each of {config.workers} workers has a {needed}")
    arenas = (SharedArena(shape.slabs()), *(SharedArena(plan.slabs()) for plan in plans))
    buffer = DeviceBuffer(shape.learned_slabs(), device) if shape.apart else None
    arrays: Arrays = {**arenas[0].arrays, **(buffer.tensors if buffer else {})}
    write_initial(arrays, made)
    storage, board = SharedStorage(shape, arrays), WorkersBoard(arrays, config.workers)
    return LockFreeParts(config, env, policy, make(storage), plans, shape, storage, board, arenas, buffer, Timings())


def _require_memory(plan: Plan, workers: int) -> None:
    """Refuse more workers than memory allows.

    Raises:
        ConfigError: with the arithmetic.
    """
    own, remedy = arena_bytes(plan.slabs()), plan.memory.remedy.removeprefix("pass ").replace(" or max_lag", "")
    require_bytes(
        workers * (WORKER_BYTES + own),
        f"workers is {workers}, and each needs {WORKER_BYTES / 1e6:.0f} MB for its process and {own / 1e6:.1f} MB "
        "for what it remembers: they need",
        f"pass fewer --workers, or {remedy}",
    )


class WorkerPool:
    """The processes of the workers."""

    def __init__(self, parts: LockFreeParts, news: Notify, show: Callable[[Sequence[Child]], None]) -> None:
        """Prepare a worker pool; `start` starts it.

        Args:
            parts: what they share.
            news: tells the user what has happened.
            show: is given the processes, whenever they have changed.

        Raises:
            ConfigError: the env or the algorithm cannot be sent to another process.
        """
        run = parts.config.run
        self._algorithm = algorithm_entry(run.algorithm).algorithm_class()
        self._env = sending.package(run.env, run.imports)  # first, as it may refuse
        for code in (self._algorithm, type(parts.config.settings)):
            sending.require_importable(f"{run.algorithm}, the class {code.__qualname__},", code)
        self._parts, self._board, self._cores = parts, parts.board, usable_core_numbers()
        self._bell = Bell.make()
        self._bells = [Bell.make() for _ in parts.plans]
        self._states: list[State | None] = [None] * len(parts.plans)
        """What each goes on from, until it has finished a learning step."""
        self._begun: list[Done] = []
        self._stop_limit = NOT_BEGUN
        self._spent = [Timings() for _ in parts.plans]
        self.has_begun = False
        """Whether all workers have begun."""
        self.longest_stall = 0.0
        self.heard: list[tuple[int, WorkerReport]] = []
        """What workers have reported, and nobody has taken in yet."""
        self._supervisor = Supervisor(
            self._start, self._board, parts.config.runtime, news, show, role="worker", work="learning step", exact=True
        )

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    def spent(self) -> list[Mapping[str, float]]:
        """Return the seconds of each worker, by what they went into."""
        return [timings.seconds for timings in self._spent]

    def start(self, states: Sequence[State | None]) -> None:
        """Start all workers, each from its state, and wait until they are ready; none begins a learning step yet."""
        self._states = list(states)
        self._begun = [self._board.done(worker) for worker in range(len(states))]
        self._board.reset()
        self._supervisor.start(0, [None] * len(states))
        self.has_begun = True

    def _start(self, index: int, _origin: int, _snapshot: Any, attempt: int) -> Child:
        parts = self._parts
        arenas = (parts.arenas[0].fd, parts.arenas[1 + index].fd)
        bell = self._bells[index].reader
        launch = LaunchSpec(
            index=index,
            config=parts.config.of_worker(index),
            runtime=parts.config.runtime,
            steps=parts.config.run.steps,
            plan=parts.plans[index],
            shared_state=parts.shared_state,
            attempt=attempt,
            state=self._state(index, attempt),
            env=self._env,
            algorithm=self._algorithm,
            parent=os.getpid(),
            cores=self._cores,
            arenas=arenas,
            buffer=parts.buffer.handle() if parts.buffer else None,
            own_bell=bell,
        )
        return start_child(
            "offbeat.runtime.hogwild.worker_process",
            launch,
            (*arenas, bell),
            index=index,
            threads=parts.config.blas_threads,
            heard=partial(self._hear, index),
            notify=self._bell.ring,
        )

    def _state(self, index: int, attempt: int) -> State | None:
        """Return what a worker goes on from, if nothing came of it yet; what its envs died of does not come again."""
        state = self._states[index] if self._board.done(index) == self._begun[index] else None
        return state._replace(actor=None) if state and attempt else state

    def _hear(self, index: int, report: Report) -> None:
        content: WorkerReport = report.content
        self._spent[index].merge(content.seconds)
        self.longest_stall = max(self.longest_stall, content.stall)
        self.heard.append((index, content))

    def go_on(self, limit: int) -> None:
        """Let workers take in env steps until all of them together have `limit`."""
        self._board.limit[0] = limit
        for bell in self._bells:
            bell.ring()

    def stop_at_once(self) -> int:
        """Let each worker stop after the learning step that it is at; return the limit that says so.

        Each such stop has a limit of its own: a pause that was reported at an earlier one is not taken for one at this.
        """
        self._stop_limit -= 1
        self.go_on(self._stop_limit)
        return self._stop_limit

    def watch(self) -> None:
        """Take in what workers report, and start again whoever has died or hangs.

        Raises:
            RunFailed: one did so too often.
        """
        for child in self._supervisor.processes:
            child.listen()
        self._supervisor.watch()

    def wait(self) -> None:
        """Watch, after a nap, or sooner if somebody has news."""
        self._bell.sleep(NAP_S)
        self.watch()

    @property
    def paused(self) -> bool:
        """Whether all workers have stopped at the limit, and reported their states."""
        limit = int(self._board.limit[0])
        return all(child.paused[0] == limit for child in self._supervisor.processes)

    def drain(self, seconds: float) -> None:
        """Let those who live pause at once, as far as they do within `seconds`; nobody is started again."""
        limit = self.stop_at_once()
        children, deadline = self._supervisor.processes, monotonic() + seconds
        while True:
            living = [child for child in children if child.alive()]  # before their last words are read
            for child in children:
                child.listen()
            if all(child.paused[0] == limit for child in living) or monotonic() > deadline:
                return
            self._bell.sleep(NAP_S)

    def states(self) -> list[State | None]:
        """Return the state of each paused worker; None of one that is not: it has died."""
        limit = int(self._board.limit[0])
        return [child.paused[1] if child.paused[0] == limit else None for child in self._supervisor.processes]

    def close(self) -> None:
        self._board.closed[0] = 1
        for bell in self._bells:
            bell.ring()
        self._supervisor.close()
        for bell in (self._bell, *self._bells):
            bell.close()
