from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.population.rules import FAILED, ReplaceRule, donor_of, ranking

BY_RANK = ReplaceRule(gap_relative=0, gap_std=0)
SCORES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20)
FRACTIONS = st.floats(0.01, 0.5)


@given(SCORES, FRACTIONS, FRACTIONS, st.floats(0, 1, exclude_max=True))
def test_only_the_worst_copy_and_only_from_the_best(scores, worst, best, draw):
    rule = ReplaceRule(replace_fraction=worst, donor_fraction=best, gap_relative=0, gap_std=0)
    donors = {member: donor_of(rule, member, scores, draw) for member in range(len(scores))}
    copies = {member: donor for member, donor in donors.items() if donor is not None}
    ranked = ranking(scores)
    assert len(copies) <= max(1, int(worst * len(scores) + 1e-9))
    assert set(copies) <= set(ranked[len(scores) // 2 :])
    assert set(copies.values()) <= set(ranked[: max(1, int(best * len(scores) + 1e-9))])
    assert all(scores[donor] > scores[member] for member, donor in copies.items())


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=20))
def test_a_gap_in_standard_deviations_does_not_depend_on_the_unit_of_the_scores(scores):
    rule = ReplaceRule(gap_relative=0, gap_std=0.5)
    scaled = [score * 2 + 64 for score in scores]
    members = range(len(scores))
    assert [donor_of(rule, m, scores, 0.3) for m in members] == [donor_of(rule, m, scaled, 0.3) for m in members]


@pytest.mark.parametrize("rule", [BY_RANK, ReplaceRule(), ReplaceRule(gap_absolute=1e9, replace_fraction=0.1)])
def test_members_that_have_failed_copy_one_of_the_best_that_have_not(rule):
    scores = [FAILED, -5.0, FAILED, FAILED, FAILED]
    assert [donor_of(rule, member, scores, 0.9) for member in range(5)] == [1, None, 1, 1, 1]
    assert [donor_of(rule, member, [FAILED] * 5, 0.9) for member in range(5)] == [None] * 5


def test_of_equal_scores_the_lower_number_ranks_first():
    assert ranking([1.0, 3.0, 1.0, 3.0]) == [1, 3, 0, 2]
    assert donor_of(BY_RANK, 2, [1.0, 1.0, 1.0], 0.5) is None


@pytest.mark.parametrize(
    ("own", "donor", "copies"),
    [(100, 105, False), (100, 106, True), (-106, -100, True), (-105, -100, False), (-1, 1, True), (0, 0.01, True)],
)
def test_a_relative_gap_is_a_fraction_of_the_larger_absolute_value(own, donor, copies):
    rule = ReplaceRule(gap_relative=0.05, gap_std=0)
    assert (donor_of(rule, 0, [own, donor], 0.0) == 1) is copies


@pytest.mark.parametrize(("own", "donor", "copies"), [(-1000, -990, False), (-1000, -989, True)])
def test_an_absolute_gap_is_in_units_of_the_objective(own, donor, copies):
    rule = ReplaceRule(gap_absolute=10, gap_relative=0, gap_std=0)
    assert (donor_of(rule, 0, [own, donor], 0.0) == 1) is copies


def test_the_standard_deviation_leaves_out_the_worst_fifth():
    # Without the failed member the deviation is 1.41, with it 40: the fourth best is 1.6 deviations behind, or 0.1.
    scores = [104.0, 103.0, 102.0, 101.0, 100.0, 0.0]
    rule = ReplaceRule(replace_fraction=0.5, gap_relative=0, gap_std=1)
    assert donor_of(rule, 3, scores, 0.0) == 0
    assert donor_of(rule, 5, scores, 0.0) == 0


def test_the_worst_fifth_of_the_scores_begins_with_failed_members():
    # Of ten members the two that have failed are left out, so the deviation of all others is 33. Without 0 it is 2.
    scores = [FAILED, FAILED, 0.0, *(float(score) for score in range(100, 107))]
    rule = ReplaceRule(replace_fraction=0.5, gap_relative=0, gap_std=1)
    assert donor_of(rule, 3, scores, 0.0) is None
    assert donor_of(rule, 2, scores, 0.0) == 9


@pytest.mark.parametrize(("members", "fraction", "copies"), [(4, 0.1, 1), (9, 0.3, 2), (100, 0.29, 29)])
def test_a_fraction_of_the_members_is_rounded_down_to_at_least_one(members, fraction, copies):
    rule = ReplaceRule(replace_fraction=fraction, gap_relative=0, gap_std=0)
    scores = [float(score) for score in range(members)]
    assert sum(donor_of(rule, member, scores, 0.0) is not None for member in range(members)) == copies


def test_each_of_the_best_can_be_the_donor():
    scores = [float(score) for score in range(8)]
    assert {donor_of(BY_RANK, 0, scores, draw) for draw in (0.0, 0.49, 0.5, 0.99)} == {6, 7}
