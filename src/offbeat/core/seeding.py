"""Random streams, keyed by their purpose, for all packages.

A stream is keyed by (seed, role, indices). For example, ticket 7 uses the same random numbers in any thread or process,
independent of what was computed before. This makes runs reproducible across runtimes.
"""

from __future__ import annotations

import zlib

import numpy as np


def _sequence(seed: int, role: str, indices: tuple[int, ...]) -> np.random.SeedSequence:
    # A spawn key makes (seed, role) and (seed, role, 0) differ: plain entropy is padded with zeros.
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(role.encode()), *indices))


def stream(seed: int, role: str, *indices: int) -> np.random.Generator:
    """Return the generator with the key (seed, role, indices)."""
    return np.random.Generator(np.random.SFC64(_sequence(seed, role, indices)))


def derive_seed(seed: int, role: str, *indices: int) -> int:
    """Return a seed in [0, 2**31) for a library that accepts an integer seed."""
    return int(_sequence(seed, role, indices).generate_state(1)[0] >> 1)


def key_of(policy_index: int) -> tuple[int, ...]:
    """Return the indices that a policy adds to the keys of its streams: its index; none for the first policy."""
    return (policy_index,) if policy_index else ()
