from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import pytest

from offbeat.core.seeding import derive_seed, stream

INDICES: list[tuple[int, ...]] = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (2**20,)]
KEYS = list(product([0, 1, 2**32, 2**40 + 1], ["act", "env", "learn"], INDICES))


def first_numbers(seed: int, role: str, indices: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(stream(seed, role, *indices).integers(2**63, size=4).tolist())


def test_equal_keys_give_equal_streams():
    assert [first_numbers(*key) for key in KEYS] == [first_numbers(*key) for key in KEYS]


def test_streams_differ_by_seed_role_and_every_index():
    assert len({first_numbers(*key) for key in KEYS}) == len(KEYS)


def test_consecutive_tickets_have_different_random_numbers():
    drawn = [number for ticket in range(500) for number in first_numbers(7, "act", (ticket,))]
    assert len(set(drawn)) == len(drawn)


def test_derived_seeds_differ_by_key_and_fit_into_31_bits():
    seeds = [derive_seed(seed, role, *indices) for seed, role, indices in KEYS]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_streams_are_the_same_in_another_process_with_any_hash_seed(hash_seed):
    code = "from offbeat.core.seeding import *; print(derive_seed(3, 'act', 5), stream(3, 'act', 5).integers(2**63))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == [str(derive_seed(3, "act", 5)), str(first_numbers(3, "act", (5,))[0])]
