"""What is learned from has the previous action and reward of each state, and of the state that follows it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.sample_envs import curious_envs  # noqa: F401 - registers its envs
from tests.support.policies import NO_WEIGHTS, Spy

from offbeat.api.train import train
from offbeat.config.env import EnvConfig
from offbeat.core.pace import OnPolicyPace, ReplayPace
from offbeat.core.types import Array, Field, Tree, env_fields
from offbeat.envs.make import make_envs
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.base import Samples
from offbeat.memory.replay.rings import RingShape
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.unrolls import Unrolls, UnrollShape
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork, Work

INPUTS: dict[str, Any] = {"previous_action": True, "previous_reward": True, "reward_scale": 0.5}
BOTH = EnvConfig(**INPUTS)
COLUMNS, LENGTH, TICKETS = 3, 4, 30
every_end = pytest.mark.parametrize("env_id", ["CartPole-v1", "offbeat/ChainTruncates-v0"])


def actor_in(env_id: str) -> tuple[Actor, Spy, list[Field]]:
    envs, spy = make_envs(env_id, COLUMNS, seed=3, settings=BOTH), Spy()
    actor = Actor(0, 3, [PolicyColumns(envs, spy, BOTH.learning_rewards)])
    actor.start(0, spread=3)
    return actor, spy, env_fields(envs.spec)


def assert_linked(action: Array, reward: Array, there: Tree) -> None:
    """Check transitions: the next observations have their actions and the rewards of the env, which are not scaled."""
    np.testing.assert_array_equal(there["previous_action"], action + 1)
    np.testing.assert_allclose(there["previous_reward"], reward / 0.5)


@every_end
def test_unrolls_have_what_the_policy_saw_and_the_inputs_of_the_row_after_each_decision(env_id):
    actor, spy, fields = actor_in(env_id)
    shape = UnrollShape(OnPolicyPace(1, 1), LENGTH, COLUMNS)
    slots = shape.slots(fields, private_arena(shape.slabs(fields)))
    ends = 0
    for ticket in range(TICKETS):
        actor.act(Work(ticket, 0, 0.0, (PolicyWork(NO_WEIGHTS, slots.open(ticket)),)))
        batch = {name: array.copy() for name, array in slots.arrays_of(ticket).items()}
        valid = batch["valid"][:-1]
        names = ("previous_action", "previous_reward")
        for name in names:
            seen = np.stack([each[name] for each in spy.seen[-LENGTH:]])
            np.testing.assert_array_equal(batch[name][:-1], seen)
        there = {name: batch[name][1:][valid] for name in names}
        assert_linked(batch["action"][:-1][valid], batch["reward"][:-1][valid], there)
        ends += int((~valid).sum())
        assert not any(batch[name][1:][~valid].any() for name in names)  # the first row of the next episode
    assert ends > 5


@every_end
def test_a_replay_gives_the_inputs_of_the_next_state_also_across_the_end_of_its_ring(env_id):
    actor, _, fields = actor_in(env_id)
    shape = RingShape(ReplayPace(Fraction(1), 1, 0), 1, COLUMNS, LENGTH, 6 * LENGTH * COLUMNS)
    rings = shape.slots(fields, private_arena(shape.slabs(fields)))
    replay, random, ends = TransitionReplay(rings, batch_size=32, n_step=1, gamma=0.9), np.random.default_rng(0), 0
    replay.reset(0)
    for ticket in range(TICKETS):
        actor.act(Work(ticket, 0, 0.0, (PolicyWork(NO_WEIGHTS, rings.open(ticket)),)))
        replay.take_in(ticket, 0)
        if not replay.size:
            continue
        arrays = replay.sample(random).arrays
        there = {name.removeprefix("next/"): part for name, part in arrays.items() if name.startswith("next/")}
        assert_linked(arrays["action"], arrays["reward"], there)
        starts = arrays["previous_action"] == 0
        assert not arrays["previous_reward"][starts].any()
        ends += int(starts.any())
    assert ends > 5
    assert 2 * shape.slots_per_ring < TICKETS


# --- leagues: some columns have frozen players, whose rows are blank ----------------------------------------

WORLD = "tests.sample_envs.labelled_world:Labelled"
SMALL: dict[str, Any] = {
    "runtime": "serial", "actors": 1, "envs_per_actor": 3, "hidden_sizes": (8,), "eval_every": 0, "checkpoint_every": 0,
    "steps": 180, "encoder": "flat", **INPUTS,
}  # fmt: skip
UNROLLED: dict[str, Any] = {**SMALL, "unroll_length": 5, "minibatch_size": 15, "epochs": 1, "max_lag": 1}
REPLAYED: dict[str, Any] = {
    **SMALL, "chunk_length": 2, "capacity": 400, "warmup": 20, "batch_size": 16, "utd_ratio": "1/4",
}  # fmt: skip
every_league = pytest.mark.parametrize(
    "league",
    [
        {"league": {"window": 2, "snapshot_every": 2}},
        {
            "policies": {"one": {"agents": "*"}, "two": {"agents": "*"}},
            "league": {"window": 2, "snapshot_every": 2, "draw_policies": True},
        },
    ],
    ids=["one policy", "two that are drawn"],
)


@every_league
def test_the_unrolls_of_a_league_have_the_inputs_of_an_agents_own_episode(league, tmp_path, monkeypatch):
    original, blank = Unrolls.arrays_of, []

    def checked(memory: Unrolls, step: int) -> Tree:
        batch = original(memory, step)
        valid = batch["valid"][:-1]
        there = {name: batch[name][1:][valid] for name in ("previous_action", "previous_reward")}
        assert_linked(batch["action"][:-1][valid], batch["reward"][:-1][valid], there)
        blank.append(not valid.all())
        return batch

    monkeypatch.setattr(Unrolls, "arrays_of", checked)
    train("ppo", WORLD, run_dir=tmp_path / "run", **UNROLLED, **league)
    assert any(blank)


@every_league
def test_the_replay_of_a_league_has_the_inputs_of_an_agents_own_episode(league, tmp_path, monkeypatch):
    original, checks = TransitionReplay.sample, []

    def checked(replay: TransitionReplay, random: np.random.Generator) -> Samples:
        samples = original(replay, random)
        arrays = samples.arrays
        there = {name: arrays[f"next/{name}"] for name in ("previous_action", "previous_reward")}
        assert_linked(arrays["action"], arrays["reward"], there)
        checks.append(arrays["action"].any())
        return samples

    monkeypatch.setattr(TransitionReplay, "sample", checked)
    train("dqn", WORLD, run_dir=tmp_path / "run", **REPLAYED, **league)
    assert sum(checks) > 10
