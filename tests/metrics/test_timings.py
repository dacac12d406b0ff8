from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.metrics.timings import CORE_WAIT, EXCHANGE, Branch, Timings

paths = st.lists(st.sampled_from(["act", "env", "learn", "update"]), min_size=1, max_size=3).map("/".join)
pieces = st.lists(st.tuples(paths, st.floats(0, 10)), max_size=20)


def timed(**seconds: float) -> Timings:
    timings = Timings()
    timings.merge({name.replace("__", "/"): value for name, value in seconds.items()})
    return timings


def flat(branches: tuple[Branch, ...]) -> list[Branch]:
    return [each for branch in branches for each in (branch, *flat(branch.children))]


def test_seconds_of_the_same_name_are_summed():
    timings = Timings()
    timings.add("act", 1.0)
    timings.add("act", 2.5)
    assert timings.totals() == {"act": 3.5}


def test_a_parent_timed_in_parts_is_the_sum_of_its_parts():
    assert timed(learn__prepare=1.0, learn__update=2.0).totals()["learn"] == 3.0


def test_a_parent_timed_as_a_whole_includes_its_parts():
    assert timed(learn=10.0, learn__prepare=1.0, learn__update=2.0).totals()["learn"] == 10.0


def test_since_returns_the_seconds_added_since_an_earlier_state():
    timings = timed(act=1.0, wait__actor=2.0)
    before = timings.totals()
    timings.merge({"act": 0.5, "env": 4.0, "wait/actor": 1.0})
    assert timings.since(before) == {"act": 0.5, "env": 4.0, "wait/actor": 1.0, "wait": 1.0}


def test_the_tree_lists_the_known_kinds_first_in_their_order():
    tree = timed(wait=1.0, zeta=1.0, learn__update=1.0, act=1.0).tree()
    assert [branch.name for branch in tree] == ["act", "learn", "wait", "zeta"]
    assert [branch.name for branch in tree[1].children] == ["update"]
    assert [branch.share for branch in tree] == [0.25] * 4


@pytest.mark.parametrize("part", [EXCHANGE, CORE_WAIT])
def test_no_part_of_several_of_the_other_times_counts_a_second_time(part):
    without = {"learn/prepare": 1.0, "learn/update": 2.0, "wait": 1.0}
    timings = timed(**without, **{part: 2.0})
    assert timings.totals() == timed(**without).totals() | {part: 2.0}
    assert timings.tree() == timed(**without).tree()


def test_timings_without_seconds_have_an_empty_tree():
    assert Timings().tree() == ()
    assert timed(act=0.0).tree()[0].share == 0.0


@given(pieces)
def test_top_level_shares_sum_to_one_and_children_never_exceed_their_parent(added):
    timings = Timings()
    for name, seconds in added:
        timings.add(name, seconds)
    tree = timings.tree()
    if sum(branch.seconds for branch in tree) > 0:
        assert sum(branch.share for branch in tree) == pytest.approx(1.0)
    for branch in flat(tree):
        assert sum(child.seconds for child in branch.children) <= branch.seconds * (1 + 1e-9)
