"""Frames that lie once in memory, and are seen in stacks: what is learned from is what was acted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.replay import Key, transitions
from tests.support.policies import NO_WEIGHTS, Spy
from tests.support.thorough import examples

from offbeat.algorithms.encoded import Encoded
from offbeat.config.env import EnvConfig
from offbeat.core.frozen_table import PlainTable
from offbeat.core.pace import OnPolicyPace, ReplayPace
from offbeat.core.types import FRAME_AGE, Array, Field, Tree, env_fields
from offbeat.envs.contract import Envs
from offbeat.envs.make import make_envs
from offbeat.memory.arena import arena_bytes, private_arena
from offbeat.memory.replay.rings import Rings, RingShape
from offbeat.memory.replay.sequences import SequenceReplay
from offbeat.memory.replay.transitions import TransitionReplay
from offbeat.memory.unrolls import UnrollShape
from offbeat.workers.actor import Actor
from offbeat.workers.columns import PolicyColumns
from offbeat.workers.link import PolicyWork, Work

SEED = 3
seeds = st.integers(0, 2**32 - 1)


def motion(columns: int, stack: int, actor: int = 0, length: int = 2) -> Envs:
    """Images of which no two are alike, in episodes of a few rows."""
    settings = EnvConfig(frame_stack=stack, kwargs=PlainTable({"length": length, "size": 16}))
    return make_envs("offbeat/PixelsMotion-v0", columns, seed=SEED, actor=actor, settings=settings)


def slow_stacks(frames: list[Array], valid: list[Array], stack: int) -> list[Array]:
    """What should be seen of successive rows [N, ...], each of which is valid or a reset row [N]."""
    columns, seen = len(frames[0]), []
    episodes: list[list[Array]] = [[] for _ in range(columns)]
    for row, now in enumerate(frames):
        for column in range(columns):
            begins = row == 0 or not valid[row - 1][column]
            episodes[column] = [*([] if begins else episodes[column]), now[column]]
        last = [([episode[0]] * stack + episode)[-stack:] for episode in episodes]
        seen.append(np.stack([np.stack(frames_of) for frames_of in last]))
    return seen


@examples(30)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 2))
def test_the_learner_stacks_the_same_frames_as_the_actor(stack, columns, length, unrolls):
    shape, actors, spies = UnrollShape(OnPolicyPace(unrolls, 1), length, columns), [], [Spy() for _ in range(unrolls)]
    envs = [motion(columns, stack, actor) for actor in range(unrolls)]
    fields = env_fields(envs[0].spec)
    slots = shape.slots(fields, private_arena(shape.slabs(fields)))
    for actor in range(unrolls):
        actors.append(Actor(actor, SEED, [PolicyColumns(envs[actor], spies[actor])]))
        actors[-1].start(0)
    frames: list[Array] = []
    valid: list[Array] = []
    for step in range(8 // length + 2):
        for place, writer in enumerate(actors):
            ticket = step * unrolls + place
            writer.act(Work(ticket, step, 0.0, (PolicyWork(NO_WEIGHTS, slots.open(ticket)),)))
        batch = slots.arrays_of(step)
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        [leaf] = envs[0].spec.observation
        encoded = Encoded(leaf, tensors)
        rows = encoded.at(slice(0, (length + 1) * columns * unrolls)).numpy()
        rows = rows.reshape(length + 1, columns * unrolls, stack, *leaf.shape)
        acted = [spy.seen[step * length : (step + 1) * length] for spy in spies]
        for row in range(length):
            seen = np.concatenate([of_actor[row]["observation"] for of_actor in acted])
            np.testing.assert_array_equal(rows[row], seen)
        some = torch.from_numpy(np.random.default_rng(step).permutation(columns * unrolls)[:2].copy())
        of_columns = encoded.of_columns(some, length).numpy().reshape(length, len(some), stack, *leaf.shape)
        np.testing.assert_array_equal(of_columns, rows[:length, some.numpy()])
        frames += list(batch["observation"][stack - 1 : -1].copy())
        valid += list(batch["valid"][:-1].copy())
        expected = slow_stacks([*frames, batch["observation"][-1]], valid, stack)[-length - 1 :]
        np.testing.assert_array_equal(rows, np.stack(expected))  # the row that follows the unroll too


class Replayed:
    """Actors that write rings of stacked frames, a replay on them, and what the actors saw."""

    def __init__(self, shape: RingShape, stack: int, more: Sequence[Field] = (), n_step: int = 1) -> None:
        self.shape, self.spies, self.n_step = shape, [Spy() for _ in range(shape.actors)], n_step
        envs = [motion(shape.columns, stack, actor) for actor in range(shape.actors)]
        self.leaf = envs[0].spec.observation[0]
        self.fields = [*env_fields(envs[0].spec), *more]
        self.rings = self.new_rings()
        self.actors = [
            Actor(index, SEED, [PolicyColumns(envs[index], self.spies[index])]) for index in range(shape.actors)
        ]
        for actor in self.actors:
            actor.start(0)
        self.acted = 0
        self.committed: dict[int, Tree] = {}
        self.sampled: list[tuple[Tree, list[Key], list[Key]]] = []
        """Arrays of a sample, its rows, and the rows after their n steps."""

    def new_rings(self) -> Rings:
        return self.shape.slots(self.fields, private_arena(self.shape.slabs(self.fields)))

    def new_replay(self, rings: Rings) -> TransitionReplay:
        return TransitionReplay(rings, batch_size=16, n_step=self.n_step, gamma=0.9)

    def act_ahead(self, prefix: int) -> None:
        """Let actors be as far ahead as the pace allows: they write all that they may write."""
        while self.acted < prefix + self.shape.pace.max_ahead:
            slot = self.rings.open(self.acted)
            self.actors[self.acted % self.shape.actors].act(Work(self.acted, 0, 0.0, (PolicyWork(NO_WEIGHTS, slot),)))
            flags = ("reward", "terminated", "truncated", "valid")
            self.committed[self.acted] = {name: slot[name].copy() for name in flags}
            self.acted += 1

    def seen(self, ticket: int, row: int, column: int) -> Array:
        """What the actor of a ticket saw in a row of it, or in those that followed."""
        turn = ticket // self.shape.actors * self.shape.length + row
        seen: Array = self.spies[ticket % self.shape.actors].seen[turn]["observation"][column]
        return seen

    def sample(self, replay: TransitionReplay, random: np.random.Generator) -> None:
        samples = replay.sample(random)
        assert FRAME_AGE not in samples.arrays
        copies = {name: array.copy() for name, array in samples.arrays.items()}
        rows = [
            (int(ticket), *divmod(int(cell) % self.shape.ticket_rows, self.shape.columns))
            for ticket, cell in zip(samples.tickets, samples.cells, strict=True)
        ]
        found = transitions(self.committed, replay.window, self.shape.actors, self.n_step, 0.9)
        self.sampled.append((copies, rows, [found[row].next for row in rows]))

    def assert_samples_are_as_seen(self) -> None:
        self.act_ahead(self.acted + self.shape.actors)  # all rows that follow have been seen then
        for arrays, rows, following in self.sampled:
            for i, (row, after) in enumerate(zip(rows, following, strict=True)):
                np.testing.assert_array_equal(arrays["observation"][i], self.seen(*row))
                np.testing.assert_array_equal(arrays["next/observation"][i], self.seen(*after))


@examples(20)
@given(st.data())
def test_sampled_stacks_equal_those_of_the_actor_across_the_end_of_a_ring(data):
    stack, actors = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    columns, length, max_ahead = (
        data.draw(st.integers(1, 2)),
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(0, 3)),
    )
    plain = RingShape(ReplayPace(Fraction(1), 1, max_ahead), actors, columns, length, 10**6)
    run = Replayed(
        replace(plain, capacity=max(16, (max_ahead + actors * 5) * columns * length), history=stack - 1),
        stack,
        n_step=data.draw(st.integers(1, 3)),
    )
    replay, random = run.new_replay(run.rings), np.random.default_rng(data.draw(seeds))
    for prefix in range(1, 2 * run.shape.slots_per_ring * actors + 2):
        run.act_ahead(prefix)
        replay.take_in(prefix - 1, 0)
        if prefix % 2 == 0 and replay.size:
            run.sample(replay, random)
    kept = run.new_replay(run.new_rings())
    kept.restore(replay.state())
    kept.load({name: array.copy() for name, array in replay.arrays().items()})
    for _ in range(3):
        run.sample(kept, random)
    run.assert_samples_are_as_seen()


@examples(20)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(2, 4), st.integers(0, 2), seeds)
def test_sampled_sequences_have_the_stacks_of_the_actor_including_burn_in(stack, actors, length, before, seed):
    shape = RingShape(ReplayPace(Fraction(1), 1, 1), actors, 2, length, (before + 8) * actors * 2 * length, stack - 1)
    run, random = (
        Replayed(shape, stack, [Field("initial_state", (1,), "float32", per="unroll")]),
        np.random.default_rng(seed),
    )
    replay = SequenceReplay(run.rings, batch_size=4 * length, burn_in=before * length, n_step=1, gamma=0.9)
    sampled = []
    for prefix in range(1, 2 * shape.slots_per_ring * actors + 2):
        run.act_ahead(prefix)
        replay.take_in(prefix - 1, 0)
        if prefix % 2 == 0 and replay.size:
            samples = replay.sample(random)
            sampled.append((samples.arrays["observation"].copy(), samples.cells % 2, samples.tickets))
    run.act_ahead(run.acted + actors)
    for seen, columns, tickets in sampled:
        assert len(seen) == (before + 1) * length + 1
        for i, (column, ticket) in enumerate(zip(columns, tickets, strict=True)):
            rows = range(-before * length, length + 1)
            expected = [run.seen(int(ticket), row, int(column)) for row in rows]
            np.testing.assert_array_equal(seen[:, i], np.stack(expected))


@examples(100)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 9), st.integers(0, 60), st.integers(0, 9))
def test_a_checkpoint_has_all_rows_that_the_stacks_of_the_window_reach_into(
    actors, length, history, next_ticket, origin
):
    shape = RingShape(ReplayPace(Fraction(1), 1, 1), actors, 2, length, 31 * 2 * length, history)
    next_ticket += origin
    saved, window = shape.tickets_to_save(next_ticket, origin), shape.window(next_ticket, origin)
    assert saved.stop == window.stop
    for first in window[:actors]:
        before = range(first - actors, origin - 1, -actors)[: -(-history // length)]
        assert [ticket for ticket in before if ticket not in saved] == []


@pytest.mark.parametrize("stack", [2, 4])
def test_each_frame_is_stored_once(stack):
    frame, history = 36 * 36, stack - 1
    fields = {one: env_fields(motion(3, one, length=8).spec) for one in (1, stack)}
    ring = RingShape(ReplayPace(Fraction(1), 1, 0), 2, 3, 5, 300)
    sizes = {one: arena_bytes(replace(ring, history=one - 1).slabs(fields[one])) for one in (1, stack)}
    more = replace(ring, history=history).slots_per_ring - ring.slots_per_ring
    assert sizes[stack] - sizes[1] < 2 * 3 * (more * 5 * (frame + 100) + replace(ring, history=history).rows + 1) + 1000
    unrolls = UnrollShape(OnPolicyPace(2, 1), 5, 3)
    sizes = {one: arena_bytes(unrolls.slabs(fields[one])) for one in (1, stack)}
    assert sizes[stack] - sizes[1] == pytest.approx(2 * 2 * 3 * (history * 16 * 16 + 6), abs=400)
