"""What a loaded policy keeps of the episodes of its envs between calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from offbeat.api.playing.inputs import rewards_of
from offbeat.core.types import PREVIOUS_REWARD, Array, Tree
from offbeat.envs.previous_inputs import PreviousInputs
from offbeat.models.spec import PolicySpec
from offbeat.models.stacks import Stacks


class EpisodeMemory:
    """The recurrent states, frame stacks, and previous actions and rewards of N envs."""

    def __init__(self, spec: PolicySpec, envs: int) -> None:
        self.state = np.zeros((envs, spec.state_size), np.float32)
        self._stacks, self._starts = Stacks(spec.observation, envs), np.ones(envs, np.bool_)
        self._previous = PreviousInputs(spec.observation, spec.action, envs)
        self._actions = np.zeros((envs, *spec.action.shape), spec.action.dtype)
        """The actions of the last call, as recorded, in the env's range."""
        self._decided = True
        """Whether the envs got these actions."""

    def reset(self, ended: Array) -> None:
        """Start new episodes with the next observations in the envs where `ended`, [N] bool, is true."""
        self.state[ended] = 0
        self._starts[ended] = True

    def inputs(self, leaves: Tree, reward: Any) -> Tree:
        """Add the next observations and the rewards that came with them; return the inputs of the policy.

        Raises:
            ValueError: the rewards are needed, and missing, of a wrong shape or not finite.
        """
        if self._previous.leaves:
            rewards, decided = self._rewards(reward), ~self._starts & self._decided
            self._previous.push(self._actions, rewards, decided, self._starts)
        self._stacks.push(leaves, self._starts)
        self._starts[:] = False
        return {**self._stacks.with_stacks(leaves), **self._previous.leaves}

    def _rewards(self, reward: Any) -> Array:
        """Return the rewards of all envs, [N]; 0 if they are not needed."""
        envs = len(self._starts)
        if PREVIOUS_REWARD not in self._previous.leaves or self._starts.all():
            return np.zeros(envs, np.float32)
        if reward is None:
            raise ValueError(
                "this policy was trained with previous_reward: pass reward=..., which env.step returned with the "
                "observation, or call reset() at the start of an episode"
            )
        return rewards_of(reward, envs)

    def add_actions(self, actions: Array, *, decided: bool) -> None:
        """Keep the actions of a call, as recorded, in the env's range; `decided`: whether the envs get them."""
        self._actions[...] = actions
        self._decided = decided
