from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.models.collective import ALONE, AllShards, tree_sum


@given(st.integers(1, 17), st.integers(0, 5))
def test_a_tree_sum_adds_every_row_once(shards, size):
    rows = 2 ** torch.arange(shards, dtype=torch.int64)[:, None].expand(shards, size)
    assert tree_sum(rows).tolist() == [2**shards - 1] * size


@pytest.mark.parametrize(
    ("shards", "order"),
    [
        (1, lambda a: a[0]),
        (2, lambda a: a[0] + a[1]),
        (3, lambda a: (a[0] + a[1]) + a[2]),
        (4, lambda a: (a[0] + a[1]) + (a[2] + a[3])),
        (5, lambda a: ((a[0] + a[1]) + (a[2] + a[3])) + a[4]),
        (6, lambda a: ((a[0] + a[1]) + (a[2] + a[3])) + (a[4] + a[5])),
        (7, lambda a: ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + a[6])),
    ],
)
def test_the_order_of_a_tree_sum_is_fixed(shards, order):
    rows = torch.randn(shards, 1000, generator=torch.Generator().manual_seed(shards)) * 10 ** torch.arange(1000).sub(
        500
    ).div(50)
    assert torch.equal(tree_sum(rows), order(rows))


def test_a_tree_sum_changes_no_row():
    rows = torch.arange(6.0).reshape(3, 2)
    before = rows.clone()
    tree_sum(rows)
    assert torch.equal(rows, before)


def test_one_learner_computes_all_shards_and_gathers_them_without_a_copy():
    rows = torch.zeros(3, 2)
    assert AllShards(3).own == range(3)
    assert AllShards(3).gather(rows) is rows
    assert (ALONE.shards, ALONE.own) == (1, range(1))
