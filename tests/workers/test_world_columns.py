"""Slow twin of worlds: each agent of `CartPoles` has the rows, targets and transitions of a single env of its own.

A single env is reset right after its end. A cart of a world has reset rows until all carts have ended. So the rows are
equal if of adjacent reset rows only the first is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.env_rows import empty_slot
from tests.support.policies import WithoutWeights

from offbeat.algorithms.a2c import A2C, A2CConfig
from offbeat.config.env import EnvConfig
from offbeat.core.errors import NetworkFailed
from offbeat.core.pace import ReplayPace
from offbeat.core.seeding import derive_seed
from offbeat.core.types import ENV_STEP, Acted, Array, EnvSpec, Field, Tree, env_fields
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.contract import EnvRequest, Envs, Limits
from offbeat.envs.make import groups_of, single_agent_adapter
from offbeat.envs.testing.worlds import cart_seed
from offbeat.envs.worlds.make import make_worlds
from offbeat.losses.advantages import generalized_advantages, vtrace
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.rings import RingShape
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.models.spec import PolicySpec
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.feed import env_steps_in
from offbeat.workers.link import PolicyWork, Work

WORLDS, CARTS, LIMIT = 2, 3, 60
"""With this limit some episodes are truncated, and the others end earlier."""
TICKETS, LENGTH = 6, 50
SEED = 5
WORLD = "offbeat.envs.testing.worlds:CartPoles"
SINGLE = "gymnasium.envs.classic_control:CartPoleEnv"
"""The class: the id CartPole-v1 is a vector env, with one random stream for all columns."""
AGENTS = tuple(f"cart_{index}" for index in range(CARTS))
OWNERS: dict[str, dict[str, tuple[str, ...]]] = {
    "one policy": {"default": AGENTS},
    "two policies": {"first": AGENTS[1:2], "second": (AGENTS[0], AGENTS[2])},
}
EACH_OWNERS = pytest.mark.parametrize("owners", OWNERS)


class ByObservation(WithoutWeights):
    """A policy whose action is a function of the observation alone. It balances some carts for a while."""

    def act(self, observation: Tree, random: np.random.Generator, state: Array | None = None) -> Acted:  # noqa: ARG002
        seen = observation["observation"]
        lean = seen[:, 3] + np.sin(1e3 * seen[:, 0])
        return Acted((lean > 0).astype(np.int64), {"behavior_log_prob": (-0.5 - 0.4 * np.sin(seen[:, 1]) ** 2)})


def fields_of(spec: EnvSpec) -> list[Field]:
    return [*env_fields(spec), Field("behavior_log_prob", (), "float32")]


def slot_of(envs: Envs) -> Tree:
    return empty_slot(fields_of(envs.spec), LENGTH, envs.spec.columns)


def acted(envs: Sequence[Envs], slots: Sequence[Sequence[Tree]]) -> None:
    """Act all tickets: `slots` has those of each policy for each ticket."""
    actor = Actor(0, SEED, [PolicyColumns(each, ByObservation()) for each in envs])
    actor.start(0)
    weights = np.zeros(0, np.float32)
    for ticket, of_policies in enumerate(slots):
        actor.act(Work(ticket, 0, 0.0, tuple(PolicyWork(weights, slot) for slot in of_policies)))


def joined(slots: Sequence[Tree]) -> Tree:
    """Join tickets to one long one, [R, N, ...]; the observation has R + 1 rows."""
    rows = {
        name: np.concatenate([slot[name][:LENGTH] for slot in slots])
        for name in slots[0]
        if slots[0][name].shape[:1] == (LENGTH + 1,)
    }
    last = slots[-1]["observation"][LENGTH:]
    return rows | {"observation": np.concatenate((rows["observation"], last))}


def world_envs(owners: str) -> list[Envs]:
    settings = EnvConfig(kwargs={"carts": CARTS, "max_steps": LIMIT})  # type: ignore[arg-type]
    spec = preflight_world(WORLD, settings)
    assert spec is not None
    return list(make_worlds(spec, WORLDS, OWNERS[owners], seed=SEED, settings=settings).envs.values())


@cache
def world_rows(owners: str) -> list[Tree]:
    """Return the rows of each policy, [R, N, ...]."""
    envs = world_envs(owners)
    slots = [[slot_of(each) for each in envs] for _ in range(TICKETS)]
    acted(envs, slots)
    return [joined([of_policies[index] for of_policies in slots]) for index in range(len(envs))]


class WithNan(ByObservation):
    """A policy whose network returns NaN."""

    def act(self, observation: Tree, random: np.random.Generator, state: Array | None = None) -> Acted:  # noqa: ARG002
        raise NetworkFailed("NaN")


def test_a_policy_whose_network_returns_nan_is_named_with_its_agents():
    envs = world_envs("two policies")
    policies = [PolicyColumns(envs[0], ByObservation()), PolicyColumns(envs[1], WithNan())]
    actor = Actor(0, SEED, policies)
    actor.start(0)
    slots = tuple(PolicyWork(np.zeros(0, np.float32), slot_of(each)) for each in envs)
    with pytest.raises(NetworkFailed, match="the network of the policy 'second' of cart_0, cart_2 returned NaN"):
        actor.act(Work(0, 0, 0.0, slots))


def single_envs(agents: Sequence[str]) -> Envs:
    """Return a single CartPole with the seed of each agent, those of one world next to each other."""
    seeds = [
        cart_seed(derive_seed(SEED, "env", 0, 0, world), AGENTS.index(a)) for world in range(WORLDS) for a in agents
    ]
    settings, groups, limits = EnvConfig().completed(SINGLE), groups_of(len(seeds), 1), Limits(LIMIT)
    return single_agent_adapter(SINGLE).make(EnvRequest(SINGLE, groups, tuple(seeds), settings, limits))


def single_rows(agents: Sequence[str]) -> Tree:
    envs = single_envs(agents)
    slots = [[slot_of(envs)] for _ in range(TICKETS)]
    acted([envs], slots)
    return joined([slot for [slot] in slots])


def kept_rows(rows: Tree, column: int) -> Array:
    """Return the indices of the rows of a column that a single env has too, up to its last decision."""
    valid = rows["valid"][:, column]
    kept = np.flatnonzero(valid | np.append(True, valid[:-1]))
    return kept[kept <= np.flatnonzero(valid)[-1]]


@cache
def pairs(owners: str) -> list[tuple[Tree, Tree]]:
    """Return for each agent of each world its rows in the world, and those of a single env, both [n, ...].

    The observation has n + 1 rows.
    """
    found = []
    for rows, agents in zip(world_rows(owners), OWNERS[owners].values(), strict=True):
        single = single_rows(agents)
        for column in range(rows["valid"].shape[1]):
            kept = kept_rows(rows, column)
            ours = {name: array[kept, column] for name, array in rows.items()}
            ours["observation"] = rows["observation"][np.append(kept, kept[-1] + 1), column]
            theirs = {name: array[: len(kept) + (name == "observation"), column] for name, array in single.items()}
            found.append((ours, theirs))
    return found


@EACH_OWNERS
def test_each_agent_of_a_world_has_the_rows_returns_and_lengths_of_a_single_env(owners):
    ends = set()
    for ours, theirs in pairs(owners):
        where = {
            "action": ours["valid"],
            "behavior_log_prob": ours["valid"],
            "episode_return": ours["episode_length"] > 0,
        }
        for name, array in theirs.items():
            defined = where.get(name, slice(None))
            assert np.array_equal(ours[name][defined], array[defined]), name
        ends |= {name for name in ("terminated", "truncated") if ours[name].any()}
        assert (ours["episode_length"] > 0).sum() > 2
    assert ends == {"terminated", "truncated"}


@EACH_OWNERS
def test_env_steps_are_those_of_worlds_and_agent_steps_those_of_single_envs(owners):
    by_policy = world_rows(owners)
    valid = np.concatenate([rows["valid"].reshape(len(rows["valid"]), WORLDS, -1) for rows in by_policy], axis=2)
    for rows in by_policy:
        assert env_steps_in(rows) == valid.any(axis=2).sum()
        assert (rows[ENV_STEP].reshape(len(valid), WORLDS, -1).sum(axis=2) <= 1).all()
    decisions = sum(int(theirs["valid"].sum()) for _, theirs in pairs(owners))
    assert decisions == sum(int(rows["valid"].sum()) for rows in by_policy)


# --- targets and losses -------------------------------------------------------------------------------------


def value_of(observation: Array) -> torch.Tensor:
    return torch.from_numpy(np.cos(3 * observation.astype(np.float64)).sum(axis=-1))


def targets_of(rows: Tree, kind: str) -> tuple[Array, Array]:
    """Return advantages and value targets, [R, N] each, of rows [R, N, ...]."""
    values = value_of(rows["observation"])
    reward = torch.from_numpy(rows["reward"].astype(np.float64))
    terminated, truncated, valid = (
        torch.from_numpy(rows[name].copy()) for name in ("terminated", "truncated", "valid")
    )
    flags, none = (terminated, truncated, valid), torch.zeros_like(valid)
    if kind == "gae":
        found = generalized_advantages(reward, values, *flags, none, 0.97, 0.9)
    else:
        ratio = 0.3 * torch.sin(5 * values[:-1])
        found = vtrace(ratio, reward, values, *flags, none, 0.97, 0.9, 1.0, 1.2)
    return found.advantages.numpy(), found.value_targets.numpy()


@pytest.mark.parametrize("kind", ["gae", "vtrace"])
def test_targets_of_agents_are_those_of_single_envs(kind):
    [rows] = world_rows("one policy")
    whole = targets_of(rows, kind)
    for column, (_, theirs) in enumerate(pairs("one policy")):
        kept = kept_rows(rows, column)
        alone = targets_of({name: array[:, None] for name, array in theirs.items()}, kind)
        for ours, expected in zip(whole, alone, strict=True):
            np.testing.assert_allclose(ours[kept, column][theirs["valid"]], expected[theirs["valid"], 0], atol=1e-9)


@pytest.mark.parametrize("corrected", [False, True], ids=["gae", "vtrace"])
def test_absent_rows_change_neither_loss_nor_gradient(corrected):
    [rows] = world_rows("one policy")
    losses = [loss_and_gradient(batch, corrected=corrected) for batch in (rows, padded(rows))]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)
    np.testing.assert_allclose(losses[0][1], losses[1][1], rtol=1e-3, atol=1e-5)


def padded(rows: Tree) -> Tree:
    """Return the rows of single envs, and in place of those in which a cart is absent, reset rows at the end."""
    batch = {name: np.zeros_like(array) for name, array in rows.items()}
    for column, (ours, _) in enumerate(pairs("one policy")):
        for name, array in ours.items():
            batch[name][: len(array), column] = array
    return batch


def loss_and_gradient(rows: Tree, *, corrected: bool) -> tuple[float, Array]:
    """Return the loss of A2C and its gradient for rows [R, N, ...]."""
    [envs] = world_envs("one policy")
    config = A2CConfig(hidden_sizes=(8,), normalize_observations=False, normalize_returns=False)
    spec = PolicySpec(envs.spec.observation, envs.spec.action, (8,), "tanh", "categorical", normalize=False)
    algorithm: A2C = A2C(config, spec, seed=1, corrected=corrected)
    batch: dict[str, Any] = {
        name: torch.from_numpy(array if name == "observation" else np.concatenate((array, np.zeros_like(array[:1]))))
        for name, array in rows.items()
    }
    [minibatch] = algorithm.minibatches(algorithm.prepare(batch), np.random.default_rng(0))
    loss = algorithm.loss(minibatch).loss
    assert isinstance(loss, torch.Tensor)
    gradients = torch.autograd.grad(loss, list(algorithm.network.parameters()))
    return float(loss.detach()), np.concatenate([gradient.flatten().numpy() for gradient in gradients])


# --- transitions --------------------------------------------------------------------------------------------

GAMMA = 0.97


@pytest.mark.parametrize(("owners", "n_step"), [("one policy", 3), ("two policies", 1)])
def test_a_replay_samples_the_transitions_of_single_envs(owners, n_step):
    envs = world_envs(owners)
    rings = []
    for each in envs:
        shape = RingShape(
            ReplayPace(Fraction(1), 1, 0), 1, each.spec.columns, LENGTH, LENGTH * TICKETS * each.spec.columns
        )
        rings.append(shape.slots(fields_of(each.spec), private_arena(shape.slabs(fields_of(each.spec)))))
    acted(envs, _Opened(rings))
    expected = {key: value for _, theirs in pairs(owners) for key, value in transitions_of(theirs, n_step).items()}
    sampled: set[bytes] = set()
    for ring in rings:
        replay = TransitionReplay(ring, batch_size=500, n_step=n_step, gamma=GAMMA)
        replay.reset(0)
        for ticket in range(TICKETS):
            replay.take_in(ticket, 0)
        random = np.random.default_rng(0)
        for _ in range(50):
            assert_expected(replay.sample(random).arrays, expected, sampled)
    assert sampled == expected.keys()


def assert_expected(arrays: Tree, expected: Mapping[bytes, Sequence[Any]], sampled: set[bytes]) -> None:
    """Check sampled transitions, and add their observations to `sampled`."""
    keys = [observation.tobytes() for observation in arrays["observation"]]
    sampled |= set(keys)
    for index, name in enumerate(("action", "reward", "discount", "next/observation")):
        np.testing.assert_allclose(arrays[name], np.array([expected[key][index] for key in keys]), rtol=1e-6)


class _Opened(Sequence[Sequence[Tree]]):
    """The slots of rings, opened ticket by ticket."""

    def __init__(self, rings: Sequence[Any]) -> None:
        self._rings = rings

    def __len__(self) -> int:
        return TICKETS

    def __getitem__(self, ticket: Any) -> Any:
        if ticket >= TICKETS:
            raise IndexError(ticket)
        return [rings.open(ticket) for rings in self._rings]


def transitions_of(rows: Tree, n_step: int) -> dict[bytes, tuple[Any, ...]]:
    """Return observation -> action, reward, discount and next observation of each decision of a single env."""
    found = {}
    for start in np.flatnonzero(rows["valid"]).tolist():
        reward, discount, row = 0.0, 1.0, start
        for row in range(start, min(start + n_step, len(rows["valid"]))):
            reward += discount * float(rows["reward"][row])
            discount *= 0.0 if rows["terminated"][row] else GAMMA
            if rows["terminated"][row] or rows["truncated"][row]:
                break
        following = rows["observation"][row + 1]
        found[rows["observation"][start].tobytes()] = (rows["action"][start], reward, discount, following)
    return found
