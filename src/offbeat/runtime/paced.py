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
from offbeat.core.types import Tree, policy_key
from offbeat.metrics.recorder import Counters
from offbeat.runtime.acting import Acting
from offbeat.runtime.assembly import build_paced
from offbeat.runtime.parts import LearnedPolicy, PacedParts, joined, state_of
from offbeat.runtime.run_metrics import crosses
from offbeat.runtime.supervisor import Reporting
from offbeat.runtime.training_loop import TrainingLoop
from offbeat.runtime.watchers import Ending, Watchers
from offbeat.runtime.workforce import Workforce
from offbeat.workers.learner import Learned


class PacedWorkforce(Workforce):
    """Actors, and one learner."""

    def __init__(self, parts: PacedParts, acting: Acting) -> None:
        self._parts, self._acting, self._pace = parts, acting, parts.pace
        self._feeds = {policy.name: policy.learner.feed for policy in parts.policies}
        self.learned = 0
        """Learning steps 0 .. learned-1 are finished."""
        self._pause: int | None = None
        """The ticket from which on nothing is acted."""
        self.acting_failed = False

    # --- learning steps -------------------------------------------------------------------------------------

    def wait(self) -> float:
        """Wait for the tickets of the next learning step; return the share of the slots that are filled."""
        self._acting.wait(self._pace.acted_before_learn(self.learned))
        return self._acting.slots_filled(self.learned)

    @property
    def next_env_steps(self) -> int:
        """Env steps that the next learning step will add."""
        return self._valid_rows(self.learned)

    def _valid_rows(self, step: int) -> int:
        return sum(feed.valid_rows(step) for feed in self._feeds.values())

    def learn(self, progress: float) -> dict[str, Learned]:
        """Make the next learning step of every policy, and let the actors know.

        Args:
            progress: that of the training.

        Returns:
            What each policy did in it, by name.
        """
        learned = {policy.name: policy.learner.learn(self.learned, progress) for policy in self._parts.policies}
        self.learned += 1
        self._acting.finish(self.learned)
        return learned

    def pause(self) -> None:
        """Let actors pause at the first ticket that the pace cannot yet have allowed."""
        if self._pause is None:
            self._pause = self._pace.pause_ticket(self.learned)
            self._acting.pause_at(self._pause)

    def end_pause(self) -> None:
        """Let actors go on."""
        self._pause = None
        self._acting.pause_at(None)

    @property
    def is_quiescent(self) -> bool:
        """Whether every ticket that may begin has been learned from."""
        return self._pace.tickets_of(self.learned).start == self._pause

    @property
    def acted_beyond(self) -> int:
        """Env steps that were acted, and not learned from."""
        acted, committed = self._acting.acted, self._pace.acted_before_learn
        beyond = takewhile(lambda step: committed(step) <= acted, count(self.learned))
        return sum(map(self._valid_rows, beyond))

    # --- what every workforce has ---------------------------------------------------------------------------

    @property
    def restarts(self) -> int:
        return self._acting.restarts

    @property
    def longest_stall(self) -> float:
        return self._acting.longest_stall

    def spent(self) -> Iterable[Mapping[str, float]]:
        return self._acting.spent()

    def start(self, statistics: Mapping[str, Any]) -> None:
        for policy in self._parts.policies:
            if policy.name in statistics:
                policy.algorithm.restore_statistics(statistics[policy.name])
            policy.learner.publish(0)

    def begin_episodes(self) -> None:
        self._acting.start([None] * self._parts.config.runtime.actors)

    def state(self) -> dict[str, Any]:
        """Return what resuming needs; states of envs only where every acted ticket has been learned from."""
        complete = self.is_quiescent and not self.acting_failed
        return {
            **joined({policy.name: policy.state() for policy in self._parts.policies}),
            "actors": self._acting.snapshots() if complete else [None] * self._parts.config.runtime.actors,
        }

    def checkpoint_arrays(self) -> Tree | None:
        saved = {policy: arrays for policy, feed in self._feeds.items() if (arrays := feed.checkpoint_arrays())}
        named = {policy_key(policy, name): array for policy, own in saved.items() for name, array in own.items()}
        return named or None

    def restore(self, state: Mapping[str, Any], arrays: Tree | None) -> tuple[bool, str]:
        self.learned = state["counters"]["learning_step"]
        news = [self._restore_policy(policy, state, arrays) for policy in self._parts.policies]
        continued = None not in state["actors"]
        self._acting.start(state["actors"] if continued else [None] * len(state["actors"]))
        return continued, "; ".join(dict.fromkeys(filter(None, news)))

    def _restore_policy(self, policy: LearnedPolicy, state: Mapping[str, Any], arrays: Tree | None) -> str:
        """Let a policy go on from a checkpoint; return a message about its memory."""
        policy.restore(state_of(policy.name, state))
        prefix = policy_key(policy.name)
        own = arrays and {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        return policy.learner.feed.attach(own, self.learned)


class PacedLoop(TrainingLoop):
    """See the module's docstring."""

    def __init__(self, parts: PacedParts, workforce: PacedWorkforce, watchers: Watchers) -> None:
        super().__init__(parts, workforce, watchers)
        self._work = workforce
        self._in_step = False
        """Whether a learning step is under way: the weights are then between two versions."""

    def run(self) -> None:
        self._show("training")
        while self.ending is None:
            filled = self._work.wait()
            self._before_learning(self._work.next_env_steps)
            learned = self._work.learn(self.training_progress)
            self._after_learning(learned, filled)

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
        checkpoint = crosses(self.counters.env_steps, after, self._run.checkpoint_interval) or self.saving.is_due
        if self._stop or checkpoint or after >= self._run.steps:
            self._work.pause()
        self._in_step = True

    def _after_learning(self, learned: Mapping[str, Learned], slots_filled: float) -> None:
        """Count a finished learning step, then do what is due: evaluate, write, save, end."""
        self._in_step = False
        before, self.counters = self.counters, self._count(learned)
        recorder = self.metrics.recorder
        for policy, own in learned.items():
            recorder.add_episodes(own.episode_returns, own.episode_lengths, policy)
            recorder.add_infos(own.info)
            recorder.add_learning_step(own.metrics, policy)
        recorder.add_learning_step(
            dict.fromkeys(("slots_filled", "slots_filled_min", "slots_filled_max"), slots_filled)
        )
        finished = self.counters.env_steps >= self._run.steps
        evaluated = self._evaluate(due=self._evaluation_due(before, finished=finished), last=finished)
        if evaluated or self.metrics.line_due(before, self.counters):  # before the checkpoint: resumes follow this line
            self._write_renewed_line()
        if finished:
            self.ending = Ending("finished", f"learned from {self.counters.env_steps} env steps", 0)
        elif self._work.is_quiescent:
            self.ending = self._stop
            if not self._stop:
                self._save()
                self._work.end_pause()
        elif self.saving.best_is_unsaved:
            self._save_best()
        self._show("training")

    def _count(self, learned: Mapping[str, Learned]) -> Counters:
        counters, each = self.counters, learned.values()
        env_steps = counters.env_steps + sum(own.env_steps for own in each)
        return replace(
            counters,
            env_steps=env_steps,
            frames=env_steps * self._parts.env.frame_skip,
            learning_step=counters.learning_step + 1,
            updates=counters.updates + sum(own.updates for own in each),
            updates_refused=counters.updates_refused + sum(own.refused for own in each),
        )

    def salvage(self) -> None:
        """Save what has been learned when acting failed. Where learning failed, the last checkpoint stands."""
        self._work.acting_failed = True
        if not self._in_step:
            super().salvage()

    def _acted_beyond(self) -> int:
        return self._work.acted_beyond


@dataclass(frozen=True)
class PacedRuntime:
    """A runtime with one learner, whose actors act as the pace allows."""

    acting: Callable[[PacedParts, int, Reporting], Acting]
    """Makes the actors' side of a run, which acts from the first ticket on that learning step `learned` takes in.
    Raises ConfigError where the env cannot be made, or cannot be sent to another process."""

    def build(self, config: Config, notify: Callable[[str], None]) -> PacedParts:
        """Make the learner's side of a run. Raises as `build_paced` does."""
        return build_paced(config, notify, shared=config.runtime.entry.in_processes)

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
        return PacedLoop(parts, PacedWorkforce(parts, acting), watchers)
