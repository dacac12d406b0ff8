"""Mutation: a value is multiplied or divided by a random factor, and stays within its bounds.

Discounts mutate as 1 - value: the step from 0.99 to 0.995 doubles the horizon, as the step from 0.98 to 0.99 does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from offbeat.core.seeding import stream

Values = dict[str, float]
"""Key -> value of one member in one generation, for the keys that mutate."""
DIGITS = 6
"""Significant digits of a mutated value."""
ROLE = "pbt"
"""Role of the random streams of decisions."""


def shown(values: Values) -> str:
    """Return values as text."""
    return ", ".join(f"{key} {value:g}" for key, value in values.items())


@dataclass(frozen=True)
class Gene:
    """The range of one key, and how far a mutation changes it."""

    low: float
    high: float
    factor: tuple[float, float] = (1.1, 1.5)
    """Smallest and largest factor of a mutation. The value is multiplied by it or divided by it, equally likely."""
    complement: bool = False
    """Whether 1 - value mutates instead of the value: for discounts."""
    whole: bool = False
    """Whether the value is a whole number."""

    def mutated(self, value: float, up: bool, share: float) -> float:
        """Return a mutated value.

        Args:
            value: the value to mutate, within the bounds.
            up: whether the value is to grow; else it shrinks.
            share: a number in [0, 1): how large the factor is, between the smallest and the largest.
        """
        factor = self.factor[0] + share * (self.factor[1] - self.factor[0])
        mutated = self._scaled(value, factor if up != self.complement else 1 / factor)
        if self.whole and mutated == value:
            mutated += 1 if up else -1
        return self._bounded(mutated)

    def at(self, share: float) -> float:
        """Return the value at a share of the range, in [0, 1], on a logarithmic scale."""
        ends = (1 - self.high, 1 - self.low) if self.complement else (self.low, self.high)
        low, high = map(math.log, ends)
        return self._bounded(self._read(math.exp(low + share * (high - low))))

    def _scaled(self, value: float, factor: float) -> float:
        return self._read((1 - value) * factor if self.complement else value * factor)

    def _read(self, number: float) -> float:
        """Return the value of a number on the scale of mutations, rounded."""
        rounded = float(f"{number:.{DIGITS}g}")
        value = round(1 - rounded, 15) if self.complement else rounded
        return float(round(value)) if self.whole else value

    def _bounded(self, value: float) -> float:
        return min(max(value, self.low), self.high)


@dataclass(frozen=True)
class Genome:
    """The keys that mutate."""

    genes: Mapping[str, Gene]
    mutation_rate: float
    """Probability with which each key of a copy is mutated."""
    initial: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Key -> value of each member in the first generation, where it is given."""

    def mutated(self, values: Mapping[str, float], random: np.random.Generator) -> Values:
        """Return the values of a copy. Each key takes three numbers from `random`, in the order of the keys."""
        mutated: Values = {}
        for key in sorted(self.genes):
            mutates, direction, share = random.random(3)
            gene, value = self.genes[key], values[key]
            mutated[key] = gene.mutated(value, direction < 0.5, share) if mutates < self.mutation_rate else value
        return mutated

    def first(self, member: int, members: int, seed: int) -> Values:
        """Return the values of a member in the first generation.

        Without given values, the members are spread evenly over each range, in a random order for each key.
        """
        return {key: self._first(key, member, members, seed) for key in sorted(self.genes)}

    def _first(self, key: str, member: int, members: int, seed: int) -> float:
        if key in self.initial:
            return self.initial[key][member]
        place = stream(seed, f"{ROLE}/initial/{key}").permutation(members)[member]
        return self.genes[key].at(place / (members - 1))
