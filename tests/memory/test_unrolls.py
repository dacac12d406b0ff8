from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.thorough import examples

from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import Field, Tree
from offbeat.memory.arena import private_arena
from offbeat.memory.unrolls import Unrolls, UnrollShape

FIELDS = [
    Field("observation", (2, 3), "float32"),
    Field("reward", (), "float32"),
    Field("action", (2,), "int64"),
    Field("valid", (), "bool"),
    Field("behavior_version", (), "int64", per="unroll"),
    Field("core_state", (4,), "float32", per="unroll"),
]

sizes = st.integers(1, 4)


def unrolls_of(pace: OnPolicyPace, unroll_length: int, columns: int) -> Unrolls:
    shape = UnrollShape(pace, unroll_length, columns)
    return shape.slots(FIELDS, private_arena(shape.slabs(FIELDS)))


def written_by(ticket: int, unroll_length: int, columns: int) -> Tree:
    """What a ticket writes: other numbers than any other ticket does."""
    random = np.random.default_rng(ticket)
    lead = {"step": (unroll_length + 1, columns), "unroll": (columns,)}
    return {
        field.name: random.integers(0, 2 if field.dtype == "bool" else 2**20, (*lead[field.per], *field.shape)).astype(
            field.dtype
        )
        for field in FIELDS
    }


def assert_holds(slot: Tree, content: Tree) -> None:
    assert slot.keys() == content.keys()
    for name, part in content.items():
        np.testing.assert_array_equal(slot[name], part, err_msg=name)
        assert slot[name].dtype == part.dtype


def joined(contents: list[Tree]) -> Tree:
    """Unrolls side by side, in ticket order."""
    axis = {field.name: 1 if field.per == "step" else 0 for field in FIELDS}
    return {name: np.concatenate([content[name] for content in contents], axis[name]) for name in axis}


@examples(80)
@given(unrolls=sizes, max_lag=st.integers(0, 3), length=sizes, columns=sizes, seed=st.integers(0, 2**32 - 1))
def test_a_batch_has_its_tickets_in_order_and_writes_change_no_other_ticket_in_flight(
    unrolls, max_lag, length, columns, seed
):
    random = np.random.default_rng(seed)
    pace = OnPolicyPace(unrolls, max_lag)
    memory = unrolls_of(pace, length, columns)
    live: dict[int, Tree] = {}
    begun = 0
    for step in range(2 * (max_lag + 1) + 1):
        allowed = [ticket for ticket in range(begun, begun + pace.in_flight + 1) if pace.may_act(ticket, step)]
        begun += len(allowed)
        for ticket in random.permutation(allowed).tolist():  # tickets in flight are written in any order
            live[ticket] = written_by(ticket, length, columns)
            for name, part in live[ticket].items():
                memory.open(ticket)[name][...] = part
            for other, content in live.items():
                assert_holds(memory.open(other), content)
        tickets = pace.tickets_of(step)
        assert_holds(memory.arrays_of(step), joined([live[ticket] for ticket in tickets]))
        for ticket in tickets:
            del live[ticket]


def test_slots_and_batches_are_views_of_one_buffer():
    memory = unrolls_of(OnPolicyPace(2, 1), 3, 4)
    batch = memory.arrays_of(1)
    for ticket, columns in ((2, slice(0, 4)), (3, slice(4, 8))):
        slot = memory.open(ticket)
        slot["reward"][1:3] = ticket
        assert (batch["reward"][1:3, columns] == ticket).all()
        slot["core_state"][...] = ticket
        assert (batch["core_state"][columns] == ticket).all()
    assert not batch["reward"][[0, 3]].any()
    assert all(np.shares_memory(memory.arrays_of(1)[name], batch[name]) for name in batch)


def test_a_batch_is_contiguous():
    memory = unrolls_of(OnPolicyPace(3, 2), 5, 2)
    assert all(array.flags.c_contiguous for step in range(3) for array in memory.arrays_of(step).values())
