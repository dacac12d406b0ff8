"""What is learned from has the previous action and reward of each state, and of the state that follows it.

In leagues, see test_stacks_of_worlds.py.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.sample_envs import curious_envs  # noqa: F401 - registers its envs
from tests.support.env_rows import assert_previous_inputs
from tests.support.policies import NO_WEIGHTS, Spy

from offbeat.config.env import EnvConfig
from offbeat.core.pace import OnPolicyPace, ReplayPace
from offbeat.core.types import Field, env_fields
from offbeat.envs.make import make_envs
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.rings import RingShape
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.unrolls import UnrollShape
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
        assert_previous_inputs(batch["action"][:-1][valid], batch["reward"][:-1][valid] / 0.5, there)
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
        assert_previous_inputs(arrays["action"], arrays["reward"] / 0.5, there)
        starts = arrays["previous_action"] == 0
        assert not arrays["previous_reward"][starts].any()
        ends += int(starts.any())
    assert ends > 5
    assert 2 * shape.slots_per_ring < TICKETS
