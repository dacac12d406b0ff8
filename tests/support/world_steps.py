"""Plays worlds and holds each step to the contract of `offbeat.envs.worlds.contract`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from offbeat.envs.worlds.contract import World, WorldStep

Choose = Callable[[str, WorldStep], Any]


def random_choices(world: World, seed: int = 0) -> Choose:
    """Return a function that samples allowed actions."""
    spaces = {agent: world.action_space(agent) for agent in world.agents}
    for index, space in enumerate(spaces.values()):
        space.seed(seed + index)

    def choose(agent: str, step: WorldStep) -> Any:
        observation = step.observations[agent]
        mask = observation.get("action_mask") if isinstance(observation, dict) else None
        return spaces[agent].sample(None if mask is None else np.asarray(mask, np.int8))

    return choose


def play(world: World, choose: Choose, seed: int | None = 0) -> Iterator[WorldStep]:
    """Yield the steps of one episode of a world, the one of the reset first. Each is held to the contract."""
    step = world.reset(seed)
    assert not step.rewards
    assert not step.terminations
    assert not step.truncations
    alive, ended = set(step.observations), set[str]()
    _require_parts(world, step, alive)
    yield step
    while not step.over:
        actions = {agent: choose(agent, step) for agent in step.deciding}
        step = world.step(actions)
        seen = set(step.observations)
        assert alive <= seen
        assert not seen & ended
        for part in (step.rewards, step.terminations, step.truncations):
            assert alive <= set(part) <= seen
        ends = {agent for agent in step.terminations if step.terminations[agent] or step.truncations[agent]}
        ended |= ends
        alive = seen - ends
        _require_parts(world, step, alive)
        yield step


def _require_parts(world: World, step: WorldStep, alive: set[str]) -> None:
    assert set(step.deciding) <= alive <= set(world.agents)
    assert step.over == (not alive)
    assert bool(step.deciding) == bool(alive)
    if world.turns:
        assert len(step.deciding) == bool(alive)
    for agent, observation in step.observations.items():
        assert shapes(observation) == shapes(world.observation_space(agent).sample())


def shapes(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: shapes(part) for key, part in observation.items()}
    return np.shape(observation)


def returns(steps: list[WorldStep]) -> dict[str, float]:
    """Return the sum of the rewards of each agent."""
    totals: dict[str, float] = {}
    for step in steps:
        for agent, reward in step.rewards.items():
            totals[agent] = totals.get(agent, 0.0) + float(reward)
    return totals


def same_steps(one: list[WorldStep], other: list[WorldStep]) -> bool:
    """Whether two episodes are equal bit for bit."""
    return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, WorldStep):
        parts = zip(one._replace(infos={}), other._replace(infos={}), strict=True)
        return all(_equal(a, b) for a, b in parts)
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(_equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other)
