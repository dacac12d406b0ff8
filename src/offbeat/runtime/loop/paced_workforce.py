"""The workforce of a run with one learner: its actors, and a learner for each policy.

It makes learning steps, and sets the ticket at which acting pauses. Acting pauses for a checkpoint or a stop, because
all acted tickets must then be learned from, and at the first ticket that the run may not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from math import ceil
from typing import Any

from offbeat.core.errors import RunFailed, without_full_stop
from offbeat.core.policy_names import policy_key
from offbeat.core.types import Tree, arrays_of_policy
from offbeat.metrics.counters import Counters
from offbeat.runtime.acting import Acting
from offbeat.runtime.learners.processes import LearnerProcesses
from offbeat.runtime.loop.workforce import Workforce
from offbeat.runtime.parts import PacedParts, PacedPolicy, join_states, state_of_policy
from offbeat.runtime.plan import ActorSnapshot
from offbeat.runtime.reporting import Notify
from offbeat.workers.learner import Learned
from offbeat.workers.learner_pool import LearnerPool


class PacedWorkforce(Workforce):
    """The actors, and one learner for each policy."""

    def __init__(
        self, parts: PacedParts, acting: Acting, learners: LearnerPool | LearnerProcesses, notify: Notify
    ) -> None:
        super().__init__(acting, notify)
        self._parts, self._acting, self._learners, self._pace = parts, acting, learners, parts.pace
        self._notify = notify
        self._first = parts.trained[0]
        updates_made = partial(_updates_made, parts.policies)
        in_threads = parts.config.runtime.learning_threads > 1  # these have a watch of their own
        self._watched = nullcontext if in_threads else parts.main_thread.learning_steps(notify, updates_made)
        self.learned = 0
        """Number of finished learning steps: steps 0 .. learned-1."""
        self._planned_pause: int | None = None
        """The ticket at which acting pauses for a checkpoint or a stop; None: no such pause."""
        self._first_unneeded = self._end_after(0)
        """The first ticket that the run may not need."""
        self.acting_failed = False

    # --- learning steps -------------------------------------------------------------------------------------

    def wait(self, show: Callable[[], None]) -> dict[str, float]:
        """Wait for the tickets of the next learning step; return metrics of what is committed and not learned from.

        Args:
            show: is called often while this waits, to show the progress.
        """

        def watch_and_show() -> None:
            self._learners.watch()
            show()

        self._acting.wait(self._pace.acted_before_learn(self.learned), watch_and_show)
        filled, batches = self._acting.slots_filled(self.learned), float(self._queue_size)
        return {
            **dict.fromkeys(("slots_filled", "slots_filled_min", "slots_filled_max"), filled),
            **{f"learner_queue_size_{name}": batches for name in ("mean", "min", "max")},
        }

    @property
    def _queue_size(self) -> int:
        """Number of batches (with a replay: of tickets) that are committed without a gap and not learned from."""
        tickets = self._acting.acted - self._pace.next_ticket(self.learned)
        return tickets // len(self._pace.tickets_of(self.learned))

    @property
    def acted_of_batch(self) -> tuple[int, int]:
        """Number of committed tickets of the next batch, without a gap, and of all its tickets."""
        tickets = self._pace.tickets_of(self.learned)
        return min(len(tickets), max(0, self._acting.acted - tickets[0])), len(tickets)

    @property
    def next_env_steps(self) -> int:
        """Env steps that the next learning step will add."""
        return self._first.learner.feed.env_steps(self.learned)

    def learn(self, progress: float, env_steps: int) -> dict[str, Learned]:
        """Make the next learning step of every policy, and notify the actors that it is finished.

        Args:
            progress: training progress, from 0 to 1.
            env_steps: env steps that have been learned from before this step.

        Returns:
            The result of the step for each policy, by name.
        """
        with self._watched():
            results = self._learners.learn(self.learned, progress)
        learned = {policy.name: result for policy, result in zip(self._parts.policies, results, strict=True)}
        added = env_steps_of(learned)
        if self._parts.league is not None:
            self._parts.league.advance(self.learned, env_steps + added)
        assert added <= self._rows_of(self.learned), "tickets beyond the end may have been acted"
        self.learned += 1
        self._first_unneeded = self._end_after(env_steps + added)
        self._apply_pause()  # first: a finished step allows further tickets to start
        self._acting.finish(self.learned)
        return learned

    def watch(self) -> None:
        """Restart actors that died or hang, and check the learners.

        Raises:
            RunFailed: one of them failed and is not restarted.
        """
        self._acting.watch()
        self._learners.watch()

    def metrics(self) -> Mapping[str, float]:
        """Return metrics of the league, and since the last call of inference workers or of messages to a cluster."""
        league = self._parts.league
        return {**self._acting.metrics(), **({} if league is None else league.metrics())}

    def close(self) -> None:
        """End the processes and threads of the learners, and their loaders."""
        self._learners.close()

    def plan_pause(self) -> None:
        """Pause acting at the first ticket that the pace cannot have allowed yet."""
        if self._planned_pause is None:
            self._planned_pause = self._pace.pause_ticket(self.learned)
            self._apply_pause()

    def end_pause(self) -> None:
        """End the pause."""
        self._planned_pause = None
        self._apply_pause()

    def _apply_pause(self) -> None:
        self._acting.pause_at(self._pause_ticket)

    @property
    def _pause_ticket(self) -> int | None:
        """The ticket at which acting pauses; None: no pause is near."""
        if self._planned_pause is not None:
            return min(self._planned_pause, self._first_unneeded)
        return self._first_unneeded if self._first_unneeded <= self._pace.pause_ticket(self.learned) else None

    def _end_after(self, env_steps: int) -> int:
        """Return the first ticket that the run may not need, after learning from `env_steps`.

        The next batches end the run at the earliest if all their rows are env steps. As other rows are found, the end
        moves on. Tickets from it on may not start, so the run ends at a boundary.
        """
        batches = max(0, ceil((self._parts.config.run.steps - env_steps) / self._rows_of(self.learned)))
        return self._pace.next_ticket(self.learned) + batches * len(self._pace.tickets_of(self.learned))

    @property
    def _has_learned_everything(self) -> bool:
        return self._pace.next_ticket(self.learned) >= self._first_unneeded

    def _rows_of(self, step: int) -> int:
        """Return the rows of a learning step's tickets, one for each env: the most env steps that it can add."""
        config = self._parts.config
        return len(self._pace.tickets_of(step)) * config.memory.length * config.runtime.envs_per_actor

    @property
    def at_boundary(self) -> bool:
        """Whether acting is paused and every acted ticket has been learned from at least once: see the glossary."""
        return self._pace.next_ticket(self.learned) == self._pause_ticket

    # --- the interface of every workforce -------------------------------------------------------------------

    def publish_initial(self, statistics: Mapping[str, Any]) -> None:
        for policy in self._parts.policies:
            if policy.name in statistics:
                policy.algorithm.restore_statistics(statistics[policy.name])
            policy.learner.publish(0)
        if self._parts.league is not None:
            self._parts.league.start()

    def start(self) -> None:
        self._learners.start(self.learned)
        self._apply_pause()
        self._acting.start([None] * self._parts.config.runtime.actors)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; with states of envs only if every acted ticket has been learned from."""
        complete = self.at_boundary and not self.acting_failed
        snapshots = self._snapshots() if complete else [None] * self._parts.config.runtime.actors
        league = {} if self._parts.league is None else {"league": self._parts.league.state()}
        return {
            **league,
            **join_states({policy.name: policy.state() for policy in self._parts.policies}),
            "actors": self._savable(snapshots),
        }

    def _snapshots(self) -> list[ActorSnapshot]:
        """Return the state of each actor's envs. A run that has learned everything ends also without them."""
        if not self._has_learned_everything:
            return self._acting.snapshots()
        try:
            if not self._acting.waits_for_place:
                return self._acting.snapshots()
            reason = "an actor has not started, perhaps because no node has room for it"
        except RunFailed as error:
            reason = without_full_stop(error)
        self._notify(
            f"the unfinished episodes are not saved: {reason}. The run is finished; if it is resumed with more steps, "
            "new episodes start"
        )
        return [None] * self._parts.config.runtime.actors

    def checkpoint_arrays(self) -> Tree | None:
        by_policy = {policy.name: policy.learner.feed.checkpoint_arrays() or {} for policy in self._parts.policies}
        named = {policy_key(policy, name): array for policy, tree in by_policy.items() for name, array in tree.items()}
        return named or None

    def restore(self, state: Mapping[str, Any], arrays: Tree | None, *, paused: bool) -> tuple[bool, str]:
        counters = Counters.of_state(state["counters"])
        self.learned = counters.learning_step
        self._first_unneeded = self._end_after(counters.env_steps)
        self._planned_pause = self._pace.next_ticket(self.learned) if paused else None
        self._apply_pause()
        if self._parts.league is not None:
            self._parts.league.restore(state["league"])
        messages = {policy.name: self._restore_policy(policy, state, arrays) for policy in self._parts.policies}
        self._learners.start(self.learned)
        continued = None not in state["actors"]
        self._acting.start(state["actors"] if continued else [None] * len(state["actors"]))
        return continued, _message_of_policies(messages)

    def _restore_policy(self, policy: PacedPolicy, state: Mapping[str, Any], arrays: Tree | None) -> str:
        """Restore a policy from a checkpoint; return a message about its memory."""
        policy.restore(state_of_policy(policy.name, state))
        memory = arrays_of_policy(policy.name, arrays or {}) or None  # some policies may not save their replay
        return policy.learner.feed.load_checkpoint(memory, self.learned)


def _message_of_policies(messages: Mapping[str, str]) -> str:
    """Join a message of each policy; with the names of the policies, if the messages differ."""
    if len(set(messages.values())) == 1:
        return next(iter(messages.values()))
    return "; ".join(f"{name}: {message}" for name, message in messages.items() if message)


def env_steps_of(learned: Mapping[str, Learned]) -> int:
    """Return the env steps of a learning step: the same for all policies, but for those that are not trained."""
    return max(result.env_steps for result in learned.values())


def _updates_made(policies: Sequence[PacedPolicy]) -> int:
    """Return the number of updates of all policies so far."""
    return sum(policy.learner.updates_made for policy in policies)
