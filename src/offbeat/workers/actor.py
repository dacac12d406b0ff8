"""The actor: takes a ticket, acts with the weights it is given, and writes what it saw into the ticket's slot.

It knows nothing of the learner, of other actors or of where its memory lies. Episodes run on across tickets.
"""

from __future__ import annotations

from time import perf_counter as clock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.envs.contract import Envs, Outcome, Snapshots
from offbeat.metrics.timings import Timings
from offbeat.seeding import stream
from offbeat.types import Policy, Tree


class Actor:
    """Steps its envs with its policy, one ticket at a time."""

    def __init__(self, index: int, seed: int, envs: Envs, policy: Policy, timings: Timings) -> None:
        self.index = index
        self._seed = seed
        self._envs = envs
        self._policy = policy
        self._timings = timings
        self._leaves = [leaf.name for leaf in envs.spec.observation]
        self._following: Tree = {}
        """The observation that follows the last ticket: row 0 of the next."""
        self._returns = np.zeros(envs.spec.columns, np.float32)
        self._lengths = np.zeros(envs.spec.columns, np.int32)

    def begin(self) -> None:
        """Begin new episodes in all columns."""
        self._following = {name: leaf.copy() for name, leaf in self._envs.reset().items()}
        self._returns[:], self._lengths[:] = 0, 0

    def act(self, ticket: int, version: int, weights: NDArray[np.float32], slot: Tree) -> None:
        """Act one unroll into `slot` ([T + 1, N, ...] by field name) with one version of the weights."""
        self._policy.load(weights)
        slot["behavior_version"][:] = version
        random = stream(self._seed, "act", ticket)
        length = len(slot["reward"]) - 1
        for name in self._leaves:
            slot[name][0] = self._following[name]
        for row in range(length):
            for group, columns in enumerate(self._envs.groups):
                if row:
                    self._receive(slot, row - 1, group, columns)
                self._decide(slot, row, group, columns, random)
        for group, columns in enumerate(self._envs.groups):
            self._receive(slot, length - 1, group, columns)
        self._following = {name: slot[name][length].copy() for name in self._leaves}

    def _decide(self, slot: Tree, row: int, group: int, columns: slice, random: np.random.Generator) -> None:
        """Choose and record the actions of a row, and send them."""
        begun = clock()
        acted = self._policy.act({name: slot[name][row, columns] for name in self._leaves}, random)
        slot["action"][row, columns] = acted.action
        for name, values in acted.recorded.items():
            slot[name][row, columns] = values
        actions = self._policy.to_env(acted.action)
        chosen = clock()
        self._envs.send(actions, group)
        self._timings.add("act", chosen - begun)
        self._timings.add("env", clock() - chosen)

    def _receive(self, slot: Tree, row: int, group: int, columns: slice) -> None:
        """Complete a row with what became of its actions, and write the observation of the next."""
        begun = clock()
        outcome = self._envs.recv(group)
        received = clock()
        for name in self._leaves:
            slot[name][row + 1, columns] = outcome.observation[name]
        slot["reward"][row, columns] = outcome.reward
        slot["terminated"][row, columns] = outcome.terminated
        slot["truncated"][row, columns] = outcome.truncated
        slot["valid"][row, columns] = outcome.valid
        self._count_episodes(slot, row, columns, outcome)
        self._timings.add("env", received - begun)
        self._timings.add("act", clock() - received)

    def _count_episodes(self, slot: Tree, row: int, columns: slice, outcome: Outcome) -> None:
        """Keep each column's return and length, and record them in the row that ends its episode."""
        returns, lengths = self._returns[columns], self._lengths[columns]
        returns += outcome.reward
        lengths += outcome.valid
        ended = outcome.terminated | outcome.truncated
        if ended.any():
            slot["episode_return"][row, columns] = returns
            slot["episode_length"][row, columns] = lengths
            returns[ended], lengths[ended] = 0, 0

    def snapshot(self) -> dict[str, Any] | None:
        """Return the state of the envs and of the episodes under way, or None where the envs have no snapshots."""
        if not isinstance(self._envs, Snapshots):
            return None
        return {
            "envs": self._envs.snapshot(),
            "following": dict(self._following),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot as if nothing had happened."""
        if not isinstance(self._envs, Snapshots):
            raise TypeError(f"{self._envs.spec.id} cannot restore a snapshot")
        self._envs.restore(state["envs"])
        self._following = dict(state["following"])
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]

    def close(self) -> None:
        self._envs.close()
