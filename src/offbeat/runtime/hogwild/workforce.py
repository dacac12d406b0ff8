"""The workforce of a lock-free run: starts its workers, and saves and restores their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.pace import RatioCounts
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.types import Tree
from offbeat.memory.replay.base import priorities_in
from offbeat.metrics.counters import WorkerCounters
from offbeat.runtime.hogwild.parts import HogwildParts
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import WorkerState
from offbeat.runtime.loop.workforce import Workforce
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Notify


class HogwildWorkforce(Workforce):
    """Lock-free workers, which act and learn in turns."""

    def __init__(self, parts: HogwildParts, pool: WorkerPool, notify: Notify) -> None:
        super().__init__(pool, notify)
        self._parts, self._pool, self._board = parts, pool, parts.board

    def publish_initial(self, statistics: Mapping[str, Any]) -> None:
        if DEFAULT_POLICY in statistics:
            self._parts.storage.initialize_statistics(statistics[DEFAULT_POLICY])

    def start(self) -> None:
        self._pool.start([None] * self._board.workers)

    def checkpoint_arrays(self) -> Tree | None:
        """Return the replays of all workers: rows from shared memory, priorities from the workers' states."""
        if not self._parts.saves_replay:
            return None
        saved: Tree = {}
        for worker, state in enumerate(self._pool.states()):
            rows = self._parts.replay_rows(worker, self._board.counters_of(worker))
            arrays = rows | (state.priorities if state else {})
            saved |= {f"{worker}/{name}": array for name, array in arrays.items()}
        return saved

    def state(self) -> dict[str, Any]:
        states = self._pool.states() if self._pool.has_started else [None] * self._board.workers
        actors = self._savable([state and state.actor for state in states])
        return {
            "learned": self._parts.storage.learned(),
            "statistics": self._parts.storage.records(),
            "learner": {"algorithm": self._parts.policy.algorithm.state()},
            "workers": [self._worker_state(*each) for each in zip(count(), states, actors)],
        }

    def _worker_state(self, worker: int, state: WorkerState | None, actor: ActorSnapshot) -> dict[str, Any]:
        """Return the state of a worker for a checkpoint; for a dead worker only its counters on the board."""
        updates, refused = self._board.updates[worker, :2].tolist()
        counts = {"done": self._board.counters_of(worker)._asdict(), "updates": updates, "refused": refused}
        return {**counts, "learner": state and state.learner, "actor": actor}

    def restore(self, state: Mapping[str, Any], arrays: Tree | None, *, paused: bool) -> tuple[bool, str]:
        self._parts.storage.load(state["learned"])
        self._parts.storage.load_records(state["statistics"])
        for worker, saved in enumerate(state["workers"]):
            self._board.set_counters(worker, WorkerCounters(**saved["done"]))
            self._board.updates[worker, :2] = saved["updates"], saved["refused"]
        states = [self._restored(worker, saved, arrays) for worker, saved in enumerate(state["workers"])]
        self._pool.start(states)
        while paused and not self._pool.paused:  # they wait for a first limit, which is not set
            self._pool.wait()
        continued = all(restored is not None and restored.actor is not None for restored in states)
        return continued, self._message(states, arrays)

    def _restored(self, worker: int, saved: Mapping[str, Any], saved_arrays: Tree | None) -> WorkerState | None:
        """Copy the rows of a worker's replay into its memory; return the state that the worker continues from.

        None for a worker that was dead when the run was saved: it continues from the board, like a restarted worker.
        """
        counters, prefix, learner = self._board.counters_of(worker), f"{worker}/", saved["learner"]
        if self._warms_up_again(saved_arrays):
            ratio = RatioCounts(counters.learning_steps, valid=0, updates_before=saved["updates"])
            self._board.set_counters(worker, counters.with_ratio(ratio))
            learner = learner and {**learner, "replay": None}
        arrays = {
            name.removeprefix(prefix): array for name, array in (saved_arrays or {}).items() if name.startswith(prefix)
        }
        if arrays:
            self._copy_rows(arrays, self._parts.replay_rows(worker, counters))
        return None if learner is None else WorkerState(learner, saved["actor"], priorities_in(arrays))

    def _warms_up_again(self, saved_arrays: Tree | None) -> bool:
        """Whether a checkpoint has no replays, so that they warm up again, and the update ratio counts from here."""
        return self._parts.has_replay and saved_arrays is None

    def _copy_rows(self, saved: Tree, rows: Tree) -> None:
        """Copy the saved rows of a worker's replay into its memory.

        Raises:
            ConfigError: the checkpoint has other rows than are expected.
        """
        if any(name not in saved or saved[name].shape != part.shape for name, part in rows.items()):
            raise ConfigError(
                "the checkpoint has other rows of the replay than this run needs: resume it with the version of "
                "offbeat that saved it, which is in versions.json, or start a new run with its weights: "
                "`offbeat train --init-from RUN`"
            )
        for name, part in rows.items():
            part[...] = saved[name]

    def _message(self, states: Sequence[WorkerState | None], saved_arrays: Tree | None) -> str:
        """Return a message about the workers' replays and about workers that were dead."""
        workers, dead = len(states), states.count(None)
        replays = "the replay restored" if workers == 1 else f"the replays of {workers} workers restored"
        if self._warms_up_again(saved_arrays):
            replays = "the checkpoint has no replays: they warm up again, and the ratio counts from here"
        died = f"{dead} of {workers} workers had died: they continue with new episodes" if dead else ""
        return "; ".join(filter(None, (replays if self._parts.has_replay else "", died)))
