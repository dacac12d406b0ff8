"""What is learned, on a block that several learners share, each with its own mapping of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.models import actor_critic, policy_spec
from tests.support.thorough import examples

from offbeat.memory.arena import SharedArena, attach
from offbeat.models.flat import FlatAdam, FlatParameters
from offbeat.models.normalize import RunningStatistics
from offbeat.models.storage import PrivateStorage
from offbeat.runtime.hogwild.shared_state import SharedStateShape, SharedStorage, write_initial

GROUP = "group"
SPEC = policy_spec("box", hidden_sizes=(7, 5))


class SharedState:
    """Shared state, and storages on mappings of their own."""

    def __init__(self, *, workers: int = 2, separate: bool = False, share_moments: bool = True) -> None:
        made = PrivateStorage()
        FlatAdam(FlatParameters(actor_critic(SPEC), GROUP, made), 1e-5)
        made.statistics("rows", 3)
        self.shape = SharedStateShape.of(made, workers=workers, separate=separate, share_moments=share_moments)
        self.arena = SharedArena(self.shape.slabs())
        write_initial(self.arena.arrays, made)

    def storage(self, worker: int | None) -> SharedStorage:
        return SharedStorage(self.shape, attach(self.arena.fd, self.shape.slabs()), worker)


@pytest.fixture
def shared_state(request) -> Iterator[SharedState]:
    made = SharedState(**getattr(request, "param", {}))
    yield made
    made.arena.close()


def given_settings(*each: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("shared_state", each, indirect=True, ids=str)


def learner(shared_state: SharedState, worker: int | None, seed: int = 0) -> tuple[FlatParameters, FlatAdam]:
    """Return a learner's parameters and optimizer; what it was made with does not count, but what is shared does."""
    flat = FlatParameters(actor_critic(SPEC, seed=seed), GROUP, shared_state.storage(worker))
    return flat, FlatAdam(flat, 1e-5)


def gradient(seed: int, size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def private(seeds: list[int]) -> tuple[FlatParameters, FlatAdam]:
    """Return what the steps of these seeds make of the parameters without anything shared."""
    flat = FlatParameters(actor_critic(SPEC), GROUP)
    adam = FlatAdam(flat, 1e-5)
    for seed in seeds:
        step(flat, adam, seed)
    return flat, adam


def step(flat: FlatParameters, adam: FlatAdam, seed: int) -> None:
    flat.gradients.copy_(gradient(seed, flat.layout.size))
    adam.step(0.01)


# --- parameters ---------------------------------------------------------------------------------------------


@given_settings({"separate": False}, {"separate": True})
def test_learners_start_with_the_shared_parameters_and_read_each_others_steps(shared_state):
    one, two = learner(shared_state, 0), learner(shared_state, 1, seed=9)
    expected = private([])[0]
    for flat, _ in (one, two):
        np.testing.assert_array_equal(flat.values, expected.values)
    step(*one, seed=1)
    two[0].pull()
    step(*two, seed=2)
    one[0].pull()
    expected = private([1, 2])[0]
    for flat, _ in (one, two):
        np.testing.assert_array_equal(flat.values, expected.values)
        np.testing.assert_array_equal(flat.master, expected.values)


@given_settings({"separate": True})
def test_a_local_copy_changes_only_by_pull_and_own_steps_which_update_the_shared_parameters(shared_state):
    (one, _), two = learner(shared_state, 0), learner(shared_state, 1)
    before = one.values.clone()
    step(*two, seed=1)
    np.testing.assert_array_equal(one.values, before)
    assert (one.master != before).any()
    one.pull()
    np.testing.assert_array_equal(one.values, two[0].values)
    assert all(parameter.data_ptr() != two[0].master.data_ptr() for parameter in one.arrays().values())


@given_settings({"separate": True})
def test_the_module_computes_outputs_and_gradients_with_its_local_copy(shared_state):
    model = actor_critic(SPEC)
    flat = FlatParameters(model, GROUP, shared_state.storage(0))
    observation = torch.ones(1, 3)
    before = model.value(observation).detach().clone()
    flat.master.add_(1.0)
    assert torch.equal(model.value(observation), before)
    model.value(observation).sum().backward()
    assert flat.gradients.any()
    flat.pull()
    assert not torch.equal(model.value(observation), before)


@given_settings({"separate": False}, {"separate": True})
def test_a_reader_that_does_not_learn_has_no_local_copy(shared_state):
    (onlooker, _), one = learner(shared_state, None), learner(shared_state, 0)
    step(*one, seed=1)
    np.testing.assert_array_equal(onlooker.values, one[0].master)


@given_settings({"separate": False}, {"separate": True})
def test_steps_on_shared_parameters_have_the_bits_of_steps_on_private_ones(shared_state):
    flat, adam = learner(shared_state, 0)
    for seed in range(30):
        step(flat, adam, seed)
    expected = private(list(range(30)))
    np.testing.assert_array_equal(flat.values, expected[0].values)
    for name, tensor in adam.state_tensors().items():
        np.testing.assert_array_equal(tensor, expected[1].state_tensors()[name])


# --- moments ------------------------------------------------------------------------------------------------


@given_settings({"share_moments": True})
def test_shared_adam_moments_include_the_steps_of_all_learners(shared_state):
    one, two = learner(shared_state, 0), learner(shared_state, 1)
    for seed in range(6):
        step(*(one, two)[seed % 2], seed)
    expected = private(list(range(6)))
    np.testing.assert_array_equal(one[0].values, expected[0].values)
    for adam in (one[1], two[1]):
        for name, tensor in adam.state_tensors().items():
            np.testing.assert_array_equal(tensor, expected[1].state_tensors()[name])


@given_settings({"share_moments": False})
def test_separate_adam_moments_include_only_the_steps_of_one_learner(shared_state):
    one, two = learner(shared_state, 0), learner(shared_state, 1)
    for seed in range(6):
        step(*(one, two)[seed % 2], seed)
    for (_, adam), seeds in ((one, [0, 2, 4]), (two, [1, 3, 5])):
        for name, tensor in adam.state_tensors().items():
            np.testing.assert_array_equal(tensor, private(seeds)[1].state_tensors()[name])
    np.testing.assert_array_equal(one[0].values, two[0].values)
    assert not [name for name in shared_state.storage(None).learned() if "exp_avg" in name or "step" in name]


def test_learned_arrays_can_be_copied_and_restored(shared_state):
    one = learner(shared_state, 0)
    step(*one, seed=1)
    onlooker = shared_state.storage(None)
    taken = {name: array.copy() for name, array in onlooker.learned().items()}
    assert sorted(taken) == [f"{GROUP}/{name}" for name in ("exp_avg", "exp_avg_sq", "step", "values")]
    step(*one, seed=2)
    onlooker.load(taken)
    np.testing.assert_array_equal(one[0].values, private([1])[0].values)
    assert float(one[1].state_tensors()["step"]) == 1


# --- statistics ---------------------------------------------------------------------------------------------


def assert_same(one: RunningStatistics, other: RunningStatistics, within: float = 0) -> None:
    for name, value in one.state().items():
        np.testing.assert_allclose(value, other.state()[name], rtol=within, atol=within, err_msg=name)


@examples(60)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 50), min_size=1, max_size=5), st.sampled_from([0.0, 1e3]))
def test_merged_statistics_equal_those_of_all_rows(seed, sizes, offset):
    random = np.random.default_rng(seed)
    parts = [random.normal(size=(size + 1, 3)) + offset for size in sizes]
    merged = RunningStatistics(3)
    for part in parts:
        merged.merge(len(part), part.mean(axis=0), ((part - part.mean(axis=0)) ** 2).sum(axis=0))
    rows = np.concatenate(parts)
    assert merged.count == len(rows)
    np.testing.assert_allclose(merged.mean, rows.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(merged.variance, rows.var(axis=0), rtol=1e-9, atol=1e-9)


@given_settings({"workers": 1}, {"workers": 3}, {"workers": 5})
def test_statistics_shared_by_several_writers_equal_those_of_one_writer_with_all_rows(shared_state):
    workers, random = shared_state.shape.workers, np.random.default_rng(0)
    writers = [shared_state.storage(worker).statistics("rows", 3) for worker in range(workers)]
    whole = RunningStatistics(3)
    for number in range(20):
        rows = random.normal([1.0, -50.0, 0.0], [1.0, 3.0, 1e-3], (random.integers(1, 9), 3))
        writers[random.integers(workers) if number else 0].update(rows)
        whole.update(rows)
    onlooker = shared_state.storage(None).statistics("rows", 3)
    restored = RunningStatistics(3)
    restored.restore(onlooker.state())
    assert_same(restored, whole, within=1e-12)
    for statistics in (*writers, onlooker):
        for ours, expected in zip(statistics.published(), whole.published(), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-6)


@given_settings({"workers": 1})
def test_shared_statistics_of_one_writer_have_the_bits_of_private_ones(shared_state):
    random, whole = np.random.default_rng(0), RunningStatistics(3)
    shared, onlooker = shared_state.storage(0).statistics("rows", 3), shared_state.storage(None).statistics("rows", 3)
    for _ in range(20):
        rows = random.normal(7.0, 3.0, (random.integers(1, 9), 3))
        shared.update(rows)
        whole.update(rows)
        assert_same(shared, whole)
        for ours, theirs, expected in zip(shared.published(), onlooker.published(), whole.published(), strict=True):
            np.testing.assert_array_equal(ours, expected)
            np.testing.assert_array_equal(theirs, expected)


def test_a_restarted_writer_of_statistics_continues_with_its_earlier_rows(shared_state):
    random, whole = np.random.default_rng(0), RunningStatistics(3)
    for worker in (0, 1, 0):  # each time another object, as another process has one
        rows = random.normal(size=(6, 3))
        shared_state.storage(worker).statistics("rows", 3).update(rows)
        whole.update(rows)
    assert shared_state.storage(None).statistics("rows", 3).state()["count"] == 18
    for ours, expected in zip(
        shared_state.storage(None).statistics("rows", 3).published(), whole.published(), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_the_state_of_a_writer_is_its_own_part_and_the_initial_statistics_are_the_first_writers(shared_state):
    rows = np.random.default_rng(0).normal(size=(8, 3))
    begun = RunningStatistics(3)
    begun.update(rows)
    shared_state.storage(None).initialize_statistics({"rows": begun.state()})
    one, two = (shared_state.storage(worker).statistics("rows", 3) for worker in range(2))
    assert [statistics.state()["count"] for statistics in (one, two)] == [8, 0]
    two.update(rows)
    assert [statistics.state()["count"] for statistics in (one, two)] == [8, 8]
    two.restore(begun.state())
    assert shared_state.storage(None).statistics("rows", 3).state()["count"] == 16


def test_non_finite_rows_do_not_enter_shared_statistics(shared_state):
    statistics = shared_state.storage(0).statistics("rows", 3)
    statistics.update(np.ones((2, 3)))
    statistics.update(np.full((2, 3), np.nan))
    assert shared_state.storage(None).statistics("rows", 3).state()["count"] == 2
