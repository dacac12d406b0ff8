"""The hogwild runtime: workers that act and learn, lock-free on shared parameters, and the conductor that looks on.

The conductor never learns. It reads the workers' counters several times a second, evaluates snapshots while they go
on, and lets them come to rest where something needs that: at the limit, a number of env steps that all workers take
in together, which is the end of the run or the next checkpoint; or at once, for a stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from offbeat.runtime.commons import Done
from offbeat.runtime.conductor import Conductor, Ending, Watchers
from offbeat.runtime.crew import Crew, LockFreeParts
from offbeat.runtime.worker_process import State, Told
from offbeat.types import Tree

AT_ONCE = 0
"""The limit that stops all workers after the learning step that each is at."""
REST_S = 5.0
"""Seconds that workers get to come to rest where one of them has failed for good."""


class HogwildConductor(Conductor):
    """See the module's docstring."""

    def __init__(self, parts: LockFreeParts, crew: Crew, watchers: Watchers) -> None:
        super().__init__(parts, watchers)
        self._parts, self._crew, self._board = parts, crew, parts.board
        self._replay_sizes = [0.0] * parts.board.workers
        self._limit = AT_ONCE

    def begin_anew(self, statistics: Mapping[str, Any] | None = None) -> None:
        if statistics is not None:
            self._parts.storage.begin_statistics(statistics)
        self._crew.begin([None] * self._board.workers)

    def run(self) -> None:
        self._go_on()
        while self.ending is None:
            self._crew.wait()
            self._look()

    def _go_on(self) -> None:
        """Let workers go on to the next boundary."""
        env_steps, run = self.counters.env_steps, self._run
        limits = [run.steps]
        if run.stop_at is not None:
            limits.append(run.stop_at)
        if interval := run.checkpoint_interval:
            limits.append((env_steps // interval + 1) * interval)
        self._limit = min(limits)
        self._crew.go_on(self._limit)

    def _look(self) -> None:
        """Count what workers have done meanwhile, then do what is due: evaluate, write, save, end."""
        at_rest, before = self._crew.at_rest, self.counters  # in this order: at rest, nothing is added any more
        self._take_in()
        finished = at_rest and self.counters.env_steps >= self._run.steps
        self._stop = self._stop or self._wanted_stop(self.counters.env_steps)
        evaluated = self._evaluation_due(before, finished=finished) and self._evaluate()
        if evaluated or self._line_due(before):
            self._write_line()
        if at_rest:
            self._at_boundary(finished=finished)
        elif self._saving.best_is_unsaved:
            self._save_best()
        elif self._stop and self._limit != AT_ONCE and self.counters.env_steps < self._limit:
            self._limit = AT_ONCE
            self._crew.go_on(AT_ONCE)
        self._show("training")

    def _at_boundary(self, *, finished: bool) -> None:
        """All workers are at rest: end, or save and go on."""
        if finished:
            self.ending = Ending("finished", f"learned from {self.counters.env_steps} env steps", 0)
        elif self._stop:
            self.ending = self._stop
        else:
            self._save()
            self._go_on()

    # --- counting -------------------------------------------------------------------------------------------

    def _take_in(self) -> None:
        """Take in what workers have told of, and bring the counters up to this moment."""
        done = [self._board.done(worker) for worker in range(self._board.workers)]
        env_steps, updates = sum(each.env_steps for each in done), self._board.updates.sum(axis=0)
        self.counters = replace(
            self.counters,
            env_steps=env_steps,
            frames=env_steps * self._parts.env.frame_skip,
            learning_step=sum(each.learning_steps for each in done),
            updates=int(updates[0]),
            updates_refused=int(updates[1]),
        )
        self._renew_counters()
        heard, self._crew.heard = self._crew.heard, []
        for worker, told in heard:
            self._take_in_told(worker, told)

    def _take_in_told(self, worker: int, told: Told) -> None:
        for metrics in told.metrics:
            if "replay_size" in metrics:
                self._replay_sizes[worker] = metrics["replay_size"]
                metrics["replay_size"] = sum(self._replay_sizes)
            self._recorder.learned(metrics)
        for returns, lengths in zip(told.returns, told.lengths, strict=True):
            self._recorder.episodes(returns, lengths)

    def _during_evaluation(self, ended: int) -> None:
        self._crew.watch()
        super()._during_evaluation(ended)

    # --- what the base class asks for -----------------------------------------------------------------------

    @property
    def _restarts(self) -> int:
        return self._crew.restarts

    @property
    def _longest_stall(self) -> float:
        return self._crew.longest_stall

    def _spent(self) -> Iterable[Mapping[str, float]]:
        return self._crew.spent()

    def salvage(self) -> None:
        """Let those who live come to rest, then save what all have learned; who has died begins anew, at a cut."""
        self._crew.settle(AT_ONCE, REST_S)
        self._take_in()
        super().salvage()

    @property
    def _can_be_saved(self) -> bool:
        return True

    def _kept(self) -> Tree | None:
        """Return the replays of all workers, of which the rows lie where this process sees them too."""
        kept: Tree = {}
        for worker, state in enumerate(self._crew.states()):
            replay = state.learner.get("replay") if state and state.learner else None
            if state and replay is not None:
                rows = self._parts.replay_rows(worker, replay)
                kept |= {f"{worker}/{name}": array for name, array in (rows | state.priorities).items()}
        return kept or None

    def _state(self) -> dict[str, Any]:
        states = self._crew.states()
        return {
            "learned": self._parts.storage.learned(),
            "statistics": self._parts.storage.records(),
            "learner": {"algorithm": self._parts.algorithm.state()},
            "workers": [self._worker_state(worker, state) for worker, state in enumerate(states)],
        }

    def _worker_state(self, worker: int, state: State | None) -> dict[str, Any]:
        """Return what is saved of a worker; of one that has died, only what the board has."""
        updates, refused = self._board.updates[worker, :2].tolist()
        counts = {"done": self._board.done(worker)._asdict(), "updates": updates, "refused": refused}
        return {**counts, "learner": state and state.learner, "actor": state and state.actor}

    def _go_on_from(self, state: Mapping[str, Any], kept: Tree | None) -> tuple[bool, str]:
        self._parts.storage.load(state["learned"])
        self._parts.storage.load_records(state["statistics"])
        states = []
        for worker, saved in enumerate(state["workers"]):
            self._board.finish(worker, Done(**saved["done"]))
            self._board.updates[worker, :2] = saved["updates"], saved["refused"]
            states.append(self._restored(worker, saved, kept))
        continued = all(each.actor is not None for each in states)
        self._crew.begin(states)
        return continued, _replays_in_words(state, kept)

    def _restored(self, worker: int, saved: Mapping[str, Any], kept: Tree | None) -> State:
        """Return what a worker goes on from, and put the rows of its replay to where it will find them."""
        learner, own = saved["learner"], f"{worker}/"
        if learner is None:
            return State(None, None, {})
        if learner.get("replay") is None:
            return State(learner, saved["actor"], {})
        if kept is None:
            return State({**learner, "replay": None}, saved["actor"], {})
        arrays = {name.removeprefix(own): array for name, array in kept.items() if name.startswith(own)}
        priorities = {name: np.array(array) for name, array in arrays.items() if name.startswith("priorities/")}
        for name, rows in self._parts.replay_rows(worker, learner["replay"]).items():
            rows[...] = arrays[name]
        return State(learner, saved["actor"], priorities)


def _replays_in_words(state: Mapping[str, Any], kept: Tree | None) -> str:
    if not any("replay" in (worker["learner"] or {}) for worker in state["workers"]):
        return ""
    if kept is None:
        return "the checkpoint has no replays: they warm up again, and the ratio counts from here"
    many = len(state["workers"])
    return f"the replays of {many} workers restored" if many > 1 else "the replay restored"
