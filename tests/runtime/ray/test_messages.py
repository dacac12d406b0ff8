"""What the message with the rows of a ticket has: all that the actor has written, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runs import SMALL

from offbeat.config.resolve import resolve
from offbeat.core.types import is_leaf
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.ray.messages import RowMessage
from offbeat.runtime.runtimes import build

PREVIOUS = {"previous_action": True, "previous_reward": True}


@pytest.mark.parametrize(("first", "more"), [(0, {}), (1, {}), (0, PREVIOUS), (1, PREVIOUS)])
def test_a_message_has_the_last_row_of_each_leaf_and_of_nothing_else(first: int, more: dict[str, Any]) -> None:
    parts: PacedParts = build(resolve("ppo", "CartPole-v1", flags={**SMALL, **more}))
    try:
        plan = parts.plan.policies[0]
        message, sent, received = RowMessage(plan), RowMessage(plan).new_slot(), RowMessage(plan).new_slot()
    finally:
        parts.close()
    for array in sent.values():
        array[...] = 1
    message.write(message.arrays(sent, first), received, first)
    by_step = [field.name for field in plan.fields if field.per == "step"]
    leaves = {name for name in by_step if is_leaf(name)}
    assert {leaf.name for leaf in plan.env_spec.observation} == leaves
    for name in by_step:
        assert bool(received[name][-1].all()) is (name in leaves), name
        assert bool(received[name][0].all()) is (name not in leaves or first == 0), name
        assert received[name][first:-1].all(), name
