"""The columns of one policy: step its envs row by row, and write the rows into the slot of a ticket.

An actor has one `PolicyColumns` for each policy that it acts for (actor.py). An episode continues from one ticket to
the next.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter as clock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import FAILURES, EnvFailed, NetworkFailed, type_and_text
from offbeat.core.saved_state import SAVABLE, NotSavable, require_savable
from offbeat.core.types import (
    ENV_STEP,
    FRAME_AGE,
    HISTORY,
    INFO_MASK,
    INITIAL_STATE,
    LAST_NO_DECISION,
    NO_DECISION,
    NOT_ENDED,
    Acted,
    Array,
    Leaf,
    Policy,
    Tree,
)
from offbeat.envs.contract import Envs, Outcome, Snapshots, State
from offbeat.envs.episode_infos import EpisodeInfos
from offbeat.envs.infos import LATE_NO_DECISION
from offbeat.metrics.text import counted
from offbeat.models.stacks import Stacks
from offbeat.workers.env_calls import EnvCalls
from offbeat.workers.link import PolicyWork
from offbeat.workers.policy_faults import network_failed, policy_fault


class PolicyColumns:
    """Envs, the policy that acts in them, and the state of their unfinished episodes."""

    def __init__(
        self,
        envs: Envs,
        policy: Policy,
        transform_rewards: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda rewards: rewards,
    ) -> None:
        """Act with `policy` in `envs`.

        Args:
            envs: the envs of the columns.
            policy: chooses the actions; the weights of each ticket are loaded into it.
            transform_rewards: transforms the rewards of the envs, [N], to those that are learned from. Episode returns
                are sums of the untransformed rewards.
        """
        self._envs, self._policy, self._transform_rewards = envs, policy, transform_rewards
        self.calls = EnvCalls()
        """The env calls of these columns. An actor replaces it by one for all its columns."""
        self._leaves = [leaf.name for leaf in envs.spec.observation]
        self._following: Tree = {}
        """The observation after the last row of the last ticket: it is the first row of the next ticket."""
        self._returns = np.zeros(envs.spec.columns)  # float64: a million rewards of 0.1 add up to 100,000
        self._lengths = np.zeros(envs.spec.columns, np.int32)
        self._infos = EpisodeInfos(envs.spec.info, envs.spec.columns)
        self._state = np.zeros((envs.spec.columns, policy.state_size), np.float32)
        """Recurrent state of the policy, by column."""
        self._stacks = Stacks(envs.spec.observation, envs.spec.columns)
        self.resets = [True] * len(envs.groups)
        """By group: whether an episode may start in the next row, of these columns or of others of the same envs."""
        self._slot: Tree = {}
        """The slot of the current ticket."""
        self._asked: list[Tree] = [{} for _ in envs.groups]
        """By group: the observation, with stacks, for which actions were asked last."""

    @property
    def groups(self) -> int:
        """Number of env groups. The groups are stepped one after another."""
        return len(self._envs.groups)

    # --- the start of a ticket ------------------------------------------------------------------------------

    def reset(self, progress: float, spread: int, random: np.random.Generator) -> None:
        """Start new episodes in all columns: see `Actor.start`."""
        watch = self.calls.watch
        watch.enter(resets=True)
        self._envs.set_progress(progress)
        self._following = {name: leaf.copy() for name, leaf in self._envs.reset().items()}
        self._clear_episodes()
        self._state[:] = 0
        if spread:
            steps = random.integers(spread, size=len(self._returns))
            advanced = self._envs.advance(steps, random, lambda: watch.enter(resets=True))
            self._following = {name: leaf.copy() for name, leaf in advanced.observation.items()}
            self._returns[:], self._lengths[:] = advanced.returns, advanced.lengths
            self._infos.numbers[:] = advanced.infos
        self._stacks.reset(self._following)
        watch.leave()

    def _clear_episodes(self) -> None:
        """Forget the unfinished episodes of all columns."""
        self._returns[:], self._lengths[:], self._infos.numbers[:] = 0, 0, np.nan

    def start_visit(self, ticket: int, progress: float) -> bool:  # noqa: ARG002
        """Start the visit to a task, if `ticket` is the first of one: in an env with tasks, before the ticket starts.

        Args:
            ticket: the ticket.
            progress: training progress of the ticket.

        Returns:
            Whether a visit starts. Its episodes are new ones: the first row of the ticket is then a reset row.
        """
        return False

    def start_ticket(self, work: PolicyWork, version: int, progress: float, first: int) -> int:
        """Start a ticket: load its weights, and write the current observation into row `first`.

        The envs get the training progress at the start of every ticket, so it does not depend on earlier tickets.

        Args:
            work: weights and slot of the ticket.
            version: version of these weights.
            progress: training progress at this version.
            first: the first row to act in: 0, or 1 if row 0 is to be a reset row (see `Actor.start`).

        Returns:
            T, the number of rows of the ticket.
        """
        self._slot = slot = work.slot
        self._policy.load(work.weights)
        self.calls.watch.enter(resets=False)
        self._envs.set_progress(progress)
        self.calls.watch.leave()
        slot["behavior_version"][:] = version
        slot["episode_length"][:-1] = NOT_ENDED
        if self._policy.state_size:
            slot[INITIAL_STATE][:] = self._state
        if first:
            self._write_reset_row(slot)
        for name in self._leaves:
            slot[name][first] = self._following[name]
        self._write_stacks(slot, first)
        return len(slot["reward"]) - 1

    def _write_reset_row(self, slot: Tree) -> None:
        """Make row 0 a reset row, because the episodes before it were cut. It already has their last observation."""
        for name in ("action", "reward", "terminated", "truncated", "valid"):
            slot[name][0] = 0
        if self._envs.spec.info:
            slot["info"][0] = np.nan
        for name in (NO_DECISION, ENV_STEP):
            if name in slot:
                slot[name][0] = False

    def _write_stacks(self, slot: Tree, first: int) -> None:
        """Write the age of the frame stacks at the first row, and their history rows, if the slot has these fields."""
        if FRAME_AGE in slot:
            slot[FRAME_AGE][first] = self._stacks.age
        for name in self._stacks.names:
            if HISTORY + name in slot:
                slot[HISTORY + name][...] = self._stacks.older_frames(name)

    # --- a row ----------------------------------------------------------------------------------------------

    def ask(self, row: int, group: int) -> None:
        """Ask for the actions of a row. `answer` must follow before the row is received."""
        started = clock()
        slot, columns = self._slot, self._envs.groups[group]
        observation = {name: slot[name][row, columns] for name in self._leaves}
        self._asked[group] = observation = self._stacks.with_stacks(observation, columns)
        self._ask(observation, columns, group)
        self.calls.timings.add("act", clock() - started)

    def answer(self, row: int, group: int, random: np.random.Generator) -> None:
        """Choose the actions that were asked for, record them, and send them to the envs.

        Raises:
            NetworkFailed: the network of the policy returned NaN or infinity.
        """
        started = clock()
        slot, columns, calls = self._slot, self._envs.groups[group], self.calls
        try:
            acted = self._choose(self._asked[group], columns, group, random)
        except NetworkFailed as error:
            raise network_failed(self._envs.spec) from error
        slot["action"][row, columns] = acted.action
        for name, values in acted.recorded.items():
            if name in slot:  # the algorithm has such a field
                slot[name][row, columns] = values
        actions = self._policy.to_env(acted.action)
        chosen = clock()
        calls.watch.enter(resets=self.resets[group])
        self._envs.send(actions, group)
        calls.watch.leave()
        calls.timings.add("act", chosen - started)
        calls.add(chosen, clock())

    def _ask(self, observation: Tree, columns: slice, group: int) -> None:
        """Start to compute the policy's network for some columns. Here it is computed in `_choose`."""

    def _choose(self, observation: Tree, columns: slice, group: int, random: np.random.Generator) -> Acted:  # noqa: ARG002
        """Choose the actions of some columns, and advance their recurrent state."""
        return self._policy.act(observation, random, self._state[columns])

    def receive(self, row: int, group: int) -> bool:
        """Write the outcome of a row's actions into the row, and the observation into the next row.

        Returns:
            Whether an episode or game ended in this row.
        """
        started = clock()
        columns, calls = self._envs.groups[group], self.calls
        calls.watch.enter(resets=self.resets[group])
        outcome = self._envs.recv(group)
        calls.watch.leave()
        received = clock()
        self._write_outcome(row, columns, outcome)
        any_ended = self._count_episodes(row, columns, outcome)
        calls.add(started, received)
        calls.timings.add("act", clock() - received)
        return any_ended

    def _write_outcome(self, row: int, columns: slice, outcome: Outcome) -> None:
        """Write an outcome into a row, and its observation into the next one; advance frame stacks and the state."""
        slot = self._slot
        for name in self._leaves:
            slot[name][row + 1, columns] = outcome.observation[name]
        self._stacks.push(outcome.observation, outcome.resets, columns)
        if FRAME_AGE in slot:
            slot[FRAME_AGE][row + 1, columns] = self._stacks.age[columns]
        rewards = self._transform_rewards(outcome.reward)
        slot["reward"][row, columns] = rewards if outcome.over is None else rewards * ~outcome.resets
        slot["terminated"][row, columns] = outcome.terminated
        slot["truncated"][row, columns] = outcome.truncated
        slot["valid"][row, columns] = outcome.valid
        if self._envs.spec.info:
            slot["info"][row, columns] = self._infos.add_outcome(outcome, columns)
        if self._policy.state_size and not outcome.valid.all():
            self._state[columns][outcome.resets] = 0  # the row after a reset row is an episode's first
        if NO_DECISION in slot:
            slot[NO_DECISION][row, columns] = False if outcome.no_decision is None else outcome.no_decision
        if ENV_STEP in slot:
            slot[ENV_STEP][row, columns] = outcome.env_step

    def _count_episodes(self, row: int, columns: slice, outcome: Outcome) -> bool:
        """Add a row to each column's return and length; write them into the row in which an episode (or game) ends.

        Returns:
            Whether an episode or game ended in this row.
        """
        slot, returns, lengths = self._slot, self._returns[columns], self._lengths[columns]
        returns += outcome.reward
        lengths += outcome.valid
        ended = outcome.ended
        any_ended = bool(ended.any())
        if any_ended:
            slot["episode_return"][row, columns] = returns
            slot["episode_length"][row, columns] = np.where(ended, lengths, NOT_ENDED)
            returns[ended], lengths[ended] = 0, 0
        return any_ended

    def explain(self, error: EnvFailed, row: int, group: int) -> None:
        """Add to the error of an env call what these columns know about it.

        Args:
            error: raised by `receive`. It gets the length of the episode so far.
            row: the row that was to be received.
            group: its env group.

        Raises:
            NetworkFailed: the actions of the row are not finite, so the policy is at fault.
        """
        columns = self._envs.groups[group]
        fault = policy_fault(self._slot["action"][row, columns], self._envs.spec, columns.start, error)
        if fault is not None:
            raise fault from error
        if error.column is not None:
            # In rows without a decision the env steps too, but lengths count decisions.
            unit = "decision" if NO_DECISION in self._slot else "env step"
            error.problem += f", after {counted(int(self._lengths[error.column]), unit)} of the episode"

    # --- the end of a ticket --------------------------------------------------------------------------------

    def end_ticket(self, length: int) -> None:
        """End a ticket of `length` rows: copy the observation after its last row.

        Raises:
            EnvFailed: the env has rows without a decision, which are not recorded, or masks, which are not read.
        """
        if self._envs.reports_no_decision and NO_DECISION not in self._slot:
            raise EnvFailed(f"{self._envs.spec.id} {': '.join(LATE_NO_DECISION)}")
        if self._envs.offers_mask:
            raise EnvFailed(
                f"{self._envs.spec.id} has {INFO_MASK!r} in an info, but not in those of its first steps, so masks are "
                "not read: give it in the info of reset and of each step"
            )
        self._following = {name: self._slot[name][length].copy() for name in self._leaves}
        if LAST_NO_DECISION in self._slot:
            self._slot[LAST_NO_DECISION][:] = self._envs.next_no_decision

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of the envs and of the unfinished episodes; None if the envs do not support snapshots.

        Raises:
            NotSavable: a checkpoint cannot store the state of an env, or the env raised an exception.
        """
        if not isinstance(self._envs, Snapshots):
            return None
        return {
            "envs": self._state_of(self._envs),
            "following": dict(self._following),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "state": self._state.copy(),
            "stacks": self._stacks.state(),
            **self._infos.state(),
        }

    def _state_of(self, envs: Snapshots) -> State:
        self.calls.watch.enter(resets=True)
        try:
            state = envs.snapshot()
            require_savable(state)
        except NotSavable as error:
            raise NotSavable(
                f"the state of {self._envs.spec.id} cannot be saved ({error}): let snapshot() return {SAVABLE}"
            ) from None
        except FAILURES as error:
            raise NotSavable(
                f"snapshot() of {self._envs.spec.id} raised {type_and_text(error)}: correct this method"
            ) from error
        finally:
            self.calls.watch.leave()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot, bit for bit."""
        if not isinstance(self._envs, Snapshots):
            raise TypeError(f"{self._envs.spec.id} does not support snapshots, so none can be restored")
        self.calls.watch.enter(resets=True)
        self._envs.restore(state["envs"])
        self._following = {leaf.name: self._copied(leaf, state) for leaf in self._envs.spec.observation}
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._state[:] = state["state"]
        self._stacks.restore(state["stacks"])
        self._infos.restore(state)
        self.calls.watch.leave()

    def _copied(self, leaf: Leaf, state: dict[str, Any]) -> Array:
        copy = np.empty((self._envs.spec.columns, *leaf.shape), leaf.dtype)
        copy[...] = state["following"][leaf.name]
        return copy

    def close(self) -> None:
        self._envs.close()
