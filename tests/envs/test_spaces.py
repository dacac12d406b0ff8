"""From spaces to specs and back to what envs accept. What adapters do with them is in test_contract.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.core.errors import ConfigError
from offbeat.core.types import ActionSpec, Leaf
from offbeat.envs.actions import action_encoder, random_actions, split_columns
from offbeat.envs.observations import observation_leaves
from offbeat.envs.spaces import action_spec
from offbeat.envs.writers import observation_writer

COIN = ActionSpec("discrete", (), nvec=(2,))

choices = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3)),
    st.builds(
        lambda nvec, start: spaces.MultiDiscrete(nvec, start=[start] * len(nvec)),
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.integers(-2, 2),
    ),
    st.just(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), dtype=np.int32)),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
)
boxes = st.sampled_from(
    [
        spaces.Box(-2, 1, (2,), np.float32),
        spaces.Box(-np.inf, np.inf, (), np.float32),
        spaces.Box(0, np.inf, (1, 3), np.float64),
    ]
)
trees = st.recursive(
    choices | boxes,
    lambda parts: (
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.sampled_from("abc"), parts, min_size=1, max_size=3).map(spaces.Dict)
    ),
    max_leaves=6,
)


# --- actions ------------------------------------------------------------------------------------------------


@examples(150)
@given(trees, st.integers(0, 2**32 - 1))
def test_random_actions_are_in_their_space_for_single_columns_and_batches(space, seed):
    spec = action_spec(space, "Test-v0")
    recorded = random_actions(spec, 3, np.random.default_rng(seed))
    assert recorded.shape == (3, *spec.shape)
    assert recorded.dtype == ("float64" if spec.has_float64 else spec.dtype)
    batch = action_encoder(spec)(recorded)
    columns = list(split_columns(spec, batch))
    assert len(columns) == 3
    for action in columns:
        assert space.contains(action), f"{action!r} is not in {space}"
    for column, action in enumerate(gym.vector.utils.iterate(gym.vector.utils.batch_space(space, 3), batch)):
        assert list(leaves_of(action)) == list(leaves_of(columns[column]))


def leaves_of(action: Any) -> Iterator[Any]:
    """Yield dtype and numbers of each part."""
    if isinstance(action, dict | tuple):
        for part in action.values() if isinstance(action, dict) else action:
            yield from leaves_of(part)
    else:
        yield np.asarray(action).dtype, np.asarray(action).tolist()


@examples(60)
@given(trees, st.integers(0, 2**32 - 1))
def test_every_recorded_number_of_an_action_sets_exactly_one_number_of_the_env_action(space, seed):
    """A choice moved by one, or a number of a box halved, shows in one number of the action, and in nothing else."""
    spec, random = action_spec(space, "Test-v0"), np.random.default_rng(seed)
    recorded = random_actions(spec, 1, random)
    before = [number for _, part in leaves_of(action_encoder(spec)(recorded)) for number in np.ravel(part).tolist()]
    flat = recorded.reshape(-1)
    for place in range(spec.size):
        kept = flat[place]
        flat[place] += 1
        after = [number for _, part in leaves_of(action_encoder(spec)(recorded)) for number in np.ravel(part).tolist()]
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
        flat[place] = kept


def test_a_mixed_action_has_discrete_choices_first_and_box_numbers_last():
    box, deep = spaces.Box(-2, 1, (2,), np.float32), spaces.Box(0, np.inf, (1,), np.float64)
    space = spaces.Dict(
        {"aim": box, "gear": spaces.Discrete(3, start=1), "tools": spaces.Tuple((spaces.MultiBinary(2), deep))}
    )
    spec = action_spec(space, "Test-v0")
    assert (spec.kind, spec.shape, spec.dtype, spec.nvec) == ("mixed", (6,), "float32", (3, 2, 2))
    assert (spec.low, spec.high) == ((-2, -2, 0), (1, 1, np.inf))
    [action] = split_columns(spec, action_encoder(spec)(np.array([[2, 0, 1, -1.5, 0.5, 9]], np.float32)))
    assert list(action) == ["aim", "gear", "tools"]
    assert action["aim"].tolist() == [-1.5, 0.5]
    assert action["gear"] == 3
    switches, number = action["tools"]
    assert (switches.tolist(), switches.dtype, number.tolist(), number.dtype) == ([0, 1], np.int8, [9], np.float64)


def test_actions_at_bounds_that_float32_rounds_are_in_a_space_of_float64():
    space = spaces.Box(np.array([-0.1, 0.7]), np.array([0.1, np.inf]), dtype=np.float64)
    actions = action_encoder(action_spec(space, "Test-v0"))(np.array([[-0.1, 0.7], [0.1, 3]], np.float32))
    assert actions.tolist() == [[-0.1, 0.7], [0.1, 3]]
    assert all(map(space.contains, actions))


def test_random_actions_of_float64_far_from_0_are_spread_over_their_space():
    space = spaces.Box(1e9, 1e9 + 1, (1,), np.float64)
    for part in (space, spaces.Dict({"far": space, "gear": spaces.Discrete(2)})):
        drawn = random_actions(action_spec(part, "Test-v0"), 100, np.random.default_rng(0))
        assert len(np.unique(drawn[:, -1])) == 100


@pytest.mark.parametrize("empty", [spaces.Box(-1, 1, (0,)), spaces.MultiDiscrete([])])
def test_empty_actions_are_refused(empty):
    for space in (empty, spaces.Tuple((spaces.Discrete(2), empty))):
        with pytest.raises(ConfigError, match=r"Test-v0 has actions of .*, which is empty: leave it out"):
            action_spec(space, "Test-v0")


def test_the_largest_number_of_float32_is_no_bound():
    spec = action_spec(spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (1,)), "Test-v0")
    assert (spec.low, spec.high) == ((-np.inf,), (np.inf,))


def test_bounds_too_large_for_float32_are_none():
    largest = float(np.finfo(np.float64).max)
    space = spaces.Box(np.array([-largest, -1e300, -3e38]), np.array([largest, 1, 3e38]), dtype=np.float64)
    spec = action_spec(space, "Test-v0")
    assert (spec.low, spec.high) == ((-np.inf, -np.inf, -3e38), (np.inf, 1, 3e38))
    [action] = action_encoder(spec)(random_actions(spec, 1, np.random.default_rng(0)))
    assert space.contains(action)


# --- observations -------------------------------------------------------------------------------------------


@examples(150)
@given(trees, st.integers(0, 2**31 - 1), st.booleans())
def test_an_observation_is_stored_unchanged_with_discrete_values_counted_from_0(space, seed, batched):
    leaves = observation_leaves(space, "Test-v0", COIN)
    space.seed(seed)
    samples = [space.sample() for _ in range(2)]
    batch: Any = gym.vector.utils.create_empty_array(space, 2)
    observation = gym.vector.utils.concatenate(space, samples, batch) if batched else samples[0]
    lead = (2,) if batched else ()
    targets = [np.zeros((*lead, *leaf.shape), leaf.dtype) for leaf in leaves]
    observation_writer(space, leaves, targets)(observation)
    for sample, column in zip(samples[: 2 if batched else 1], ([0], [1]), strict=False):
        kept = [target[tuple(column)] if batched else target for target in targets]
        parts = [np.array(numbers) for _, numbers in leaves_of(sample)]
        for leaf, target, part in zip(leaves, kept, parts, strict=True):
            start = np.array(leaf.start).reshape(leaf.shape) if leaf.start else 0
            np.testing.assert_array_equal(target, (part - start).astype(leaf.dtype), err_msg=leaf.name)
            if leaf.choices:
                assert (target >= 0).all()
                assert (target.reshape(-1) < leaf.choices).all()


@pytest.mark.parametrize(("count", "dtype"), [(2, "uint8"), (256, "uint8"), (257, "int16"), (40_000, "int32")])
def test_discrete_values_are_stored_in_the_smallest_dtype(count, dtype):
    [leaf] = observation_leaves(spaces.Discrete(count, start=-1), "Test-v0", COIN)
    assert leaf == Leaf("observation", (), dtype, (count,), (-1,))
    assert leaf.inputs == count


def test_leaves_are_named_by_keys_and_indices():
    inner = spaces.Dict({"b": spaces.MultiBinary((2, 2)), "a": spaces.Box(-1, 1, (3,), np.float64)})
    leaves = observation_leaves(spaces.Tuple((spaces.MultiDiscrete([2, 3]), inner)), "Test-v0", COIN)
    assert leaves == (
        Leaf("observation/0", (2,), "uint8", (2, 3)),
        Leaf("observation/1/a", (3,), "float32"),
        Leaf("observation/1/b", (2, 2), "uint8", (2, 2, 2, 2)),
    )
