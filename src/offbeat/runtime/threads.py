"""The threads runtime: one thread per actor; the learner runs in the calling thread.

Python's global interpreter lock (GIL) lets one thread run at a time. So acting and learning overlap only while envs or
the learner's arithmetic release the lock: MuJoCo, envs that wait, large networks. Threads share memory directly:
nothing is copied or pickled.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from offbeat.core.closing import all_or_closed, close_all, closed_on_error
from offbeat.core.errors import Closed, EnvFailed, OffbeatError, RunFailed, type_and_text, with_notes_of
from offbeat.core.process.threads import core_of, join_all, pin, raise_niceness, start_thread, write_blas_memory
from offbeat.runtime.board import POLL_INTERVAL_S
from offbeat.runtime.deadline import StallWatch
from offbeat.runtime.gate import ActorGate
from offbeat.runtime.gated import GatedActing
from offbeat.runtime.links import GateLink
from offbeat.runtime.loop.paced import PacedRuntime
from offbeat.runtime.make_actor import make_actor, start_actor
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Reporting
from offbeat.workers.actor import Actor


class ThreadActing(GatedActing):
    """Actors as threads, one each."""

    def __init__(self, parts: PacedParts, learned: int, reporting: Reporting) -> None:
        super().__init__(parts, learned)
        write_blas_memory(threads=parts.plan.runtime.actors + parts.threads)
        self.restarts, self._arrays = 0, parts.arrays
        self._watch_closing = partial(parts.main_thread.closing, reporting.notify)
        plan, actors = parts.plan, range(parts.plan.runtime.actors)
        self._gates = [
            ActorGate(self.board, plan.pace, plan.runtime, index, self.gate.acting_bells[index], self.gate.own_bell)
            for index in actors
        ]
        with closed_on_error(self.gate.bells):
            self._actors = all_or_closed(
                make_actor(plan, index, self.origin, gate.deadline) for index, gate in enumerate(self._gates)
            )
        self._stalls = StallWatch(self.board.deadlines)
        self._threads: list[threading.Thread] = []
        self._paused: list[tuple[int, ActorSnapshot]] = [(-1, None)] * len(actors)
        """For each actor: the ticket of its last pause, and the state of its envs there."""
        self._has_paused = threading.Condition()
        self._failures: dict[int, BaseException] = {}
        """The error that ended an actor, by index."""
        self._ending, self._ended, self._is_closed = threading.Lock(), set[int](), False
        """Guards the other two: the actors whose threads have ended, and whether `close` has closed their envs."""

    def start(self, snapshots: Sequence[ActorSnapshot]) -> None:
        progress = self.memory.progress
        for actor, snapshot in zip(self._actors, snapshots, strict=True):
            thread = threading.Thread(
                target=self._run, args=(actor, snapshot, progress), name=f"offbeat actor {actor.index}", daemon=True
            )
            start_thread(thread)
            self._threads.append(thread)

    def _run(self, actor: Actor, snapshot: ActorSnapshot, progress: float) -> None:
        """Run an actor in this thread. An error is stored, and `watch` raises it in the learner's thread."""
        runtime, gate = self.plan.runtime, self._gates[actor.index]
        try:
            pin(core_of(runtime.actor_cores, actor.index))
            raise_niceness(runtime.actor_nice)
            start_actor(self.plan, actor, self.origin, snapshot, progress)
            actor.work(GateLink(gate, self.plan.memory(self._arrays), partial(self._report_pause, actor)))
        except Closed:
            return
        except BaseException as error:  # noqa: BLE001 - `watch` raises it
            self._failures[actor.index] = error
            self.gate.own_bell.ring()
        finally:
            self._end(actor)

    def _end(self, actor: Actor) -> None:
        """Note that the thread of an actor ends. If `close` did not wait for it, close its envs here."""
        with self._ending:
            self._ended.add(actor.index)
            if not self._is_closed:
                return
            is_last = not self._late
        with ExitStack() as closing:
            if is_last:
                closing.callback(self.gate.discard)
            actor.close()

    @property
    def _late(self) -> set[int]:
        """The actors whose threads have not ended yet."""
        return set(range(len(self._threads))) - self._ended

    def _report_pause(self, actor: Actor) -> None:
        """Note the state of an actor's envs at a pause, in its thread, whose deadline bounds the env calls."""
        paused = self._gates[actor.index].open_ticket, actor.snapshot()
        with self._has_paused:
            self._paused[actor.index] = paused
            self._has_paused.notify()

    def watch(self) -> None:
        """Raise if an actor has failed or hangs."""
        for index, error in self._failures.items():
            kind = EnvFailed if isinstance(error, EnvFailed) else RunFailed
            message = str(error) if isinstance(error, OffbeatError) else type_and_text(error)
            raise with_notes_of(kind(f"actor {index}: {message}"), error) from error
        for actor in range(self.board.workers):
            if self._stalls.has_stalled(actor):
                raise RunFailed(
                    f"actor {actor} {self.board.deadlines[actor].reason}, and a thread cannot be killed: pass "
                    "--runtime processes, which restarts such an actor, or a longer time limit"
                )

    def snapshots(self) -> list[ActorSnapshot]:
        while not self._all_paused():
            self.watch()
        return [snapshot for _, snapshot in self._paused]

    def _all_paused(self) -> bool:
        """Wait for a moment until all actors have paused at the tickets of this pause; return whether they have."""
        pause = int(self.board.pause[0])
        with self._has_paused:
            return self._has_paused.wait_for(
                lambda: all(paused_at >= pause for paused_at, _ in self._paused), POLL_INTERVAL_S
            )

    def close(self) -> None:
        self.gate.close()
        join_all(self._threads)
        with self._ending:
            late, self._is_closed = self._late, True
        with ExitStack() as closing:
            if not late:  # a late thread may still ring a bell
                closing.callback(self.gate.discard)
            closing.enter_context(self._watch_closing())
            close_all(actor for actor in self._actors if actor.index not in late)


RUNTIME = PacedRuntime(ThreadActing)
