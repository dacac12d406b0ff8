"""Rows of envs, collected through the adapters and, by a slow twin, straight from Gymnasium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.seeding import stream
from offbeat.core.types import Array, Field, Tree
from offbeat.envs.actions import random_actions
from offbeat.envs.contract import Envs
from offbeat.envs.rows import named


def empty_slot(fields: Sequence[Field], length: int, columns: int) -> Tree:
    """Return zeros for the rows of a ticket: [length + 1, columns, ...] for a field of each step."""
    first = {"step": (length + 1, columns)}
    return {field.name: np.zeros((*first.get(field.per, (columns,)), *field.shape), field.dtype) for field in fields}


def actions_of(envs: Envs, steps: int, seed: int = 0) -> list[Array]:
    """The same random actions, [N, ...] each, for the same seed."""
    random = stream(seed, "actions of a test")
    return [random_actions(envs.spec.action, envs.spec.columns, random) for _ in range(steps)]


def collect(envs: Envs, actions: Sequence[Array], *, together: bool = False) -> Tree:
    """Step on from where the envs are; return what `recv` said, name -> [len(actions), N, ...].

    With `together`, all groups are sent their actions before the first is received.
    """
    return stacked([_step(envs, action, together) for action in actions])


def stacked(rows: Sequence[Tree]) -> Tree:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _step(envs: Envs, action: Array, together: bool) -> Tree:
    outcomes = []
    if together:
        for group, columns in enumerate(envs.groups):
            envs.send(action[columns], group)
        outcomes = [_copied(envs, group) for group in range(len(envs.groups))]
    else:
        for group, columns in enumerate(envs.groups):
            envs.send(action[columns], group)
            outcomes.append(_copied(envs, group))
    return {name: np.concatenate([outcome[name] for outcome in outcomes]) for name in outcomes[0]}


def _copied(envs: Envs, group: int) -> Tree:
    return {name: part.copy() for name, part in named(envs.recv(group)).items()}


def episodes_under_way(rows: Tree) -> tuple[Array, Array]:
    """Return, for rows from a reset on, [T, N], return and length so far of each column's last episode."""
    steps, columns = rows["reward"].shape
    ended = rows.get("over", rows["terminated"] | rows["truncated"])
    returns, lengths = np.zeros(columns), np.zeros(columns, np.int32)
    for column in range(columns):
        for row in range(steps):
            returns[column] += rows["reward"][row, column]
            lengths[column] += rows["valid"][row, column]
            if ended[row, column]:
                returns[column] = lengths[column] = 0
    return returns, lengths


def plain_rows(env_id: str, seed: int, actions: Sequence[Any], frame_skip: int = 1) -> tuple[Tree, Tree]:
    """Return the first observation and the rows of one column, by Gymnasium alone, for its own actions.

    Each action is taken `frame_skip` times, unless the episode ends before.
    """
    env = gym.make(env_id)
    space = env.observation_space
    first = _leaves(space, env.reset(seed=seed)[0])
    rows, begins = [], False
    for action in actions:
        if begins:
            observation, reward, terminated, truncated = env.reset()[0], 0.0, False, False
        else:
            rewards: list[Any] = []
            terminated = truncated = False
            while len(rewards) < frame_skip and not (terminated or truncated):
                observation, step_reward, terminated, truncated, _ = env.step(action)
                rewards.append(step_reward)
            reward = sum(rewards[1:], rewards[0])
        kept = truncated and not terminated
        scalars = {
            "reward": np.float32(reward),
            "terminated": terminated,
            "truncated": kept,
            "valid": not begins,
            "no_decision": False,
        }
        rows.append({**_leaves(space, observation), **{name: np.array(part) for name, part in scalars.items()}})
        begins = terminated or truncated
    env.close()
    return first, stacked(rows)


def _leaves(space: gym.Space[Any], observation: Any, name: str = "observation") -> Tree:
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        named_parts: Any = space.items() if isinstance(space, gym.spaces.Dict) else enumerate(space)
        parts = [_leaves(part, observation[key], f"{name}/{key}") for key, part in named_parts]
        return {name: leaf for part in parts for name, leaf in part.items()}
    array = np.array(observation)
    if isinstance(space, gym.spaces.Box):
        return {name: array.astype(np.float32) if array.dtype.kind == "f" else array}
    return {name: array - getattr(space, "start", 0)}


def assert_previous_inputs(action: Array, reward: Array, there: Tree) -> None:
    """Require observations to have the discrete action and the reward of the env that led to them."""
    np.testing.assert_array_equal(there["previous_action"], action + 1)
    np.testing.assert_allclose(there["previous_reward"], reward)


def assert_same(left: Tree, right: Tree) -> None:
    """Bit for bit."""
    assert left.keys() == right.keys()
    for name, part in left.items():
        np.testing.assert_array_equal(part, right[name], err_msg=name)
