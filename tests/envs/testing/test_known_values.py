"""Where values are known, the targets that learning computes from rows are these values."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.reference.known_values import exact_values
from tests.support.env_rows import actions_of, collect

from offbeat.core.types import Array, Tree
from offbeat.envs.make import make_envs
from offbeat.losses.advantages import generalized_advantages, vtrace

IDS = [f"offbeat/{name}-v0" for name in ("ChainTruncates", "ChainTerminates", "FailsOnLastStep", "OneStep")]
GAMMA = 0.9
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

every_env = pytest.mark.parametrize("env_id", IDS)


def unroll(env_id: str, rows: int = 40) -> Tree:
    """Rows [T, N] with observations [T + 1, N, 2], begun in the middle of episodes."""
    envs = make_envs(env_id, 6, seed=1)
    envs.reset()
    before = collect(envs, actions_of(envs, 3))
    following = collect(envs, actions_of(envs, rows, seed=1))
    observations = np.concatenate([before["observation"][-1:], following["observation"]])
    return {**following, "observation": observations}


def tensors(rows: Tree, values: Array) -> Tensors:
    rewards, *masks = (torch.from_numpy(rows[name]) for name in ("reward", "terminated", "truncated", "valid"))
    terminated, truncated, valid = masks
    return rewards.double(), torch.from_numpy(values), terminated, truncated, valid, torch.zeros_like(valid)


def all_targets(rows: Tree, values: Array, gae_lambda: float) -> dict[str, Array]:
    arguments = tensors(rows, values)
    on_policy = torch.zeros_like(arguments[0])
    return {
        "gae": generalized_advantages(*arguments, GAMMA, gae_lambda).value_targets.numpy(),
        "vtrace": vtrace(on_policy, *arguments, GAMMA, gae_lambda).value_targets.numpy(),
    }


@every_env
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_exact_values_are_their_own_targets(env_id: str, gae_lambda: float) -> None:
    rows = unroll(env_id)
    values = exact_values(env_id, rows["observation"], GAMMA)
    for name, targets in all_targets(rows, values, gae_lambda).items():
        np.testing.assert_allclose(targets[rows["valid"]], values[:-1][rows["valid"]], rtol=1e-12, err_msg=name)


@every_env
def test_values_after_a_termination_change_no_target(env_id: str) -> None:
    rows = unroll(env_id)
    values = exact_values(env_id, rows["observation"], GAMMA)
    said = values.copy()
    said[1:][rows["terminated"]] += 1000.0
    for name, targets in all_targets(rows, said, 0.7).items():
        np.testing.assert_allclose(targets[rows["valid"]], values[:-1][rows["valid"]], rtol=1e-12, err_msg=name)


@every_env
def test_monte_carlo_returns_need_values_only_where_episodes_are_cut(env_id: str) -> None:
    """With lambda 1 only the values at truncations and at the unroll's end matter to a target."""
    rows = unroll(env_id)
    exact = exact_values(env_id, rows["observation"], GAMMA)
    said = np.random.default_rng(0).normal(size=exact.shape)
    said[1:][rows["truncated"]] = exact[1:][rows["truncated"]]
    said[-1] = exact[-1]
    arguments = tensors(rows, said)
    on_policy = torch.zeros_like(arguments[0])
    for targets in (
        generalized_advantages(*arguments, GAMMA, 1.0).value_targets,
        vtrace(on_policy, *arguments, GAMMA, 1.0).value_targets,
    ):
        valid = rows["valid"]
        np.testing.assert_allclose(targets.numpy()[valid], exact[:-1][valid], rtol=1e-9)


@every_env
def test_discounted_rewards_of_complete_episodes_are_the_exact_values(env_id: str) -> None:
    """The closed form against a plain sum, with nothing of the library's in between."""
    rows = unroll(env_id, rows=60)
    exact = exact_values(env_id, rows["observation"], GAMMA)
    checked = 0
    for column in range(rows["valid"].shape[1]):
        begins = np.flatnonzero(~rows["valid"][:, column]) + 1
        for first, last in pairwise(begins):
            rewards = rows["reward"][first : last - 1, column].astype(np.float64)
            rest = exact[last - 1, column] if rows["truncated"][last - 2, column] else 0.0
            total = sum(GAMMA**k * reward for k, reward in enumerate(rewards)) + GAMMA ** len(rewards) * rest
            np.testing.assert_allclose(exact[first, column], total, rtol=1e-12)
            checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    ("env_id", "terminates", "longest"),
    [(IDS[0], False, 5), (IDS[1], True, 4), (IDS[2], True, 4), (IDS[3], True, 1)],
)
def test_episodes_terminate_or_truncate_according_to_their_names(env_id: str, terminates: bool, longest: int) -> None:
    rows = unroll(env_id, rows=200)
    assert rows["terminated"].any() == terminates
    assert rows["truncated"].any() == (not terminates)
    lengths = np.diff(np.flatnonzero(~rows["valid"][:, 0])) - 1
    assert lengths.max() == longest


def test_the_value_of_the_ring_is_the_geometric_sum_over_laps() -> None:
    value = exact_values(IDS[0], np.array([0.0, 0.5], np.float32), GAMMA)
    assert value == pytest.approx((1 + 2 * 0.9 + 3 * 0.81) / (1 - 0.729))
