"""An actor with tasks: which task it visits, when z is drawn, and what the tickets of a visit have in common."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from offbeat.algorithms.pearl_config import PEARLConfig
from offbeat.core.tasks import TaskSample
from offbeat.core.types import Acted, Array, Field, Tree, env_fields
from offbeat.core.visits import TASK, Visits, task_of_visit
from offbeat.envs.make import make_envs, task_envs
from offbeat.models.acting import make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import TASK_VARIABLE
from offbeat.models.task_inference import TaskInference
from offbeat.workers.actor import Actor
from offbeat.workers.link import PolicyWork, Work
from offbeat.workers.task_columns import TaskColumns

COLUMNS, SEED = 3, 4
TASKS = TaskSample(SEED, 5, 2)
EPISODE = 21
"""Rows of an episode of the point robot: 20 steps, and the row in which it is reset."""
CONFIG = PEARLConfig(
    hidden_sizes=(8,), context_hidden_sizes=(8,), latent_size=2, prior_steps=2 * EPISODE, extra_steps=EPISODE + 7
)
VISIT = CONFIG.visit_steps


class Stage:
    """An actor of the point robot with rings to write to, that notes z of each row."""

    def __init__(
        self,
        *,
        parts: int = 1,
        actor: int = 0,
        actors: int = 1,
        groups: int = 1,
        prior_rows: int = CONFIG.prior_steps,
    ) -> None:
        self.visits = Visits(actors, parts, VISIT // parts, prior_rows)
        envs = make_envs("offbeat/PointRobot-v0", COLUMNS, seed=SEED, actor=actor, groups=groups, tasks=TASKS)
        spec = CONFIG.policy_spec(envs.spec)
        self.policy = make_policy(spec)
        self.vector = np.random.default_rng(0).normal(size=published_layout(spec).size).astype(np.float32)
        self.columns = TaskColumns(task_envs(envs), self.policy, visits=self.visits, tasks=TASKS)
        self.actor, self.index = Actor(actor, SEED, [self.columns]), actor
        self.fields = [*env_fields(envs.spec), Field(TASK, (), "int64", per="unroll")]
        self.z: list[Array] = []
        """z of each row that was acted, of all columns if there is one group."""
        self._act, self.policy.act = self.policy.act, self._noted  # type: ignore[method-assign]

    def _noted(self, observation: Tree, random: np.random.Generator, state: Any = None) -> Acted:
        self.z.append(observation[TASK_VARIABLE].copy())
        return self._act(observation, random, state)

    def act(self, *numbers: int) -> list[Tree]:
        """Act the tickets of this actor with these numbers, from 0 on; return their slots."""
        slots = [self.slot() for _ in numbers]
        for number, slot in zip(numbers, slots, strict=True):
            ticket = number * self.visits.actors + self.index
            self.actor.act(Work(ticket, 3, 0.0, (PolicyWork(self.vector, slot),)))
        return slots

    def slot(self) -> Tree:
        length = self.visits.length
        return {
            field.name: np.zeros(
                (length + 1, COLUMNS, *field.shape) if field.per == "step" else (COLUMNS, *field.shape), field.dtype
            )
            for field in self.fields
        }

    def rows_of_z(self) -> Array:
        """Return z of each acted row of the last tickets, [rows, N, latent]."""
        return np.array(self.z)

    def snapshot(self) -> dict[str, Any]:
        state = self.actor.snapshot()
        assert state is not None
        return state

    def context_sizes(self) -> list[int]:
        """Return the number of rows in the context of each column."""
        sizes: Array = self.snapshot()["policies"][0]["inference"]["context_sizes"]
        return [int(size) for size in sizes]


def goals(slot: Tree) -> Array:
    """Return the goal of each column of a ticket, as its rewards tell: the point at these distances from the path."""
    found = []
    for column in range(COLUMNS):
        rows = np.flatnonzero(slot["valid"][:-1, column])
        points, distances = slot["observation"][rows + 1, column].astype(float), -slot["reward"][rows, column]
        # |p - g|^2 = d^2 is linear in (g, |g|^2).
        left = np.column_stack((-2 * points, np.ones(len(rows))))
        found.append(np.linalg.lstsq(left, distances**2 - (points**2).sum(axis=1), rcond=None)[0][:2])
    return np.array(found)


@pytest.mark.parametrize(("actor", "actors"), [(0, 1), (1, 2)])
def test_each_visit_is_in_the_task_that_its_number_gives_and_the_ticket_says_which(actor, actors):
    stage = Stage(actor=actor, actors=actors)
    stage.actor.start(0)
    by_task: dict[int, Array] = {}
    for number, slot in enumerate(stage.act(*range(8))):
        task = task_of_visit(TASKS, number * actors + actor)
        assert (slot[TASK] == task).all()
        found = goals(slot)
        np.testing.assert_allclose(found, found[:1].repeat(COLUMNS, axis=0), atol=1e-2)
        np.testing.assert_allclose(found[0], by_task.setdefault(task, found[0]), atol=1e-2)
    assert len(by_task) >= 4
    assert set(by_task) <= set(TASKS.train_tasks)


def test_a_visit_starts_with_a_reset_row_and_new_episodes():
    stage = Stage()
    stage.actor.start(0)
    for slot in stage.act(0, 1, 2):
        assert not slot["valid"][0].any()
        assert not (slot["terminated"][0] | slot["truncated"][0]).any()
        assert (slot["observation"][1] == 0).all()  # the point robot starts at 0
        assert slot["valid"][1:EPISODE].all()
        assert not slot["valid"][EPISODE].any()


@pytest.mark.parametrize("parts", [1, 5, 14])
def test_z_is_drawn_at_each_start_of_an_episode_and_where_the_posterior_begins(parts):
    stage = Stage(parts=parts)
    stage.actor.start(0)
    stage.act(*range(parts))
    z = stage.rows_of_z()  # of rows 1 .. of the visit
    drawn = [row for row in range(2, VISIT) if (z[row - 1] != z[row - 2]).any()]
    starts = [1 + EPISODE * number for number in range(1, 4)]
    assert drawn == sorted({*starts, CONFIG.prior_steps} & set(range(2, VISIT)))


def test_the_posterior_is_that_of_the_recorded_prior_rows_of_each_column():
    stage = Stage(parts=7)
    stage.actor.start(0)
    slots = stage.act(*range(7))
    rows = {name: np.concatenate([slot[name][:-1] for slot in slots]) for name in ("action", "reward", "valid")}
    seen = [np.concatenate([slot["observation"][part] for slot in slots]) for part in (slice(-1), slice(1, None))]
    policy = make_policy(stage.policy.spec)
    policy.load(stage.vector)
    expected = TaskInference(policy, COLUMNS)
    for row in range(CONFIG.prior_steps):
        now, following = ({"observation": part[row]} for part in seen)
        expected.observe(now, rows["action"][row], rows["reward"][row], following, rows["valid"][row])
    found = TaskInference(policy, COLUMNS)
    found.restore(stage.snapshot()["policies"][0]["inference"])
    assert found.context_sizes.tolist() == [CONFIG.prior_steps - 2] * COLUMNS
    for one, other in zip(found.posterior(), expected.posterior(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_tickets_of_a_visit_continue_its_episodes():
    stage = Stage(parts=14)
    stage.actor.start(0)
    slots = stage.act(*range(28))
    lengths = np.concatenate([slot["episode_length"][:-1] for slot in slots])
    assert set(lengths[lengths > 0].tolist()) == {EPISODE - 1}
    assert [bool(slot["valid"][0].any()) for slot in slots].count(False) >= 2
    for visit in range(2):
        assert len({int(slot[TASK][0]) for slot in slots[14 * visit : 14 * visit + 14]}) == 1


@pytest.mark.parametrize(("before", "groups"), [(1, 1), (3, 3), (5, 1), (7, 3)])
def test_a_snapshot_within_a_visit_continues_bit_for_bit(before, groups):
    whole, stopped, resumed = (Stage(parts=5, groups=groups) for _ in range(3))
    whole.actor.start(0)
    expected = whole.act(*range(12))[before:]
    stopped.actor.start(0)
    stopped.act(*range(before))
    resumed.actor.restore(stopped.snapshot())
    for one, other in zip(resumed.act(*range(before, 12)), expected, strict=True):
        assert {name: array.tobytes() for name, array in one.items()} == {
            name: array.tobytes() for name, array in other.items()
        }


def test_an_actor_that_starts_within_a_visit_is_in_its_task_without_the_lost_context():
    stage = Stage(parts=5)
    stage.actor.start(3, cut=True)
    slots = stage.act(3, 4, 5)
    assert [int(slot[TASK][0]) for slot in slots] == [task_of_visit(TASKS, visit) for visit in (0, 0, 1)]
    np.testing.assert_allclose(goals(slots[0])[0], goals(slots[1])[0], atol=1e-2)
    assert not slots[0]["valid"][0].any()


def test_a_snapshot_does_not_change_while_its_actor_acts_on():
    stage = Stage(parts=35)
    stage.actor.start(0)
    stage.act(*range(11))  # the next row starts an episode
    state = stage.snapshot()
    before = deepcopy(state)
    stage.act(11)
    np.testing.assert_equal(state, before)


def test_the_context_has_the_rows_before_the_posterior_except_reset_rows():
    stage = Stage(prior_rows=CONFIG.prior_steps + 3)
    stage.actor.start(0)
    stage.act(0)
    resets = 3  # rows 0, 21 and 42
    assert stage.context_sizes() == [stage.visits.prior_rows - resets] * COLUMNS


def test_each_visit_starts_with_an_empty_context():
    stage = Stage()
    stage.actor.start(0)
    for visit in range(2):
        stage.act(visit)
        assert stage.context_sizes() == [CONFIG.prior_steps - 2] * COLUMNS
