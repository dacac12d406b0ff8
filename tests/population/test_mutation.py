from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.core.seeding import stream
from offbeat.population.mutation import Gene, Genome

SHARE = st.floats(0, 1, exclude_max=True)


@st.composite
def genes(draw: st.DrawFn) -> Gene:
    complement, whole = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    low = draw(st.integers(1, 50)) if whole else draw(st.floats(1e-6, 0.5))
    high = low + (draw(st.integers(1, 100)) if whole else draw(st.floats(1e-3, 0.49)))
    smallest = draw(st.floats(1.01, 2))
    return Gene(low, high, (smallest, smallest + draw(st.floats(0, 2))), complement, whole)


@given(genes(), SHARE, st.lists(st.tuples(st.booleans(), SHARE), max_size=30))
def test_a_value_stays_within_its_bounds_through_any_mutations(gene, start, steps):
    value = gene.at(start)
    for up, share in steps:
        assert gene.low <= value <= gene.high
        mutated = gene.mutated(value, up, share)
        assert mutated >= value if up else mutated <= value
        assert not gene.whole or mutated == int(mutated)
        value = mutated


@pytest.mark.parametrize(("share", "factor"), [(0.0, 1.1), (0.5, 1.3)])
def test_a_value_is_multiplied_or_divided_by_the_factor(share, factor):
    gene = Gene(1e-6, 1.0, (1.1, 1.5))
    assert gene.mutated(0.01, True, share) == pytest.approx(0.01 * factor, rel=1e-5)
    assert gene.mutated(0.01, False, share) == pytest.approx(0.01 / factor, rel=1e-5)


def test_a_discount_mutates_as_its_complement():
    gene = Gene(0.5, 0.9999, (2.0, 2.0), complement=True)
    assert gene.mutated(0.99, True, 0.0) == pytest.approx(0.995)
    assert gene.mutated(0.99, False, 0.0) == pytest.approx(0.98)
    assert gene.at(0.5) == pytest.approx(1 - math.sqrt(0.5 * 0.0001), rel=1e-5)


def test_a_small_whole_number_changes_by_one_at_least():
    gene = Gene(1, 10, (1.1, 1.1), whole=True)
    assert gene.mutated(2, True, 0.0) == 3
    assert gene.mutated(2, False, 0.0) == 1
    assert gene.mutated(10, True, 0.0) == 10


@given(st.integers(2, 40), st.integers(0, 1000))
def test_without_given_values_the_members_are_spread_over_the_whole_range(members, seed):
    genome = Genome({"a": Gene(1e-6, 1e-2), "b": Gene(0.9, 0.99, complement=True)}, 0.5)
    first = [genome.first(member, members, seed) for member in range(members)]
    for key, gene in genome.genes.items():
        spread = sorted(values[key] for values in first)
        assert spread == pytest.approx(sorted(gene.at(place / (members - 1)) for place in range(members)))
        assert (spread[0], spread[-1]) == pytest.approx((gene.low, gene.high))


def test_the_members_have_another_order_for_each_key_and_seed():
    genome = Genome({key: Gene(1e-6, 1e-2) for key in "abc"}, 0.5)
    first = [[genome.first(member, 20, seed) for member in range(20)] for seed in range(2)]
    assert len({tuple(values[key] for values in members) for members in first for key in "abc"}) == 6


def test_keys_are_mutated_with_the_given_probability_each():
    genome = Genome({key: Gene(1e-3, 1e3) for key in "abcdefgh"}, mutation_rate=0.3)
    before = dict.fromkeys("abcdefgh", 1.0)
    values = np.array([list(genome.mutated(before, stream(0, "test", trial)).values()) for trial in range(250)])
    assert np.mean(values != 1.0) == pytest.approx(0.3, abs=0.04)
    assert np.mean(values[values != 1.0] > 1.0) == pytest.approx(0.5, abs=0.06), "it grows as often as it shrinks"
    assert genome.mutated(before, stream(0, "test", 1)) == genome.mutated(before, stream(0, "test", 1))


def test_a_mutation_rate_of_zero_or_one_mutates_no_key_or_every_key():
    values = {"a": 1.0, "b": 2.0}
    gene = Gene(1e-3, 1e3)
    assert Genome({"a": gene, "b": gene}, 0.0).mutated(values, stream(0, "test")) == values
    mutated = Genome({"a": gene, "b": gene}, 1.0).mutated(values, stream(0, "test"))
    assert all(mutated[key] != values[key] for key in values)
