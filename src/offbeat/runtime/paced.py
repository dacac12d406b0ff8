"""The training loop of a run with one learner: around each learning step it decides what else is to be done.

The loop is the same in serial, threads and processes: wait for the tickets of a learning step, learn, let the actors
know, look around. What needs quiescence, a checkpoint or a stop, sets the pause before the step after which it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

from offbeat.config.config import Config
from offbeat.core.types import Tree
from offbeat.metrics.recorder import Counters
from offbeat.runtime.acting import Acting
from offbeat.runtime.assembly import build_paced
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.supervisor import Reporting
from offbeat.runtime.training_loop import TrainingLoop, crosses
from offbeat.runtime.watchers import Ending, Watchers
from offbeat.workers.learner import Learned


class PacedLoop(TrainingLoop):
    """See the module's docstring."""

    def __init__(self, parts: PacedParts, acting: Acting, watchers: Watchers) -> None:
        super().__init__(parts, watchers)
        self._parts, self._acting = parts, acting
        self._pause: int | None = None
        self._in_step = False
        """Whether a learning step is under way: the weights are then between two versions."""
        self._acting_failed = False

    def start(self, statistics: Mapping[str, Any] | None = None) -> None:
        if statistics is not None:
            self._parts.algorithm.restore_statistics(statistics)
        self._parts.learner.publish(0)
        self.save_start()
        self._acting.start([None] * self._parts.config.runtime.actors)

    def run(self) -> None:
        while self.ending is None:
            step = self.learned
            self._acting.wait(self._parts.pace.acted_before_learn(step))
            filled = self._acting.slots_filled(step)
            self._before_learning(self._parts.learner.feed.valid_rows(step))
            learned = self._parts.learner.learn(step, self.training_progress)
            self._acting.finish(step + 1)
            self._after_learning(learned, filled)

    @property
    def learned(self) -> int:
        """Learning steps 0 .. learned-1 are finished."""
        return self.counters.learning_step

    @property
    def training_progress(self) -> float:
        """From 0 to 1 over `steps`: what schedules run over."""
        return min(1.0, self.counters.env_steps / self._run.steps)

    def _before_learning(self, env_steps: int) -> None:
        """Before the next learning step, which will add `env_steps`: set the pause, if something needs quiescence.

        It must be set before the step is finished, as that would allow tickets beyond it. The end of the run needs
        it too: what lies beyond would never be learned from.
        """
        after = self.counters.env_steps + env_steps
        self._stop = self._stop or self._wanted_stop(after)
        checkpoint = crosses(self.counters.env_steps, after, self._run.checkpoint_interval) or self._saving.is_due
        if self._pause is None and (self._stop or checkpoint or after >= self._run.steps):
            self._pause = self._parts.pace.pause_ticket(self.learned)
            self._acting.pause_at(self._pause)
        self._in_step = True

    def _after_learning(self, learned: Learned, slots_filled: float) -> None:
        """Count a finished learning step, then do what is due: evaluate, write, save, end."""
        self._in_step = False
        before, self.counters = self.counters, self._count(learned)
        self._recorder.episodes(learned.episode_returns, learned.episode_lengths)
        self._recorder.reported(learned.info)
        filled = dict.fromkeys(("slots_filled", "slots_filled_min", "slots_filled_max"), slots_filled)
        self._recorder.learned({**learned.metrics, **filled})
        finished = self.counters.env_steps >= self._run.steps
        evaluated = self._evaluate(due=self._evaluation_due(before, finished=finished), last=finished)
        if evaluated or self._line_due(before):  # before the checkpoint: a resume begins after this line
            self._write_renewed_line()
        if finished:
            self.ending = Ending("finished", f"learned from {self.counters.env_steps} env steps", 0)
        elif self._quiescent:
            self.ending = self._stop
            if not self._stop:
                self._save()
                self._pause = None
                self._acting.pause_at(None)
        elif self._saving.best_is_unsaved:
            self._save_best()
        self._show("training")

    @property
    def _quiescent(self) -> bool:
        """Whether every ticket that may begin has been learned from."""
        return self._parts.pace.tickets_of(self.learned).start == self._pause

    def _count(self, learned: Learned) -> Counters:
        counters = self.counters
        env_steps = counters.env_steps + learned.env_steps
        return replace(
            counters,
            env_steps=env_steps,
            frames=env_steps * self._parts.env.frame_skip,
            learning_step=counters.learning_step + 1,
            updates=counters.updates + learned.updates,
            updates_refused=counters.updates_refused + learned.refused,
        )

    # --- what the base class asks for -----------------------------------------------------------------------

    @property
    def _exact(self) -> bool:
        return self._parts.config.runtime.lag == "exact"

    @property
    def _restarts(self) -> int:
        return self._acting.restarts

    @property
    def _longest_stall(self) -> float:
        return self._acting.longest_stall

    def _spent(self) -> Iterable[Mapping[str, float]]:
        return self._acting.spent()

    @property
    def _can_be_saved(self) -> bool:
        return not self._in_step

    def salvage(self) -> None:
        self._acting_failed = True
        super().salvage()

    def _acted_beyond(self) -> int:
        acted, committed = self._acting.acted, self._parts.pace.acted_before_learn
        beyond = takewhile(lambda step: committed(step) <= acted, count(self.learned))
        return sum(self._parts.learner.feed.valid_rows(step) for step in beyond)

    def _checkpoint_arrays(self) -> Tree | None:
        return self._parts.learner.feed.checkpoint_arrays()

    def _state(self) -> dict[str, Any]:
        """Return what resuming needs; states of envs only where every acted ticket has been learned from."""
        asked = self._quiescent and not self._acting_failed
        actors = self._acting.snapshots() if asked else [None] * self._parts.config.runtime.actors
        return {
            "learner": self._parts.learner.state(),
            "versions": {str(version): vector for version, vector in self._parts.weights.versions().items()},
            "progress": {
                str(version): self._parts.weights.progress(version) for version in self._parts.weights.versions()
            },
            "actors": actors,
        }

    def _go_on_from(self, state: Mapping[str, Any], arrays: Tree | None) -> tuple[bool, str]:
        self._parts.learner.restore(state["learner"])
        memory = self._parts.learner.feed.attach(arrays, self.learned)
        for version, vector in sorted(state["versions"].items(), key=lambda item: int(item[0])):
            self._parts.weights.open(int(version))[:] = vector
            self._parts.weights.commit(int(version), state["progress"][version])
        continued = None not in state["actors"]
        self._acting.start(state["actors"] if continued else [None] * len(state["actors"]))
        return continued, memory


@dataclass(frozen=True)
class PacedRuntime:
    """A runtime with one learner, whose actors act as the pace allows."""

    acting: Callable[[PacedParts, int, Reporting], Acting]
    """Makes the actors' side of a run, which acts from the first ticket on that learning step `learned` takes in.
    Raises ConfigError where the env cannot be made, or cannot be sent to another process."""
    shared: bool = False
    """Whether actors are in other processes."""

    def build(self, config: Config, notify: Callable[[str], None]) -> PacedParts:
        """Make the learner's side of a run. Raises as `build_paced` does."""
        return build_paced(config, notify, shared=self.shared)

    def loop(
        self, parts: PacedParts, learned: int, watchers: Watchers, reporting: Reporting, closing: ExitStack
    ) -> TrainingLoop:
        """Make the actors, and the loop that waits for them and learns.

        Args:
            parts: from `build`.
            learned: learning steps that are finished; the first ticket keys the episodes that begin there.
            watchers: of the run.
            reporting: who is told of actor processes.
            closing: what ends the actors is left to it.

        Raises:
            ConfigError: the env cannot be made, or cannot be sent to another process.
        """
        acting = self.acting(parts, learned, reporting)
        closing.callback(acting.close)
        return PacedLoop(parts, acting, watchers)
