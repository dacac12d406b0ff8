"""What is searched over, and which values a trial gets: every combination, or random draws.

A random draw is keyed by (seed, key, number of the setting), and combinations are counted in the order of the keys'
names. So no order in the file, and no number of trials, changes what a trial is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal, cast

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.fields import Count, Natural, build, describe, hints_of, read
from offbeat.core.seeding import stream

Values = dict[str, Any]
"""key -> value: what is searched over, of one trial."""
Method = Literal["grid", "random", "optuna"]

_DIGITS = 6
"""Significant digits of a number that is drawn from a range: more only make it hard to read and to type."""


@dataclass(frozen=True)
class Choices:
    """A list of values, each as good as another."""

    values: tuple[Any, ...]

    def draw(self, share: float, *, whole: bool) -> Any:  # noqa: ARG002 - what is listed is taken as it is
        """Return the value at a share of the list, in [0, 1)."""
        return self.values[int(share * len(self.values))]

    def examples(self) -> tuple[Any, ...]:
        """Return values of which one is refused if any is."""
        return self.values


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    step: float | None = None
    """Distance between the numbers that are tried, from low on; none: all of them."""

    def draw(self, share: float, *, whole: bool) -> float:
        """Return the number at a share of the range, in [0, 1); `whole` ones alone, or any."""
        if self.scale == "log":
            return self.tidy(self._on_log_scale(share, 0.5 if whole else 0.0), whole=whole)
        step = 1.0 if whole and self.step is None else self.step
        if step is None:
            return self.tidy(self.low + share * (self.high - self.low), whole=whole)
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        return self.tidy(self.low + int(share * count) * step, whole=whole)

    def tidy(self, number: float, *, whole: bool) -> float:
        """Return a number with as many digits as one types, within the range."""
        rounded = round(number) if whole else float(f"{number:.{_DIGITS}g}")
        return min(max(rounded, int(self.low) if whole else self.low), int(self.high) if whole else self.high)

    def examples(self) -> tuple[float, ...]:
        """Return values of which one is refused if any is, as far as that depends on their size."""
        return (self.low, self.high)

    def _on_log_scale(self, share: float, margin: float) -> float:
        """Return the number at a share of the scale; a margin gives whole numbers at its ends their whole part."""
        low, high = math.log(self.low - margin), math.log(self.high + margin)
        return math.exp(low + share * (high - low))


Over = dict[str, Choices | Range]


@dataclass(frozen=True)
class Search:
    """How the values of trials are found."""

    method: Method
    over: Over
    trials: int | None
    """Settings that are tried; None for a grid, which tries all."""
    seed: int = 0
    """Of the draws."""

    def meaning(self) -> dict[str, Any]:
        """Return what decides which trial is which, as JSON has it."""
        over = {
            key: list(values.values) if isinstance(values, Choices) else asdict(values)
            for key, values in self.over.items()
        }
        return {"method": self.method, "seed": self.seed, "over": over}

    def settings(self, whole: Collection[str]) -> list[Values]:
        """Return the values of all settings, of a grid or of random draws; `whole` keys want whole numbers."""
        keys = sorted(self.over)
        if self.trials is None:
            grid = [cast("Choices", self.over[key]).values for key in keys]
            return [dict(zip(keys, values, strict=True)) for values in product(*grid)]
        return [{key: self._drawn(key, number, key in whole) for key in keys} for number in range(self.trials)]

    def _drawn(self, key: str, number: int, whole: bool) -> Any:
        return self.over[key].draw(stream(self.seed, f"search/{key}", number).random(), whole=whole)

    def examples(self) -> list[Values]:
        """Return settings among which each value that may be refused by itself stands once."""
        first = {key: self.over[key].examples()[0] for key in sorted(self.over)}
        others = [{**first, key: value} for key in first for value in self.over[key].examples()[1:]]
        return [first, *others]


# --- from the spec ------------------------------------------------------------------------------------------


def read_search(where: str, table: Mapping[str, Any]) -> Search:
    """Read the table [search] of a spec; `where` names the file.

    Raises:
        ConfigError: it has a key or value that is not accepted, or lacks one.
    """
    known = ("method", "trials", "seed", "over")
    for key in table:
        if key not in known:
            raise unknown("key", key, known, f"{where}: what is searched over stands under [search.over].")
    method = expect(where, "method", table.get("method", "grid"), Method)
    over = table.get("over")
    if not isinstance(over, dict) or not over:
        raise ConfigError(
            f"{where}: [search] says nothing to search over: add [search.over] with for example "
            "learning_rate = [1e-3, 1e-4]"
        )
    values = {key: _values(where, key, given) for key, given in over.items()}
    return _grid(where, table, values) if method == "grid" else _drawing(where, table, method, values)


def expect(where: str, key: str, value: object, hint: Any) -> Any:
    """Return a value of the spec as the hint wants it; `where` names the file.

    Raises:
        ConfigError: it cannot be read so.
    """
    try:
        return read(key, value, hint)
    except ConfigError:
        raise ConfigError(f"{where}: {key} is {value!r}, but {describe(hint)} is expected") from None


def refuse_twice(where: str, key: str, values: Collection[Any]) -> None:
    """Refuse a list in which a value stands twice.

    Raises:
        ConfigError: with the value.
    """
    listed = list(values)
    twice = [value for index, value in enumerate(listed) if value in listed[:index]]
    if twice:
        raise ConfigError(f"{where}: {key} has {twice[0]!r} twice: keep one of them")


def _grid(where: str, table: Mapping[str, Any], over: Over) -> Search:
    for key in ("trials", "seed"):
        if key in table:
            raise ConfigError(
                f'{where}: a grid tries every combination once: leave out {key}, or write method = "random"'
            )
    for key, values in over.items():
        if isinstance(values, Range):
            raise ConfigError(
                f"{where}: {key} is a range, which a grid cannot try out: list its values, {key} = [...], or write "
                'method = "random"'
            )
    return Search("grid", over, None)


def _drawing(where: str, table: Mapping[str, Any], method: Method, over: Over) -> Search:
    if "trials" not in table:
        raise ConfigError(f"{where}: method {method} has no end of its own: add trials = 8 under [search]")
    trials = expect(where, "trials", table["trials"], Count)
    return Search(method, over, trials, expect(where, "seed", table.get("seed", 0), Natural))


def _values(where: str, key: str, given: object) -> Choices | Range:
    if isinstance(given, dict):
        return _range(where, key, given)
    if not isinstance(given, list) or not given:
        raise ConfigError(
            f"{where}: {key} is {given!r}, but a list of values is expected, such as [1e-3, 1e-4], or a range, such as "
            "{ low = 1e-4, high = 1e-2 }"
        )
    refuse_twice(where, key, given)
    return Choices(tuple(given))


def _range(where: str, key: str, given: Mapping[str, Any]) -> Range:
    hints = hints_of(Range)
    for part in given.keys() & hints:
        expect(where, f"{part} of {key}", given[part], hints[part])
    found = build(Range, given, f"{where}, range of {key}")
    if found.low >= found.high:
        raise ConfigError(f"{where}: {key} goes from {found.low:g} to {found.high:g}: low must be less than high")
    if found.scale == "log" and (found.low <= 0 or found.step is not None):
        raise ConfigError(
            f"{where}: {key} is on a log scale, which has only numbers above 0, and no step: give another low, leave "
            'out step, or write scale = "linear"'
        )
    if found.step is not None and not 0 < found.step <= found.high - found.low:
        raise ConfigError(
            f"{where}: {key} has step {found.step:g}, but more than 0 and at most high - low = "
            f"{found.high - found.low:g} is expected"
        )
    return found
