"""A row of a batch of constant shape has the same bits whatever the other rows contain."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from offbeat.config.resolve import resolve
from offbeat.models.group_network import LEAST_ROWS, GroupNetwork
from offbeat.models.network_arrays import OUTPUTS, STATE
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.runtime.parts import PacedParts
from offbeat.runtime.runtimes import build

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("CartPole-v1", {"hidden_sizes": (64, 64)}),
    "wide mlp": ("CartPole-v1", {"hidden_sizes": (512, 512)}),
    "image": ("offbeat/PixelsGoal-v0", {}),
    "gru": ("CartPole-v1", {"core": "gru", "core_size": 32}),
    "lstm": ("CartPole-v1", {"core": "lstm", "core_size": 32}),
    "bf16": ("offbeat/Pixels-v0", {"precision": "bf16"}),
}


@cache
def spec_of(name: str) -> PolicySpec:
    env, settings = NETWORKS[name]
    parts: PacedParts = build(resolve("ppo", env, flags={"normalize_observations": False, **settings}))
    return parts.policy.spec


def filled(network: GroupNetwork, seed: int, rows: slice = slice(None)) -> None:
    """Write random numbers into some rows."""
    random = np.random.default_rng(seed)
    for array in network.inputs.values():
        array[rows] = (255 * random.random(array[rows].shape)).astype(array.dtype)


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((name, 6) for name in NETWORKS), *((name, rows) for name in ("mlp", "image") for rows in (4, 33))],
)
def test_the_outputs_of_a_row_do_not_depend_on_the_other_rows(name, rows):
    spec = spec_of(name)
    network = GroupNetwork(spec, rows)
    network.load(np.random.default_rng(0).standard_normal(published_layout(spec).size, np.float32))
    filled(network, 1)
    whole = network.forward()
    assert set(whole) == ({OUTPUTS, STATE} if spec.recurrent else {OUTPUTS})
    filled(network, 2, slice(2, None))
    alone = network.forward()
    for key, array in whole.items():
        assert len(array) == rows
        np.testing.assert_array_equal(alone[key][:2], array[:2])
        assert not np.array_equal(alone[key][2:], array[2:])


def test_a_batch_has_at_least_four_rows():
    network = GroupNetwork(spec_of("mlp"), 1)
    assert len(network.forward()[OUTPUTS]) == len(network.forward(1)[OUTPUTS]) == LEAST_ROWS
