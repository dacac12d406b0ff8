"""A game of two sides with different observations and actions: a smuggler against a patrol. Read `worlds.py` first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.envs.contract import State
from offbeat.envs.testing.correct_action import require_argument_at_least
from offbeat.envs.testing.worlds import Infos, Observations, ParallelStep, SmallWorld

SIDES = SMUGGLER, PATROL = ("smuggler", "patrol")
WAIT = 0
"""The smuggler's action without a load."""
STAY, OUT = range(2)
"""The patrol's actions."""
GAIN = (0.0, 1.0, 2.0)
"""Of the smuggler by load, if it is not found."""
FINE = (0.0, 1.0, 4.0)
"""Of the smuggler by load, if it is found."""
FOUND_IN_FOG = 0.5
"""Probability that a patrol finds a load in fog. In clear weather it finds every load."""
FOG = 0.5
"""Probability of fog, in each night anew."""


class Smuggling(SmallWorld):
    """A smuggler has a number of nights for one trip, and a patrol may go out in a few of them.

    In each night both decide at the same time. The smuggler waits (0), or makes its trip with a small load (1) or a
    large one (2). The patrol stays (0) or goes out (1); once it has gone out `patrols` times, it has no decision. The
    trip ends the game. What the smuggler gets, the patrol loses: the gain of the load, or its fine if the patrol finds
    it. Without a trip both get 0.

    Both see how many nights and patrols are left. The smuggler also sees whether there is fog. An observation is the
    one-hot number of this state, and all zeros after the last night.

    With 2 nights and 1 patrol, the value of the game for the smuggler is 0.8. In the equilibrium the patrol goes out in
    the first night with probability 0.4. The smuggler waits for fog, and then makes its trip with probability 0.8.

    Args:
        nights: Number of nights.
        patrols: How often the patrol can go out.
    """

    def __init__(self, nights: int = 2, patrols: int = 1) -> None:
        require_argument_at_least("nights", nights, 1)
        require_argument_at_least("patrols", patrols, 1)
        states = nights * (patrols + 1)
        super().__init__(
            {
                SMUGGLER: (gym.spaces.Box(0, 1, (2 * states,), np.float32), gym.spaces.Discrete(3)),
                PATROL: (gym.spaces.Box(0, 1, (states,), np.float32), gym.spaces.Discrete(2)),
            }
        )
        self._all_nights, self._all_patrols = nights, patrols
        self._nights, self._patrols, self._fog = nights, patrols, False

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Observations, Infos]:  # noqa: ARG002
        self._start(seed, SIDES)
        self._nights, self._patrols, self._fog = self._all_nights, self._all_patrols, self._next_fog()
        return self.observations(), self._infos()

    def step(self, actions: Mapping[str, Any]) -> ParallelStep:
        load, out = int(actions[SMUGGLER]), int(actions.get(PATROL, STAY)) == OUT
        found = out and (not self._fog or self.np_random.random() < FOUND_IN_FOG)
        gain = -FINE[load] if found else GAIN[load]
        self._nights, self._patrols, self._fog = self._nights - 1, self._patrols - out, self._next_fog()
        over = load != WAIT or self._nights == 0
        if over:
            self.agents = []
        ends, none = dict.fromkeys(SIDES, over), dict.fromkeys(SIDES, False)
        return self.observations(), {SMUGGLER: gain, PATROL: -gain}, ends, none, self._infos()

    def _next_fog(self) -> bool:
        return bool(self.np_random.random() < FOG)

    def observations(self) -> Observations:
        """Return what the two sides see."""
        states = self._all_nights * (self._all_patrols + 1)
        smuggler, patrol = np.zeros(2 * states, np.float32), np.zeros(states, np.float32)
        if self._nights:
            state = (self._nights - 1) * (self._all_patrols + 1) + self._patrols
            smuggler[2 * state + self._fog] = patrol[state] = 1
        return {SMUGGLER: smuggler, PATROL: patrol}

    def _infos(self) -> Infos:
        return {SMUGGLER: {}, PATROL: {"no_decision": self._patrols == 0}}

    def snapshot(self) -> State:
        return {"nights": self._nights, "patrols": self._patrols, "fog": self._fog, "over": not self.agents}

    def restore(self, state: State) -> None:
        self.agents = [] if state["over"] else list(SIDES)
        self._nights, self._patrols, self._fog = state["nights"], state["patrols"], state["fog"]
