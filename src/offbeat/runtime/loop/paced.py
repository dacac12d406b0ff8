"""The training loop of a run with one learner, in the runtimes serial, threads, processes and ray.

Each iteration waits for the tickets of a learning step, makes the step, and then evaluates, writes metrics, saves or
ends the run if that is due. A checkpoint or a stop needs all acted tickets to be learned from, so acting is paused
before the learning step after which it is due. For the end of the run, acting is paused at the first ticket that the
run may not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from offbeat.config.config import Config
from offbeat.metrics.counters import Counters
from offbeat.metrics.progress.status import FirstBatch
from offbeat.models.acting import IF_NOT_FINITE
from offbeat.runtime.acting import Acting
from offbeat.runtime.assembly import build_paced
from offbeat.runtime.learners.processes import learners_of
from offbeat.runtime.loop.league_files import LeagueSnapshotFiles
from offbeat.runtime.loop.paced_workforce import PacedWorkforce, env_steps_of
from offbeat.runtime.loop.run_metrics import crosses
from offbeat.runtime.loop.run_services import RunServices
from offbeat.runtime.loop.training_loop import TrainingLoop
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.reporting import Reporting
from offbeat.workers.learner import Learned
from offbeat.workers.updates import REFUSED_IN_A_ROW


class PacedLoop(TrainingLoop):
    """See the module's docstring."""

    _workforce: PacedWorkforce
    """Narrower than in `TrainingLoop`."""

    def __init__(self, parts: PacedParts, workforce: PacedWorkforce, services: RunServices) -> None:
        super().__init__(parts, workforce, services)
        self._snapshots = LeagueSnapshotFiles(parts, services) if parts.league is not None else None
        """Writes the snapshots of the league; None without a league."""
        self._has_made_a_step = False
        """Whether a learning step was made since the run was started or resumed."""
        self._in_step = False
        """Whether a learning step is running: the parameters may then be inconsistent."""

    def run(self) -> None:
        if self.ending:  # only the last evaluation is left, which `close` makes
            return
        self._show("training")
        self._write_snapshots()
        self._line_is_pending = self._advance_evaluations(due=False, last=False)  # of one that a signal stopped
        self._continue_or_end(finished=False, at_boundary=False)
        while self.ending is None:
            waiting = self._workforce.wait(self._show_training)
            self._before_learning(self._workforce.next_env_steps)
            learned = self._workforce.learn(self.training_progress, self.counters.env_steps)
            self._after_learning(learned, waiting)

    def _show_training(self) -> None:
        self._show("training")

    def _during_evaluation(self) -> None:
        if not self._workforce.at_boundary:  # there, acting is paused, and an actor may have sent its last state
            self._workforce.watch()
        super()._during_evaluation()

    def _first_batch(self) -> FirstBatch | None:
        config = self._parts.config
        if self._has_made_a_step or self.ending or config.algorithm_settings.learns_from != "unrolls":
            return None
        acted, needed = self._workforce.acted_of_batch
        return FirstBatch(acted, needed, needed * config.memory.length * config.runtime.envs_per_actor)

    @property
    def training_progress(self) -> float:
        """Training progress, from 0 to 1 over the run's `steps`. Schedules depend on it."""
        return min(1.0, self.counters.env_steps / self._run.steps)

    def _before_learning(self, env_steps: int) -> None:
        """Before the next learning step, which will add `env_steps`: pause acting if a checkpoint or a stop follows.

        The pause must be set before the step is finished, because a finished step allows further tickets to start.
        """
        after = self.counters.env_steps + env_steps
        self._planned_ending = self._planned_ending or self._requested_ending(after)
        checkpoint = crosses(self.counters.env_steps, after, self._run.checkpoint_interval) or self.saving.is_due
        if self._planned_ending or checkpoint:
            self._workforce.plan_pause()
        self._in_step = True

    def _after_learning(self, learned: Mapping[str, Learned], waiting: Mapping[str, float]) -> None:
        """Count a finished learning step; then evaluate, write metrics, save or end the run, if due.

        Args:
            learned: the result of the step for each policy.
            waiting: metrics of what was committed and not learned from before the step.
        """
        before, self.counters = self.counters, self._count(learned)
        self._in_step, self._has_made_a_step = False, True  # from here on, counters and weights can be saved together
        self._write_snapshots()
        if self.counters.updates_refused > before.updates_refused == 0:
            self._notify(
                f"an update of learning step {before.learning_step} had a loss or gradient that was not finite: it was "
                "refused. That stage of the update and those after it changed nothing. After "
                f"{REFUSED_IN_A_ROW} in a row the run ends. {IF_NOT_FINITE}"
            )
        self._record(learned, waiting)
        finished = self.counters.env_steps >= self._run.steps
        evaluated = self._advance_evaluations(due=self._evaluation_due(before, finished=finished), last=finished)
        self._line_is_pending = evaluated or self.metrics.line_due(before, self.counters)
        self._continue_or_end(finished=finished, at_boundary=finished or self._workforce.at_boundary)
        if self.ending is None:  # or `close` shows the last line
            self._show("training")

    def _record(self, learned: Mapping[str, Learned], waiting: Mapping[str, float]) -> None:
        """Add a finished learning step to the metrics; the arguments are those of `_after_learning`."""
        recorder = self.metrics.recorder
        for policy, result in learned.items():
            recorder.add_episodes(result.episode_returns, result.episode_lengths, policy)
            if result.info.size:
                recorder.add_infos(result.info, policy)
            recorder.add_agent_steps(result.agent_steps, policy)
            recorder.add_learning_step(result.metrics, policy)
        recorder.add_learning_step(self._workforce.metrics())
        recorder.add_learning_step(waiting)

    def _continue_acting(self) -> None:
        self._workforce.end_pause()

    def _write_snapshots(self) -> None:
        """Write the snapshots that the league has just taken."""
        if self._snapshots is not None:
            with self._signals.suspend_deadline():
                self._snapshots.update()

    def _count(self, learned: Mapping[str, Learned]) -> Counters:
        counters, results = self.counters, learned.values()
        env_steps = counters.env_steps + env_steps_of(learned)
        return replace(
            counters,
            env_steps=env_steps,
            frames=env_steps * self._parts.env_spec.frame_skip,
            agent_steps=counters.agent_steps + sum(result.agent_steps for result in results),
            learning_step=counters.learning_step + 1,
            updates=counters.updates + sum(result.updates for result in results),
            updates_refused=counters.updates_refused + sum(result.refused for result in results),
        )

    def salvage(self) -> None:
        """Save what has been learned. If the run failed in a learning step, keep the last checkpoint."""
        self._workforce.acting_failed = True
        if not self._in_step:
            super().salvage()


@dataclass(frozen=True)
class PacedRuntime:
    """A runtime with one learner."""

    acting: Callable[[PacedParts, int, Reporting], Acting]
    """Makes the actors from (parts, learned, reporting). They start at the first ticket of learning step `learned`.
    Raises ConfigError if the env cannot be made, or cannot be sent to another process."""

    def build(self, config: Config, notify: Callable[[str], None]) -> PacedParts:
        """Build the parts of a run, without its actors. Errors are those of `build_paced`."""
        return build_paced(config, notify, shared=config.runtime.entry.in_processes)

    def loop(self, parts: PacedParts, learned: int, services: RunServices, closing: ExitStack) -> TrainingLoop:
        """Make the actors and the training loop.

        Args:
            parts: the parts from `build`.
            learned: number of finished learning steps.
            services: recorder, progress view, callbacks and signals of the run.
            closing: the callback that stops the actors is added to it.

        Raises:
            ConfigError: the env cannot be made, or cannot be sent to another process.
        """
        acting = self.acting(parts, learned, services.reporting)
        closing.callback(acting.close)
        learners = learners_of(parts, acting, services.reporting)
        workforce = PacedWorkforce(parts, acting, learners, services.reporting.notify)
        closing.callback(workforce.close)
        return PacedLoop(parts, workforce, services)
