"""The actor: takes a ticket, acts with the weights it is given, and writes what it saw into the ticket's slot.

It knows nothing of the learner, of other actors or of where its memory lies. Episodes run on across tickets. The
same loop, `work`, is what an actor thread and an actor process run; the serial runtime calls `act` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter as clock
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from offbeat.core.memory_shape import Slots
from offbeat.core.seeding import stream
from offbeat.core.types import FRAME_AGE, HISTORY, Array, Leaf, Policy, Tree
from offbeat.envs.contract import Envs, Outcome, Snapshots
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.stacks import Stacks


class Watch(Protocol):
    """Sees to it that calls of envs return in time."""

    def enter(self, *, resets: bool) -> None:
        """An env is about to be called; `resets` says whether an episode may begin. May raise `Closed`."""

    def leave(self) -> None:
        """It has returned."""


class Gate(Watch, Protocol):
    """What an actor of its own thread or process waits at, see runtime/gate.py."""

    def tickets(self) -> Iterable[int]: ...

    def start(self, ticket: int, on_pause: Callable[[], None]) -> int: ...

    def commit(self, ticket: int, timings: Timings, longest_stall: float) -> None: ...


class Unwatched:
    """For an actor in the learner's own thread, where there is nobody else to watch."""

    def enter(self, *, resets: bool) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class Actor:
    """Steps its envs with its policy, one ticket at a time."""

    def __init__(
        self,
        index: int,
        seed: int,
        envs: Envs,
        policy: Policy,
        watch: Watch | None = None,
        learned: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda rewards: rewards,
    ) -> None:
        """Act with `policy` in `envs`.

        Args:
            index: which actor this is.
            seed: of the run.
            envs: its columns.
            policy: to load each ticket's weights into.
            watch: over calls of the envs.
            learned: what is learned from of the rewards that the envs pay; returns are of these themselves.
        """
        self.index = index
        self.timings = Timings()
        self.longest_stall = 0.0
        """Seconds of the longest call of the envs."""
        self._seed = seed
        self._envs = envs
        self._policy = policy
        self._watch = watch or Unwatched()
        self._learned = learned
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
        self._cut = False
        """Whether the next row follows rows of episodes that broke off."""

    def start(self, origin: int, spread: int = 0, *, cut: bool = False, progress: float = 0.0) -> None:
        """Begin new episodes in all columns.

        Args:
            origin: the ticket at which they begin.
            spread: if not 0, each column first takes a random number of random env steps below it, which are
                counted nowhere: so that the episodes of the columns do not run, and end, side by side.
            cut: whether there are rows before the next ticket that they do not go on from. Its first row, which has
                the observation that followed them, then stays as a reset row, and the episodes begin in the second.
            progress: of the training, which envs are told before they begin.
        """
        self._cut = cut
        self._watch.enter(resets=True)
        self._envs.set_progress(progress)
        self._following = {name: leaf.copy() for name, leaf in self._envs.reset().items()}
        self._returns[:], self._lengths[:], self._state[:] = 0, 0, 0
        if spread:
            random = stream(self._seed, "decorrelate", self.index, origin)
            steps = random.integers(spread, size=len(self._returns))
            advanced = self._envs.advance(steps, random, lambda: self._watch.enter(resets=True))
            self._following = {name: leaf.copy() for name, leaf in advanced.observation.items()}
            self._returns[:], self._lengths[:] = advanced.returns, advanced.lengths
        self._stacks.reset(self._following)
        self._watch.leave()

    def work(self, gate: Gate, slots: Slots, weights: Weights, on_pause: Callable[[], None]) -> NoReturn:
        """Act ticket after ticket, until the gate closes.

        Raises:
            Closed: the run is ending.
            EnvFailed: an env failed.
        """
        for ticket in gate.tickets():
            begun = clock()
            version = gate.start(ticket, on_pause)
            self.timings.add("wait/actor", clock() - begun)
            self.act(ticket, version, weights.read(version), slots.open(ticket), weights.progress(version))
            gate.commit(ticket, self.timings, self.longest_stall)
        raise AssertionError("tickets never end")

    def act(self, ticket: int, version: int, weights: NDArray[np.float32], slot: Tree, progress: float = 0.0) -> None:
        """Act one ticket into `slot` ([T + 1, N, ...] by field name) with one version of the weights.

        Envs are told the `progress` that belongs to the version, at each ticket, so that it does not matter what they
        were told before.
        """
        self._policy.load(weights)
        self._watch.enter(resets=False)
        self._envs.set_progress(progress)
        self._watch.leave()
        slot["behavior_version"][:] = version
        slot["episode_length"][:-1] = 0
        if self._policy.state_size:
            slot["initial_state"][:] = self._state
        random = stream(self._seed, "act", ticket)
        first, length = self._begin_rows(slot), len(slot["reward"]) - 1
        for row in range(first, length):
            for group, columns in enumerate(self._envs.groups):
                if row > first:
                    self._receive(slot, row - 1, group, columns)
                self._decide(slot, row, group, columns, random)
        if length > first:
            for group, columns in enumerate(self._envs.groups):
                self._receive(slot, length - 1, group, columns)
        self._following = {name: slot[name][length].copy() for name in self._leaves}

    def _begin_rows(self, slot: Tree) -> int:
        """Write the observation to act on first, and return its row: the second where a reset row marks a cut."""
        first, self._cut = int(self._cut), False
        if first:
            for name in ("action", "reward", "terminated", "truncated", "valid"):
                slot[name][0] = 0
            if self._envs.spec.info:
                slot["info"][0] = np.nan
            if "no_decision" in slot:
                slot["no_decision"][0] = False
        for name in self._leaves:
            slot[name][first] = self._following[name]
        self._write_stacks(slot, first)
        return first

    def _write_stacks(self, slot: Tree, first: int) -> None:
        """Write how far the stacks of the first row reach back, and the frames before it, if they have a place."""
        if FRAME_AGE in slot:
            slot[FRAME_AGE][first] = self._stacks.age
        for name in self._stacks.names:
            if HISTORY + name in slot:
                slot[HISTORY + name][...] = self._stacks.older(name)

    def _decide(self, slot: Tree, row: int, group: int, columns: slice, random: np.random.Generator) -> None:
        """Choose and record the actions of a row, and send them."""
        begun = clock()
        observation = {name: slot[name][row, columns] for name in self._leaves}
        acted = self._policy.act(self._stacks.seen(observation, columns), random, self._state[columns])
        slot["action"][row, columns] = acted.action
        for name, values in acted.recorded.items():
            slot[name][row, columns] = values
        actions = self._policy.to_env(acted.action)
        chosen = clock()
        self._watch.enter(resets=self._resets[group])
        self._envs.send(actions, group)
        self._watch.leave()
        self.timings.add("act", chosen - begun)
        self._called_env(chosen, clock())

    def _receive(self, slot: Tree, row: int, group: int, columns: slice) -> None:
        """Complete a row with what became of its actions, and write the observation of the next."""
        begun = clock()
        self._watch.enter(resets=self._resets[group])
        outcome = self._envs.recv(group)
        self._watch.leave()
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
        self._resets[group] = self._count_episodes(slot, row, columns, outcome)
        self._called_env(begun, received)
        self.timings.add("act", clock() - received)

    def _called_env(self, begun: float, ended: float) -> None:
        self.timings.add("env", ended - begun)
        self.longest_stall = max(self.longest_stall, ended - begun)

    def _count_episodes(self, slot: Tree, row: int, columns: slice, outcome: Outcome) -> bool:
        """Keep each column's return and length, and record them in the row that ends its episode, or its game.

        Returns whether one ended.
        """
        returns, lengths = self._returns[columns], self._lengths[columns]
        returns += outcome.reward
        lengths += outcome.valid
        ended = outcome.ended
        any_ended = bool(ended.any())
        if any_ended:
            slot["episode_return"][row, columns] = returns
            slot["episode_length"][row, columns] = lengths * ended
            returns[ended], lengths[ended] = 0, 0
        return any_ended

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of the envs and of the episodes under way, or None where the envs have no snapshots."""
        if not isinstance(self._envs, Snapshots):
            return None
        self._watch.enter(resets=True)
        envs = self._envs.snapshot()
        self._watch.leave()
        return {
            "envs": envs,
            "following": dict(self._following),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "state": self._state.copy(),
            "stacks": self._stacks.state(),
            "cut": self._cut,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot as if nothing had happened."""
        if not isinstance(self._envs, Snapshots):
            raise TypeError(f"{self._envs.spec.id} cannot restore a snapshot")
        self._watch.enter(resets=True)
        self._envs.restore(state["envs"])
        self._following = {leaf.name: self._copied(leaf, state) for leaf in self._envs.spec.observation}
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._state[:] = state["state"]
        self._stacks.restore(state["stacks"])
        self._cut = bool(state["cut"])
        self._watch.leave()

    def _copied(self, leaf: Leaf, state: dict[str, Any]) -> Array:
        copy = np.empty((self._envs.spec.columns, *leaf.shape), leaf.dtype)
        copy[...] = state["following"][leaf.name]
        return copy

    def close(self) -> None:
        self._envs.close()
