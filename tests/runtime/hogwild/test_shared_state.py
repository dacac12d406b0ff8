"""Everything that changes when an update is made is shared: another learner goes on where one stopped, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.env_rows import assert_same
from tests.support.thorough import thorough

from offbeat.config.registry import algorithm_entry
from offbeat.config.resolve import resolve
from offbeat.core.types import Tree
from offbeat.envs.call_watch import UNWATCHED
from offbeat.memory.arena import attach, private_arena
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.timings import Timings
from offbeat.models.published import published_layout
from offbeat.models.storage import PrivateStorage, Storage
from offbeat.runtime.assembly import learner_of
from offbeat.runtime.hogwild.parts import HogwildParts, build_hogwild
from offbeat.runtime.hogwild.shared_state import SharedStorage
from offbeat.runtime.make_actor import make_actor, start_actor
from offbeat.workers.actor import Actor
from offbeat.workers.learner import Learned, Learner

# --- learners that stand in for each other ------------------------------------------------------------------

ON_POLICY: dict[str, Any] = {"envs_per_actor": 3, "unroll_length": 8, "hidden_sizes": (7,)}
ON_A_REPLAY: dict[str, Any] = {
    "envs_per_actor": 2, "chunk_length": 4, "warmup": 64, "batch_size": 16, "capacity": 400, "hidden_sizes": (7, 5),
}  # fmt: skip


class Case(NamedTuple):
    algorithm: str
    env: str
    settings: dict[str, Any]
    changed: set[str]
    """Of what is shared: what must change, as far as the rest of this is not of one group's values and moments."""


def adam(group: str) -> set[str]:
    return {f"{group}/{name}" for name in ("values", "step", "exp_avg", "exp_avg_sq")}


SOFT = adam("critic") | adam("policy") | adam("temperature") | {"ema_critics", "uniform"}
CROSSED = adam("critic") | adam("policy") | adam("temperature") | {"critic_moments", "critic_moment_updates", "uniform"}
DELAYED = adam("critic") | adam("policy") | {"ema_critics", "ema_policy", "uniform"}
CASES = [
    Case("a2c", "CartPole-v1", {**ON_POLICY, "unrolls_per_batch": 2}, adam("actor_critic")),
    Case(
        "ppo",
        "Pendulum-v1",
        {
            **ON_POLICY,
            "epochs": 2,
            "minibatch_size": 8,
            "learning_rate_schedule": "kl",
            "kl_target": 1e-9,
            "normalize_observations": False,  # statistics belong to the workers
            "normalize_returns": False,
        },
        adam("actor_critic") | {"learning_rate"},
    ),
    Case("sac", "Pendulum-v1", {**ON_A_REPLAY, "policy_delay": 3}, SOFT),
    Case("sac", "CartPole-v1", ON_A_REPLAY, SOFT),
    Case("td3", "Pendulum-v1", ON_A_REPLAY, DELAYED),
    Case("crossq", "Pendulum-v1", ON_A_REPLAY, CROSSED),
    Case("dqn", "CartPole-v1", {**ON_A_REPLAY, "ema_every": 3}, adam("q") | {"ema_q", "epsilon", "updates"}),
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.algorithm}-{case.env}")
separately = pytest.mark.parametrize("hogwild", ["shared", "synced"])


class Side(NamedTuple):
    algorithm: Any
    learner: Learner


class Bench:
    """One memory, that one actor writes, and learners that all learn from it."""

    def __init__(self, parts: HogwildParts) -> None:
        self.parts, self.plan = parts, parts.plans[0]
        self._config = parts.config.of_worker(0)
        self._arrays = attach(parts.worker_arenas[0].fd, self.plan.slabs())
        self._memory = self.plan.memory(self._arrays)
        self.actor: Actor = make_actor(self.plan, 0, 0, UNWATCHED)
        start_actor(self.plan, self.actor, 0, None, 0.0)

    def shared(self, worker: int | None) -> Side:
        """Return a worker's learner, or an onlooker, on a mapping of its own of what is shared."""
        return self._side(self.storage(worker), self._memory.policies[0][1])

    def storage(self, worker: int | None) -> SharedStorage:
        shape = self.parts.shared_state
        return SharedStorage(shape, attach(self.parts.state_arena.fd, shape.slabs()), worker)

    def private(self) -> Side:
        """Return a learner that shares nothing but the rows."""
        slabs = weight_slabs(published_layout(self.parts.policy.spec).size, self.plan.pace.versions)
        return self._side(PrivateStorage(), Weights(private_arena(slabs)))

    def _side(self, storage: Storage, weights: Weights) -> Side:
        entry = algorithm_entry(self._config.run.algorithm)
        algorithm = entry.algorithm_class().for_run(self._config, self.parts.policy.spec, "cpu", storage)
        slots, _ = self._memory.policies[0]
        return Side(algorithm, learner_of(self._config, algorithm, slots, weights, Timings()))

    def act(self, step: int) -> None:
        """Act the tickets of a learning step, with what was published last by a worker."""
        for ticket in self.plan.pace.tickets_of(step):
            self.actor.act(self._memory.work(ticket, step))

    def close(self) -> None:
        self.actor.close()
        self.parts.close()


@contextmanager
def bench(case: Case, **settings: Any) -> Iterator[Bench]:
    flags = {**case.settings, **settings, "runtime": "hogwild", "workers": 2, "seed": 3}
    made = Bench(build_hogwild(resolve(case.algorithm, case.env, flags=flags), print))
    try:
        yield made
    finally:
        made.close()


STEPS = 12
"""Learning steps: on a replay, the warm-up of 64 / 2 transitions is over after the fourth."""


def all_of(side: Side) -> Tree:
    """Return all that a learner keeps from one update to the next, but for the normalisers."""
    state = side.learner._updates.state()
    moments = {f"{group}/{name}": array.copy() for group in state for name, array in state[group].items()}
    weights = {name: array.copy() for name, array in side.algorithm.weights().items()}
    rate = side.algorithm.state().get("learning_rate")
    return {**weights, **moments, **({} if rate is None else {"learning_rate": np.array(rate)})}


def metrics_of(learned: Learned) -> dict[str, float]:
    """Return what a learning step reports, but for the ages of rows: those that were taken over count as new."""
    return {name: value for name, value in learned.metrics.items() if not name.startswith("sample_age")}


def replace_worker(left: Side, right: Side, step: int) -> None:
    """Let another worker go on at `step` with the memory of one that is no more."""
    made = getattr(left.learner.feed, "run_updates", 0)
    right.learner.feed.recover(step, left.learner.feed.ratio(made), made)
    right.learner.publish(step)


@cases
@separately
def test_a_second_worker_continues_from_the_shared_state_bit_for_bit(case, hogwild):
    with bench(case, hogwild=hogwild) as made:
        alone, first, second, onlooker = made.private(), made.shared(0), made.shared(1), made.shared(None)
        shared_state = made.storage(None)
        before = {name: array.copy() for name, array in shared_state.learned().items()}
        alone.learner.publish(0)
        first.learner.publish(0)
        updates, now = 0, first
        for step in range(STEPS):
            if step in (STEPS // 2, STEPS - 2):
                now, left = (second, first) if now is first else (first, second)
                replace_worker(left, now, step)
            made.act(step)
            expected, learned = (side.learner.learn(step, step / STEPS) for side in (alone, now))
            assert_same(all_of(onlooker), all_of(alone))
            assert_same(all_of(now), all_of(alone))
            assert learned.updates == expected.updates
            assert metrics_of(learned) == metrics_of(expected)
            updates += learned.updates
        changed = {name for name, array in shared_state.learned().items() if (array != before[name]).any()}
    assert updates > STEPS / 2
    assert changed == case.changed, "and of what is shared, all has changed"


@cases
@pytest.mark.parametrize("hogwild", ["synced", *thorough("shared")])
def test_workers_with_separate_moments_share_all_other_state(case, hogwild):
    with bench(case, hogwild=hogwild, hogwild_moments="per_worker") as made:
        first, second, onlooker = made.shared(0), made.shared(1), made.shared(None)
        first.learner.publish(0)
        for step in range(STEPS - 1):
            made.act(step)
            first.learner.learn(step, step / STEPS)
        untouched = all_of(made.private())
        moments = {name for name in untouched if name.rpartition("/")[2] in ("step", "exp_avg", "exp_avg_sq")}
        assert moments == {name for name in case.changed if not name.endswith("/values")} & moments != set()
        replace_worker(first, second, STEPS - 1)
        for side in (second, onlooker):
            for name, array in all_of(side).items():
                wanted = untouched if name in moments else all_of(first)
                np.testing.assert_array_equal(array, wanted[name], err_msg=name)
        assert not moments & set(made.storage(None).learned())
        kept = {name: array for name, array in all_of(first).items() if name in moments}
        made.act(STEPS - 1)
        second.learner.learn(STEPS - 1, 1.0)
        own = {name: array for name, array in all_of(second).items() if name.endswith("/step")}
        assert all(0 < array < kept[name] for name, array in own.items())
        assert_same({name: array for name, array in all_of(first).items() if name in moments}, kept)
