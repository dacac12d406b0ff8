"""The columns of one policy: how its envs are stepped with it, row by row, into the slot of a ticket.

An actor has one `PolicyColumns` for each policy that it acts for (actor.py). Episodes run on across tickets.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter as clock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import FRAME_AGE, HISTORY, Array, Leaf, Policy, Tree
from offbeat.envs.contract import Envs, Outcome, Snapshots
from offbeat.metrics.timings import Timings
from offbeat.models.stacks import Stacks
from offbeat.workers.link import PolicyWork


class Watch(Protocol):
    """Sees to it that calls of envs return in time."""

    def enter(self, *, resets: bool) -> None:
        """An env is about to be called; `resets` says whether an episode may begin. May raise `Closed`."""

    def leave(self) -> None:
        """It has returned."""


class Unwatched:
    """For an actor in the learner's own thread, where there is nobody else to watch."""

    def enter(self, *, resets: bool) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class EnvCalls:
    """Calls of the envs of one actor: who watches over them, and how long they take."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch or Unwatched()
        self.timings = Timings()
        self.longest_stall = 0.0
        """Seconds of the longest call."""

    def add(self, begun: float, ended: float) -> None:
        """Count a call that has returned."""
        self.timings.add("env", ended - begun)
        self.longest_stall = max(self.longest_stall, ended - begun)


class PolicyColumns:
    """Envs, the policy that acts in them, and what is remembered of their episodes under way."""

    def __init__(
        self,
        envs: Envs,
        policy: Policy,
        learned: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda rewards: rewards,
    ) -> None:
        """Act with `policy` in `envs`.

        Args:
            envs: the columns.
            policy: to load each ticket's weights into.
            learned: what is learned from of the rewards that the envs pay; returns are of these themselves.
        """
        self._envs, self._policy, self._learned = envs, policy, learned
        self._calls = EnvCalls()
        self._leaves = [leaf.name for leaf in envs.spec.observation]
        self._following: Tree = {}
        """The observation that follows the last ticket: row 0 of the next."""
        self._returns = np.zeros(envs.spec.columns)  # float64: a million rewards of 0.1 add up to 100,000
        self._lengths = np.zeros(envs.spec.columns, np.int32)
        self._state = np.zeros((envs.spec.columns, policy.state_size), np.float32)
        """What the policy remembers of each column's episode."""
        self._stacks = Stacks(envs.spec.observation, envs.spec.columns)
        self._resets = [True] * len(envs.groups)
        """Whether a column of the group may begin an episode in the next row."""
        self._slot: Tree = {}
        """Where the ticket under way is written."""

    def use(self, calls: EnvCalls) -> None:
        """Let an actor watch over, and time, the calls of the envs."""
        self._calls = calls

    @property
    def groups(self) -> int:
        """Groups that the columns are stepped in by turns."""
        return len(self._envs.groups)

    # --- a ticket -------------------------------------------------------------------------------------------

    def reset(self, progress: float, spread: int, random: np.random.Generator) -> None:
        """Begin new episodes in all columns: see `Actor.start`."""
        watch = self._calls.watch
        watch.enter(resets=True)
        self._envs.set_progress(progress)
        self._following = {name: leaf.copy() for name, leaf in self._envs.reset().items()}
        self._returns[:], self._lengths[:], self._state[:] = 0, 0, 0
        if spread:
            steps = random.integers(spread, size=len(self._returns))
            advanced = self._envs.advance(steps, random, lambda: watch.enter(resets=True))
            self._following = {name: leaf.copy() for name, leaf in advanced.observation.items()}
            self._returns[:], self._lengths[:] = advanced.returns, advanced.lengths
        self._stacks.reset(self._following)
        watch.leave()

    def begin(self, work: PolicyWork, version: int, progress: float, first: int) -> int:
        """Begin a ticket: load its weights, and write the observation to act on first into row `first`.

        Row 1 is the first where row 0 marks a cut, as a reset row. Envs are told the progress that belongs to the
        version at each ticket, so that it does not matter what they were told before.

        Returns:
            The rows of the ticket, T.
        """
        self._slot = slot = work.slot
        self._policy.load(work.weights)
        self._calls.watch.enter(resets=False)
        self._envs.set_progress(progress)
        self._calls.watch.leave()
        slot["behavior_version"][:] = version
        slot["episode_length"][:-1] = 0
        if self._policy.state_size:
            slot["initial_state"][:] = self._state
        if first:
            self._write_cut(slot)
        for name in self._leaves:
            slot[name][first] = self._following[name]
        self._write_stacks(slot, first)
        return len(slot["reward"]) - 1

    def _write_cut(self, slot: Tree) -> None:
        """Make row 0 a reset row: the episodes before it broke off."""
        for name in ("action", "reward", "terminated", "truncated", "valid"):
            slot[name][0] = 0
        if self._envs.spec.info:
            slot["info"][0] = np.nan
        if "no_decision" in slot:
            slot["no_decision"][0] = False

    def _write_stacks(self, slot: Tree, first: int) -> None:
        """Write how far the stacks of the first row reach back, and the frames before it, if they have a place."""
        if FRAME_AGE in slot:
            slot[FRAME_AGE][first] = self._stacks.age
        for name in self._stacks.names:
            if HISTORY + name in slot:
                slot[HISTORY + name][...] = self._stacks.older_frames(name)

    def decide(self, row: int, group: int, random: np.random.Generator) -> None:
        """Choose and record the actions of a row, and send them."""
        begun = clock()
        slot, columns, calls = self._slot, self._envs.groups[group], self._calls
        observation = {name: slot[name][row, columns] for name in self._leaves}
        acted = self._policy.act(self._stacks.with_stacks(observation, columns), random, self._state[columns])
        slot["action"][row, columns] = acted.action
        for name, values in acted.recorded.items():
            slot[name][row, columns] = values
        actions = self._policy.to_env(acted.action)
        chosen = clock()
        calls.watch.enter(resets=self._resets[group])
        self._envs.send(actions, group)
        calls.watch.leave()
        calls.timings.add("act", chosen - begun)
        calls.add(chosen, clock())

    def receive(self, row: int, group: int) -> None:
        """Complete a row with the outcome of its actions, and write the observation of the next."""
        begun = clock()
        slot, columns, calls = self._slot, self._envs.groups[group], self._calls
        calls.watch.enter(resets=self._resets[group])
        outcome = self._envs.recv(group)
        calls.watch.leave()
        received = clock()
        for name in self._leaves:
            slot[name][row + 1, columns] = outcome.observation[name]
        self._stacks.push(outcome.observation, outcome.resets, columns)
        if FRAME_AGE in slot:
            slot[FRAME_AGE][row + 1, columns] = self._stacks.age[columns]
        learned = self._learned(outcome.reward)
        slot["reward"][row, columns] = learned if outcome.over is None else learned * outcome.valid
        slot["terminated"][row, columns] = outcome.terminated
        slot["truncated"][row, columns] = outcome.truncated
        slot["valid"][row, columns] = outcome.valid
        if self._envs.spec.info:
            slot["info"][row, columns] = outcome.info
        if self._policy.state_size and not outcome.valid.all():
            self._state[columns][outcome.resets] = 0  # after its reset row an episode is forgotten
        if "no_decision" in slot:
            slot["no_decision"][row, columns] = False if outcome.no_decision is None else outcome.no_decision
        self._resets[group] = self._count_episodes(row, columns, outcome)
        calls.add(begun, received)
        calls.timings.add("act", clock() - received)

    def _count_episodes(self, row: int, columns: slice, outcome: Outcome) -> bool:
        """Add to each column's return and length; record them in the row that ends its episode, or its game.

        Returns whether one ended.
        """
        slot, returns, lengths = self._slot, self._returns[columns], self._lengths[columns]
        returns += outcome.reward
        lengths += outcome.valid
        ended = outcome.ended
        any_ended = bool(ended.any())
        if any_ended:
            slot["episode_return"][row, columns] = returns
            slot["episode_length"][row, columns] = lengths * ended
            returns[ended], lengths[ended] = 0, 0
        return any_ended

    def end(self, length: int) -> None:
        """End a ticket: remember the observation that follows its last row."""
        self._following = {name: self._slot[name][length].copy() for name in self._leaves}

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of the envs and of the episodes under way, or None where the envs have no snapshots."""
        if not isinstance(self._envs, Snapshots):
            return None
        self._calls.watch.enter(resets=True)
        envs = self._envs.snapshot()
        self._calls.watch.leave()
        return {
            "envs": envs,
            "following": dict(self._following),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "state": self._state.copy(),
            "stacks": self._stacks.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot as if nothing had happened."""
        if not isinstance(self._envs, Snapshots):
            raise TypeError(f"{self._envs.spec.id} cannot restore a snapshot")
        self._calls.watch.enter(resets=True)
        self._envs.restore(state["envs"])
        self._following = {leaf.name: self._copied(leaf, state) for leaf in self._envs.spec.observation}
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._state[:] = state["state"]
        self._stacks.restore(state["stacks"])
        self._calls.watch.leave()

    def _copied(self, leaf: Leaf, state: dict[str, Any]) -> Array:
        copy = np.empty((self._envs.spec.columns, *leaf.shape), leaf.dtype)
        copy[...] = state["following"][leaf.name]
        return copy

    def close(self) -> None:
        self._envs.close()
