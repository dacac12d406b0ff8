"""Envs whose constructors take one dict, as those of other libraries do."""

from __future__ import annotations

from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

from offbeat.envs.testing.worlds import CartPoles


def pole(config: dict[str, Any]) -> CartPoleEnv:
    """Return an env with one agent."""
    return CartPoleEnv(sutton_barto_reward=_only(config))


def poles(config: dict[str, Any]) -> CartPoles:
    """Return a world of several agents."""
    return CartPoles(_only(config))


def _only(config: dict[str, Any]) -> Any:
    """Return the only value, which is inside of a dict in a list in a dict."""
    assert type(config) is dict
    assert type(config["parts"]) is list
    assert type(config["parts"][0]) is dict
    return config["parts"][0]["value"]
