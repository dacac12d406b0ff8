"""A world whose images say which agent saw them, in which episode, and how long after its first: so stacks can be read.

`early` ends while the world continues, `late` appears later, and `waits` has nothing to decide in every other row.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.types import Array
from offbeat.envs.contract import State
from offbeat.envs.testing.worlds import SmallWorld

LIVES = {"early": (0, 2), "late": (3, 7), "waits": (0, 6)}
"""Agent -> steps of the world before it appears, and those after which it ends."""


class Labelled(SmallWorld):
    """See the module's docstring. The first pixels of an image are a label: see `assert_stacks_are_right`."""

    def __init__(self, size: int = 16) -> None:
        """Images have `size` x `size` pixels."""
        spaces = (gym.spaces.Box(0, 255, (size, size), np.uint8), gym.spaces.Discrete(2))
        super().__init__(dict.fromkeys(LIVES, spaces))
        self._size, self._time, self._label = size, 0, 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        self._start(seed, self._present(0))
        self._time, self._label = 0, int(self.np_random.integers(1, 2**16))
        return self._observe(self.agents), self._infos()

    def step(self, actions: Any) -> Any:
        self._time += 1
        seen, self.agents = self.agents, self._present(self._time)
        ends = {agent: LIVES[agent][1] == self._time for agent in seen}
        rewards = {agent: float(agent in actions) for agent in seen}
        observations = self._observe([*seen, *(agent for agent in self.agents if agent not in seen)])
        return observations, rewards, ends, dict.fromkeys(seen, False), self._infos()

    def _present(self, time: int) -> list[str]:
        return [agent for agent, (first, last) in LIVES.items() if first <= time < last]

    def _infos(self) -> dict[str, dict[str, Any]]:
        return {agent: {"no_decision": self._time % 2 == 1 and agent == "waits"} for agent in self.possible_agents}

    def _observe(self, agents: list[str]) -> dict[str, Any]:
        return {agent: self._image(agent) for agent in agents}

    def _image(self, agent: str) -> Array:
        image = np.zeros((self._size, self._size), np.uint8)
        age = self._time - LIVES[agent][0]
        image[0, :4] = *divmod(self._label, 256), 1 + list(LIVES).index(agent), age
        return image

    def snapshot(self) -> State:
        return {"time": self._time, "label": self._label}

    def restore(self, state: State) -> None:
        self._time, self._label = state["time"], state["label"]
        self.agents = self._present(self._time)


def assert_stacks_are_right(stacks: Array) -> None:
    """Check stacks, [n, stack, size, size]: older frames are those of the same agent and episode, one row apart."""
    labels, size = stacks[:, :, 0, :4].astype(int), stacks.shape[1]
    newest = labels[:, -1]
    assert newest[:, 2].all(), "an agent saw no image"
    assert (labels[:, :, :3] == newest[:, None, :3]).all()
    expected = np.maximum(newest[:, 3:] - np.arange(size - 1, -1, -1), 0)
    np.testing.assert_array_equal(labels[:, :, 3], expected)
