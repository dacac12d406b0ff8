from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.memory.arena import private_arena
from offbeat.memory.weights import Weights, weight_slabs


def weights_of(size: int, kept: int) -> Weights:
    return Weights(private_arena(weight_slabs(size, kept)))


def publish(weights: Weights, version: int) -> None:
    weights.open(version)[:] = version
    weights.commit(version)


@examples(60)
@given(st.integers(1, 5), st.integers(0, 12))
def test_the_newest_versions_are_stored_and_a_read_returns_exactly_its_version(kept, newest):
    weights = weights_of(3, kept)
    for version in range(newest + 1):
        publish(weights, version)
    expected = range(max(0, newest - kept + 1), newest + 1)
    assert list(weights.versions()) == list(expected)
    for version in range(newest + 2 * kept + 1):
        if version in expected:
            assert (weights.read(version) == version).all()
            assert (weights.versions()[version] == version).all()
        else:
            with pytest.raises(KeyError, match=f"version {version} is not available"):
                weights.read(version)


def test_an_unpublished_version_cannot_be_read():
    weights = weights_of(3, 2)
    assert weights.versions() == {}
    with pytest.raises(KeyError):
        weights.read(0)


def test_while_a_version_is_written_neither_it_nor_the_replaced_one_can_be_read():
    weights = weights_of(3, 2)
    publish(weights, 4)
    publish(weights, 5)
    weights.open(6)[0] = 6
    for version in (4, 6):
        with pytest.raises(KeyError):
            weights.read(version)
    assert list(weights.versions()) == [5]
    weights.commit(6)
    assert list(weights.versions()) == [5, 6]


def test_read_vectors_are_views_and_not_copies():
    weights = weights_of(3, 2)
    publish(weights, 1)
    assert np.shares_memory(weights.read(1), weights.open(1))
