"""The workers of a lock-free run as its training loop sees them: what is saved of them, and how they go on from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from offbeat.core.types import DEFAULT_POLICY, Tree
from offbeat.runtime.hogwild.parts import LockFreeParts
from offbeat.runtime.hogwild.worker_pool import WorkerPool
from offbeat.runtime.hogwild.worker_process import State
from offbeat.runtime.saved_state import WorkerProgress
from offbeat.runtime.workforce import Workforce


class LockFreeWorkforce(Workforce):
    """Workers that act and learn by turns."""

    def __init__(self, parts: LockFreeParts, pool: WorkerPool) -> None:
        self._parts, self._pool, self._board = parts, pool, parts.board

    @property
    def restarts(self) -> int:
        return self._pool.restarts

    @property
    def longest_stall(self) -> float:
        return self._pool.longest_stall

    def spent(self) -> Iterable[Mapping[str, float]]:
        return self._pool.spent()

    def start(self, statistics: Mapping[str, Any]) -> None:
        if DEFAULT_POLICY in statistics:
            self._parts.storage.initialize_statistics(statistics[DEFAULT_POLICY])

    def begin_episodes(self) -> None:
        self._pool.start([None] * self._board.workers)

    def checkpoint_arrays(self) -> Tree | None:
        """Return the replays of all workers, of which the rows lie where this process sees them too."""
        if not self._parts.saves_replay:
            return None
        saved: Tree = {}
        for worker, state in enumerate(self._pool.states()):
            rows = self._parts.replay_rows(worker, self._board.progress_of(worker))
            arrays = rows | (state.priorities if state else {})
            saved |= {f"{worker}/{name}": array for name, array in arrays.items()}
        return saved

    def state(self) -> dict[str, Any]:
        states = self._pool.states() if self._pool.has_started else [None] * self._board.workers
        return {
            "learned": self._parts.storage.learned(),
            "statistics": self._parts.storage.records(),
            "learner": {"algorithm": self._parts.policy.algorithm.state()},
            "workers": [self._worker_state(worker, state) for worker, state in enumerate(states)],
        }

    def _worker_state(self, worker: int, state: State | None) -> dict[str, Any]:
        """Return what is saved of a worker; of one that has died, only what the board has."""
        updates, refused = self._board.updates[worker, :2].tolist()
        counts = {"done": self._board.progress_of(worker)._asdict(), "updates": updates, "refused": refused}
        return {**counts, "learner": state and state.learner, "actor": state and state.actor}

    def restore(self, state: Mapping[str, Any], arrays: Tree | None) -> tuple[bool, str]:
        self._parts.storage.load(state["learned"])
        self._parts.storage.load_records(state["statistics"])
        for worker, saved in enumerate(state["workers"]):
            self._board.finish(worker, WorkerProgress(**saved["done"]))
            self._board.updates[worker, :2] = saved["updates"], saved["refused"]
        states = [self._restored(worker, saved, arrays) for worker, saved in enumerate(state["workers"])]
        self._pool.start(states)
        continued = all(each is not None and each.actor is not None for each in states)
        return continued, self._in_words(states, arrays)

    def _restored(self, worker: int, saved: Mapping[str, Any], saved_arrays: Tree | None) -> State | None:
        """Put the rows of a worker's replay to where it will find them, and return what else it goes on from.

        None for one that had died when the run was saved: it recovers what the board has, as if it died just now.
        """
        done, own = self._board.progress_of(worker), f"{worker}/"
        if saved_arrays is None:  # then it warms up again, and the ratio is held on what comes
            now = done._replace(origin=done.learning_steps, valid=0, unheld=saved["updates"])
            self._board.finish(worker, now if self._parts.has_replay else done)
        arrays = {name.removeprefix(own): array for name, array in (saved_arrays or {}).items() if name.startswith(own)}
        for name, rows in self._parts.replay_rows(worker, done).items() if arrays else ():
            rows[...] = arrays[name]
        if saved["learner"] is None:
            return None
        learner = {**saved["learner"], **({"replay": None} if self._parts.has_replay and saved_arrays is None else {})}
        priorities = {name: np.array(array) for name, array in arrays.items() if name.startswith("priorities/")}
        return State(learner, saved["actor"], priorities)

    def _in_words(self, states: Sequence[State | None], saved_arrays: Tree | None) -> str:
        """Say what there is to say of the workers' replays, and of those who had died."""
        many, lost = len(states), states.count(None)
        replays = "the replay restored" if many == 1 else f"the replays of {many} workers restored"
        if self._parts.has_replay and saved_arrays is None:
            replays = "the checkpoint has no replays: they warm up again, and the ratio counts from here"
        died = f"{lost} of {many} workers had died: they begin anew where they were" if lost else ""
        return "; ".join(filter(None, (replays if self._parts.has_replay else "", died)))
