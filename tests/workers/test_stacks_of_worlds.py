"""Frame stacks of agents that end, appear and wait while their world continues; in leagues, previous inputs too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.sample_envs.labelled_world import LIVES, assert_stacks_are_right
from tests.support.env_rows import assert_previous_inputs
from tests.support.policies import NO_WEIGHTS, Spy
from tests.support.thorough import thorough

from offbeat.algorithms.encoded import Encoded
from offbeat.api.train import train
from offbeat.config.env import EnvConfig
from offbeat.core.pace import OnPolicyPace, ReplayPace
from offbeat.core.types import Array, Leaf, Tree, env_fields
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.contract import Envs
from offbeat.envs.worlds.make import make_worlds
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.rings import RingShape
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.unrolls import Unrolls, UnrollShape
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork, Work

WORLD = "tests.sample_envs.labelled_world:Labelled"
SEED, STACK, WORLDS, LENGTH, TICKETS = 3, 4, 2, 5, 12
OWNERS = pytest.mark.parametrize(
    "owners", [{"all": tuple(LIVES)}, {"one": ("late",), "two": ("early", "waits")}], ids=["one policy", "two policies"]
)


def envs_of(owners: Mapping[str, Sequence[str]], groups: int) -> list[Envs]:
    settings = EnvConfig(frame_stack=STACK)
    spec = preflight_world(WORLD, settings)
    assert spec is not None
    return list(make_worlds(spec, WORLDS, owners, seed=SEED, settings=settings, groups=groups).envs.values())


def acted(envs: Sequence[Envs], memories: Sequence[Any]) -> list[Spy]:
    """Act all tickets into the memory of each policy."""
    spies = [Spy() for _ in envs]
    actor = Actor(0, SEED, [PolicyColumns(each, spy) for each, spy in zip(envs, spies, strict=True)])
    actor.start(0)
    for ticket in range(TICKETS):
        works = tuple(PolicyWork(NO_WEIGHTS, memory.open(ticket)) for memory in memories)
        actor.act(Work(ticket, 0, 0.0, works))
    return spies


def in_episode(batch: Tree) -> Array:
    """Return in which rows of a batch an agent is alive, [T, N]."""
    alive: Array = batch["valid"][:-1] | batch["no_decision"][:-1]
    return alive


@OWNERS
@pytest.mark.parametrize("groups", [1, 2])
def test_actor_and_learner_see_the_frames_of_an_agents_own_episode(owners, groups):
    envs = envs_of(owners, groups)
    pace = OnPolicyPace(1, TICKETS)  # all batches stay in memory
    shapes = [UnrollShape(pace, LENGTH, each.spec.columns) for each in envs]
    fields = [env_fields(each.spec) for each in envs]
    memories = [shape.slots(own, private_arena(shape.slabs(own))) for shape, own in zip(shapes, fields, strict=True)]
    spies = acted(envs, memories)
    for each, memory, spy in zip(envs, memories, spies, strict=True):
        observations = [seen["observation"] for seen in spy.seen]
        rows = len(observations) // (TICKETS * LENGTH)
        seen = np.stack(
            [np.concatenate(observations[rows * row : rows * (row + 1)]) for row in range(TICKETS * LENGTH)]
        )
        for step in range(TICKETS):
            batch = memory.arrays_of(step)
            alive = in_episode(batch)
            tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
            learned = Encoded(each.spec.observation[0], tensors).at(slice(None)).numpy()
            learned = learned.reshape(LENGTH + 1, each.spec.columns, STACK, *each.spec.observation[0].shape)[:-1]
            assert_stacks_are_right(learned[alive])
            np.testing.assert_array_equal(learned, seen[step * LENGTH : (step + 1) * LENGTH])


@OWNERS
def test_a_replay_samples_the_frames_of_an_agents_own_episode(owners):
    envs = envs_of(owners, 1)
    rings = []
    for each in envs:
        capacity = LENGTH * TICKETS * each.spec.columns
        shape = RingShape(ReplayPace(Fraction(1), 1, 0), 1, each.spec.columns, LENGTH, capacity, STACK - 1)
        fields = env_fields(each.spec)
        rings.append(shape.slots(fields, private_arena(shape.slabs(fields))))
    acted(envs, rings)
    for ring in rings:
        replay = TransitionReplay(ring, batch_size=50, n_step=2, gamma=0.9)
        replay.reset(0)
        for ticket in range(TICKETS):
            replay.take_in(ticket, 0)
        for seed in range(20):
            arrays = replay.sample(np.random.default_rng(seed)).arrays
            assert_stacks_are_right(arrays["observation"])
            assert_stacks_are_right(arrays["next/observation"])


# --- leagues ------------------------------------------------------------------------------------------------

ONE: dict[str, Any] = {"league": {"window": 2, "snapshot_every": 2}}
BY_TURNS: dict[str, Any] = {
    "policies": {"one": {"agents": "late"}, "two": {"agents": "*"}},
    "league": {"window": 2, "snapshot_every": 2, "team_change_every": 2},
}
DRAWN: dict[str, Any] = {
    "policies": {"one": {"agents": "*"}, "two": {"agents": "*"}},
    "league": {"window": 2, "snapshot_every": 2, "draw_policies": True},
}
SEES: dict[str, Any] = {
    "runtime": "serial", "actors": 1, "envs_per_actor": 3, "hidden_sizes": (8,), "eval_every": 0, "checkpoint_every": 0,
    "steps": 180, "env_kwargs": {"size": 36}, "frame_stack": STACK, "reward_scale": 0.5,
    "previous_action": True, "previous_reward": True,
}  # fmt: skip
UNROLLED: dict[str, Any] = {**SEES, "unroll_length": LENGTH, "minibatch_size": LENGTH * 3, "epochs": 1, "max_lag": 1}
REPLAYED: dict[str, Any] = {
    **SEES, "chunk_length": 2, "capacity": 400, "warmup": 20, "batch_size": 16, "utd_ratio": "1/4",
}  # fmt: skip
INPUTS = ("previous_action", "previous_reward")


@pytest.mark.parametrize("settings", [ONE, DRAWN, *thorough(BY_TURNS)], ids=["one policy", "drawn", "by turns"])
def test_the_unrolls_of_a_league_have_the_frames_and_inputs_of_an_agents_own_episode(settings, tmp_path, monkeypatch):
    """Some columns have frozen players, whose rows are blank."""
    original, blank = Unrolls.arrays_of, []

    def checked(memory: Unrolls, step: int) -> Tree:
        batch = original(memory, step)
        alive, valid = in_episode(batch), batch["valid"][:-1]
        leaf = Leaf("observation", (36, 36), "uint8", stack=STACK)
        encoded = Encoded(leaf, {name: torch.from_numpy(array) for name, array in batch.items()})
        learned = encoded.at(slice(None)).numpy().reshape(LENGTH + 1, -1, STACK, 36, 36)[:-1]
        assert_stacks_are_right(learned[alive])
        there = {name: batch[name][1:][valid] for name in INPUTS}
        assert_previous_inputs(batch["action"][:-1][valid], batch["reward"][:-1][valid] / 0.5, there)
        blank.append(not learned[~alive].any(axis=(1, 2, 3)).all())
        return batch

    monkeypatch.setattr(Unrolls, "arrays_of", checked)
    train("ppo", WORLD, run_dir=tmp_path / "run", **UNROLLED, **settings)
    assert any(blank)


@pytest.mark.parametrize("settings", [ONE, DRAWN], ids=["one policy", "two that are drawn"])
def test_the_replay_of_a_league_has_the_frames_and_inputs_of_an_agents_own_episode(settings, tmp_path, monkeypatch):
    original, checks = TransitionReplay.sample, []

    def checked(replay: TransitionReplay, random: np.random.Generator) -> Samples:
        samples = original(replay, random)
        arrays = samples.arrays
        for prefix in ("", "next/"):
            assert_stacks_are_right(arrays[f"{prefix}observation"])
        there = {name: arrays[f"next/{name}"] for name in INPUTS}
        assert_previous_inputs(arrays["action"], arrays["reward"] / 0.5, there)
        checks.append(arrays["action"].any())
        return samples

    monkeypatch.setattr(TransitionReplay, "sample", checked)
    train("dqn", WORLD, run_dir=tmp_path / "run", **REPLAYED, **settings)
    assert sum(checks) > 10
