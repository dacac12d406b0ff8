from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.replay import SlowPriorities
from tests.support.goodness_of_fit import chi_square
from tests.support.thorough import examples

from offbeat.memory.replay.priorities import Exponents, PrioritizedSampler, SumTree


class NarrowTree(SumTree):
    """Many levels over few leaves."""

    FAN = 2
    TOP = 3


trees = st.sampled_from([SumTree, NarrowTree])
seeds = st.integers(0, 2**32 - 1)


def levels_of(tree: SumTree) -> list[list[float]]:
    return [level.reshape(-1).tolist() for level in tree._levels]


def slow_levels(leaves: list[float], fan: int, top: int) -> list[list[float]]:
    """Sums of `fan` neighbours, level by level."""
    levels = [leaves + [0.0] * (-len(leaves) % fan)]
    while len(levels[-1]) > top:
        below = levels[-1]
        above = [sum(below[i : i + fan]) for i in range(0, len(below), fan)]
        levels.append(above + [0.0] * (-len(above) % fan))
    return levels


def slow_find(leaves: list[float], share: float) -> int:
    """The first leaf at which the running sum exceeds the target; the last one above 0 if none does."""
    target = share * sum(leaves)
    passed = [i for i, total in enumerate(accumulate(leaves)) if total > target]
    return passed[0] if passed else max(i for i, leaf in enumerate(leaves) if leaf > 0)


def changed(tree: SumTree, leaves: list[float], random: np.random.Generator) -> None:
    """Change some leaves of both, in one of both ways; whole numbers, so that all sums are exact."""
    size = len(leaves)
    if random.random() < 0.5:
        where = random.integers(size, size=random.integers(1, 9))
        values = random.integers(0, 1000, len(where)).astype(np.float64) * (random.random(len(where)) < 0.7)
        tree.set(where, values)
        for place, value in zip(where.tolist(), values.tolist(), strict=True):
            leaves[place] = value
    else:
        first = int(random.integers(size))
        values = random.integers(0, 1000, random.integers(1, size - first + 1)).astype(np.float64)
        tree.fill(first, values)
        leaves[first : first + len(values)] = values.tolist()


@examples(80)
@given(kind=trees, size=st.integers(1, 300), seed=seeds)
def test_a_sum_tree_stores_prefix_sums_and_finds_the_leaf_of_a_target(kind, size, seed):
    random = np.random.default_rng(seed)
    tree, leaves = kind(size), [0.0] * size
    for _ in range(12):
        changed(tree, leaves, random)
    assert levels_of(tree) == slow_levels(leaves, kind.FAN, kind.TOP)
    if sum(leaves):
        shares = np.concatenate([random.random(20), [0.0, 1.0]])
        assert tree.find(shares).tolist() == [slow_find(leaves, share) for share in shares]


def test_a_sum_tree_of_three_levels_finds_each_leaf():
    tree = SumTree(200_000)
    assert len(levels_of(tree)) == 3
    leaves = np.zeros(200_000)
    where = np.random.default_rng(0).choice(200_000, 500, replace=False)
    leaves[where] = 1
    tree.fill(0, leaves)
    assert tree.find((np.arange(500) + 0.5) / 500).tolist() == sorted(where.tolist())


@pytest.mark.parametrize("kind", [SumTree, NarrowTree])
def test_the_sums_of_a_tree_are_exact_after_thousands_of_updates(kind):
    random = np.random.default_rng(3)
    tree, size = kind(10_000), 10_000
    for _ in range(3_000):
        where = random.integers(size, size=random.integers(1, 64))
        tree.set(where, random.lognormal(0, 9, len(where)) * (random.random(len(where)) < 0.8))
        first = int(random.integers(size - 40))
        tree.fill(first, random.lognormal(0, 9, random.integers(1, 40)))
    anew = kind(size)
    anew.fill(0, tree.leaves)
    assert levels_of(tree) == levels_of(anew)
    below = tree._levels[-2].reshape(-1, kind.FAN)
    np.testing.assert_allclose(tree._levels[-1].reshape(-1)[: len(below)], below.sum(axis=1), rtol=1e-15)


@examples(150)
@given(kind=trees, size=st.integers(1, 200), seed=seeds)
def test_a_leaf_of_zero_is_never_found_despite_rounding(kind, size, seed):
    random = np.random.default_rng(seed)
    leaves = 10.0 ** random.uniform(-20, 20, size) * (random.random(size) < random.random())
    leaves[random.integers(size)] = 0.1
    tree = kind(size)
    tree.fill(0, leaves)
    below = np.cumsum(leaves) / leaves.sum()
    shares = np.concatenate([[0.0, 1.0], below, np.nextafter(below, 0), np.nextafter(below, 1)]).clip(0, 1)
    assert (leaves[tree.find(shares)] > 0).all()


@pytest.mark.parametrize(("kind", "size"), [(SumTree, 2 * SumTree.TOP), (NarrowTree, 4)])
def test_a_leaf_of_zero_is_not_found_where_a_target_less_the_sums_before_it_is_rounded_up(kind, size):
    leaves = np.zeros(size)
    leaves[0], leaves[-1] = 1.5, 2.0**52 + 2
    tree = kind(size)
    tree.fill(0, leaves)
    below = np.nextafter(leaves.sum(), 0)
    assert below - leaves[0] == leaves[-1], "in the last group, the target is the sum of the group"
    assert tree.find(np.ones(1)).tolist() == [size - 1]


def test_a_tree_can_be_rebuilt_from_its_leaves():
    tree, other = NarrowTree(50), NarrowTree(50)
    values = np.random.default_rng(0).random(50)
    tree.fill(0, values)
    other.leaves[:] = values
    other.rebuild()
    assert levels_of(other) == levels_of(tree)


# --- priorities ---------------------------------------------------------------------------------------------


def of_six(exponents: Exponents) -> PrioritizedSampler:
    """Six cells, of which two are invalid; the others have errors 1, -2, 0 and 5."""
    priorities = PrioritizedSampler(exponents, 8)
    priorities.enter(2, np.array([True, False, True, True, False, True]))
    priorities.update(np.array([2, 4, 5, 7]), np.array([1.0, -2.0, 0.0, 5.0], np.float32))
    return priorities


def test_a_priority_is_the_absolute_error_to_the_power_of_the_exponent():
    found = of_six(Exponents(0.5, 1)).view(range(8))
    expected = [0, 0, (1 + 1e-6) ** 0.5, 0, (2 + 1e-6) ** 0.5, 1e-3, 0, (5 + 1e-6) ** 0.5]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_new_rows_get_the_highest_priority_so_far_even_if_its_row_has_left():
    priorities = of_six(Exponents(1, 1))
    priorities.update(np.array([7]), np.array([0.5]))
    priorities.enter(0, np.array([True, False]))
    np.testing.assert_allclose(priorities.view(range(2)), [5 + 1e-6, 0])


def test_rows_that_leave_the_window_have_no_priority_and_are_not_counted():
    priorities = of_six(Exponents(1, 1))
    assert priorities.count == 4
    priorities.leave(2, np.array([True, False, True]))
    assert priorities.count == 2
    assert not priorities.view(range(5)).any()


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_rows_are_sampled_in_proportion_to_their_priorities(exponent):
    priorities, random = of_six(Exponents(exponent, 1)), np.random.default_rng(0)
    cells, counts = np.zeros(7, np.int64), np.zeros(8, np.int64)
    for _ in range(3_000):
        priorities.sample(random, cells)
        np.add.at(counts, cells, 1)
    expected = priorities.view(range(8)) / priorities.view(range(8)).sum() * counts.sum()
    assert counts[expected == 0].sum() == 0
    assert chi_square(counts[expected > 0], expected[expected > 0]) > 0.01


def test_exponent_zero_samples_all_valid_rows_uniformly():
    assert of_six(Exponents(0, 1)).view(range(8)).tolist() == [0, 0, 1, 0, 1, 1, 0, 1]


def test_sampling_is_stratified_over_equal_shares_of_the_sum():
    priorities = PrioritizedSampler(Exponents(1, 1), 4)
    priorities.enter(0, np.ones(4, bool))
    priorities.update(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]) - 1e-6)
    cells = np.zeros(10, np.int64)
    for seed in range(20):
        priorities.sample(np.random.default_rng(seed), cells)
        assert np.bincount(cells, minlength=4).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("importance", [0.0, 0.4, 1.0])
def test_importance_weights_equal_those_of_the_paper(importance):
    priorities = of_six(Exponents(0.6, importance))
    slow = SlowPriorities(0.6)
    slow.enter([2, 4, 5, 7])
    slow.update([2, 4, 5, 7], [1, -2, 0, 5])
    cells = [7, 2, 2, 4]
    weights = priorities.weights(np.array(cells))
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, slow.weights(cells, importance), rtol=1e-6)


def test_importance_exponent_1_removes_the_sampling_bias():
    priorities, random = of_six(Exponents(0.6, 1.0)), np.random.default_rng(1)
    value = np.array([0, 0, 3.0, 0, -1.0, 2.0, 0, 7.0])
    cells = np.zeros(40_000, np.int64)
    priorities.sample(random, cells)
    weights = priorities.weights(cells).astype(np.float64)
    assert (weights * value[cells]).sum() / weights.sum() == pytest.approx((3 - 1 + 2 + 7) / 4, rel=0.05)


@pytest.mark.parametrize("error", [np.nan, np.inf, -np.inf])
def test_a_non_finite_error_changes_no_priority(error):
    priorities = of_six(Exponents(0.6, 1))
    before = priorities.view(range(8)).copy(), priorities.highest
    with pytest.raises(ValueError, match="must be finite"):
        priorities.update(np.array([2, 4]), np.array([1.0, error]))
    np.testing.assert_array_equal(priorities.view(range(8)), before[0])
    assert priorities.highest == before[1]


def test_an_update_with_empty_errors_changes_no_priority():
    priorities = of_six(Exponents(0.6, 1))
    priorities.update(np.zeros(0, np.int64), np.zeros(0))
    assert priorities.count == 4
