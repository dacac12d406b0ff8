"""The world of the work `two-policies`: several CartPoles that live equally long, so that no side has rows to mask.

A cart that falls gets a reward of -1 and starts again, in the same episode. All others get 0. The episode ends, with a
truncation, after 200 steps for all carts. A policy that never falls has a return of 0, a random one about -9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv

LENGTH = 200
"""Steps of an episode."""


class Carts:
    """Four carts, in PettingZoo's parallel API: agents cart_0 to cart_3."""

    metadata: Mapping[str, Any] = {"render_modes": []}

    def __init__(self) -> None:
        self.possible_agents = [f"cart_{index}" for index in range(4)]
        self.agents: list[str] = []
        self._carts = {name: CartPoleEnv() for name in self.possible_agents}
        self._steps = 0

    def observation_space(self, agent: str) -> Any:
        return self._carts[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self._carts[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ARG002
        self.agents, self._steps = list(self.possible_agents), 0
        seeds = (None if seed is None else seed + index for index in range(len(self.agents)))
        observations = {
            name: cart.reset(seed=own)[0] for (name, cart), own in zip(self._carts.items(), seeds, strict=True)
        }
        return observations, {name: {} for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        self._steps += 1
        observations, rewards = {}, {}
        for name, cart in self._carts.items():
            observation, _, fell, _, _ = cart.step(actions[name])  # type: ignore[no-untyped-call]
            observations[name] = cart.reset()[0] if fell else observation
            rewards[name] = -1.0 if fell else 0.0
        over, names = self._steps >= LENGTH, self.possible_agents
        self.agents = [] if over else list(names)
        infos: dict[str, Any] = {name: {} for name in names}
        return observations, rewards, dict.fromkeys(names, False), dict.fromkeys(names, over), infos

    def close(self) -> None:
        """Do nothing: the carts hold nothing but memory."""
