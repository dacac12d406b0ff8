"""Random streams, each keyed by what it is for and never by time.

A stream is named by (seed, role, indices): the acting of ticket 7 draws the same numbers whichever thread
or process acts it, and whatever happened before. This is what makes runs repeatable across runtimes.
"""

from __future__ import annotations

import zlib

import numpy as np


def _sequence(seed: int, role: str, indices: tuple[int, ...]) -> np.random.SeedSequence:
    # As a spawn key, so that (seed, role) and (seed, role, 0) differ: plain entropy is padded with zeros.
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(role.encode()), *indices))


def stream(seed: int, role: str, *indices: int) -> np.random.Generator:
    """Return the generator named by (seed, role, indices)."""
    return np.random.Generator(np.random.SFC64(_sequence(seed, role, indices)))


def derive_seed(seed: int, role: str, *indices: int) -> int:
    """Return a seed in [0, 2**31) for a source of randomness that takes an integer."""
    return int(_sequence(seed, role, indices).generate_state(1)[0] >> 1)
