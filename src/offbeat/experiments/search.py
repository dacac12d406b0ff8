"""The search space of an experiment, and the values of each trial: all combinations, or random samples.

A random sample is keyed by (seed, key, number of the trial), and combinations are ordered by the names of the keys. So
the order of keys in the file and the number of trials do not change a trial. A combination that an earlier trial has is
drawn again, because sessions with the same settings and seeds would repeat its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import islice, product
from typing import Annotated, Any, Literal, cast

from offbeat.core.errors import ConfigError, suggestion, unknown
from offbeat.core.field_definitions import hints_of
from offbeat.core.field_texts import describe
from offbeat.core.fields import Bound, Count, Natural, build, read
from offbeat.core.seeding import stream
from offbeat.experiments.spec_notation import in_spec

Values = dict[str, Any]
"""Key -> value of one trial, for the keys that are searched over."""
Method = Literal["grid", "random", "optuna"]

MOST_SESSIONS = 100_000
"""Largest number of sessions: each has a directory, and all are listed before the first one starts."""
SessionCount = Annotated[int, Bound(1, MOST_SESSIONS)]
"""A number of seeds or trials."""
_MOST_DRAWS = 1000
_MOST_DRAWS_PER_EARLIER_TRIAL = 20
"""Draws for one trial, until they are those of no earlier trial. Of n equally likely settings, the last one is missed
with probability exp(-20)."""
_DIGITS = 6
"""Significant digits of a number that is sampled from a range without a step."""


@dataclass(frozen=True)
class Choices:
    """A list of values with equal probabilities."""

    values: tuple[Any, ...]

    def at(self, fraction: float) -> Any:
        """Return the value at a fraction of the list, in [0, 1)."""
        return self.values[int(fraction * len(self.values))]

    def allows(self, value: object) -> bool:
        """Whether a value is one of the list."""
        return value in self.values

    def examples(self) -> tuple[Any, ...]:
        """Return all values, to be checked."""
        return self.values


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    step: float | None = None
    """Distance between allowed numbers, starting at low; None: any number."""
    integers: bool = False
    """Whether low, high and step are integers in the spec, as 1 is and 1.0 is not."""
    whole: bool = False
    """Whether it has only whole numbers, because its setting accepts no others."""

    def at(self, fraction: float) -> float:
        """Return the number at a fraction of the range, in [0, 1)."""
        if self.scale == "log":
            return self.rounded(self._on_log_scale(fraction, 0.5 if self.whole else 0.0))
        step = 1.0 if self.whole and self.step is None else self.step
        if step is None:
            return self.rounded(self.low + fraction * (self.high - self.low))
        return self.rounded(self.low + int(fraction * (self._steps(step) + 1)) * step)

    def allows(self, value: object) -> bool:
        """Whether a value is a number within the range."""
        return isinstance(value, int | float) and self.low <= value <= self.high

    @property
    def has_whole_bounds(self) -> bool:
        """Whether the bounds and the step, if any, are whole numbers."""
        return all(part == int(part) for part in (self.low, self.high, self.step or 1))

    @property
    def highest(self) -> float:
        """The highest number that is allowed: `high`, or with a step the last one that is not above it."""
        return self.high if self.step is None else self._after(self._steps(self.step), self.step)

    def place(self, number: float) -> int:
        """Return how many steps a number is above low; only with a step."""
        assert self.step is not None
        return round((number - self.low) / self.step)

    def _after(self, steps: int, step: float) -> float:
        """Return the number that is some steps above low, as decimal numbers add up: 0.1 + 2 x 0.1 is 0.3."""
        return float(Decimal(str(self.low)) + steps * Decimal(str(step)))

    def _steps(self, step: float) -> int:
        """Return how many steps fit between low and high."""
        return math.floor((self.high - self.low) / step + 1e-9)

    def rounded(self, number: float) -> float:
        """Return a number within the range, rounded to `_DIGITS` digits; with a step, the nearest on its grid."""
        if self.whole:
            return min(max(round(number), int(self.low)), int(self.high))
        if self.step is not None:
            return self._after(self.place(number), self.step)
        return min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)

    def examples(self) -> tuple[float, ...]:
        """Return the smallest and the largest value, to be checked."""
        return (int(self.low), int(self.highest)) if self.whole else (self.low, self.highest)

    def given(self) -> dict[str, Any]:
        """Return what the spec says of the range, as JSON."""
        return {key: value for key, value in asdict(self).items() if key != "whole"}

    def _on_log_scale(self, fraction: float, margin: float) -> float:
        """Return the number at a fraction of the scale. A margin of 0.5 gives both ends their full probability."""
        low, high = math.log(self.low - margin), math.log(self.high + margin)
        return math.exp(low + fraction * (high - low))


Over = dict[str, Choices | Range]
"""The search space: key -> its possible values."""


@dataclass(frozen=True)
class Search:
    """The method of a search, and its space."""

    method: Method
    over: Over
    trials: int | None
    """Number of sampled combinations; None for a grid, which has all combinations."""
    seed: int = 0
    """Seed of the random samples."""
    prune_after: int | None = None
    """Env steps after which a trial ends early if its return is below the median of the others; None: never."""

    @property
    def combinations(self) -> int:
        """Number of combinations of values."""
        return self.trials or math.prod(len(values.examples()) for values in self.over.values())

    def allows(self, values: Mapping[str, Any]) -> bool:
        """Whether these values may be those of a trial: of the same keys, each from its list or range."""
        return values.keys() == self.over.keys() and all(self.over[key].allows(value) for key, value in values.items())

    def identity(self) -> dict[str, Any]:
        """Return the part that defines the trials, as JSON."""
        over = {
            key: list(values.values) if isinstance(values, Choices) else values.given()
            for key, values in self.over.items()
        }
        return {"method": self.method, "seed": self.seed, "over": over}

    def settings(self) -> list[Values]:
        """Return the values of all combinations of a grid, or of random ones, none of them twice.

        There are fewer than `trials` if no more are found.
        """
        keys = sorted(self.over)
        if self.trials is None:
            grid = [cast("Choices", self.over[key]).values for key in keys]
            return [dict(zip(keys, values, strict=True)) for values in product(*grid)]
        found: dict[object, Values] = {}
        for number in range(self.trials):
            drawn = islice(self._draws(number), _MOST_DRAWS + _MOST_DRAWS_PER_EARLIER_TRIAL * number)
            values = next((values for values in drawn if _hashable(values) not in found), None)
            if values is None:
                break
            found[_hashable(values)] = values
        return list(found.values())

    def _draws(self, number: int) -> Iterator[Values]:
        """Yield random values for a trial, without end."""
        streams = {key: stream(self.seed, f"search/{key}", number) for key in sorted(self.over)}
        while True:
            yield {key: self.over[key].at(each.random()) for key, each in streams.items()}

    def examples(self) -> list[Values]:
        """Return combinations that contain each example of every key at least once, to be checked."""
        first = {key: self.over[key].examples()[0] for key in sorted(self.over)}
        others = [{**first, key: value} for key in first for value in self.over[key].examples()[1:]]
        return [first, *others]

    def combined_examples(self, keys: Collection[str]) -> Iterator[Values]:
        """Yield all combinations of the examples of some keys. All other keys have their first one."""
        examples = {key: values.examples() for key, values in sorted(self.over.items())}
        for combined in product(*(given if key in keys else given[:1] for key, given in examples.items())):
            yield dict(zip(examples, combined, strict=True))


# --- from the spec ------------------------------------------------------------------------------------------


def read_search(where: str, table: Mapping[str, Any]) -> Search:
    """Read the table [search] of a spec. `where` is the file, for messages.

    Raises:
        ConfigError: a key is unknown or missing, or a value is invalid.
    """
    known = ("method", "trials", "seed", "prune_after", "over")
    for key in table:
        if key not in known:
            raise unknown("key", key, known, f"{where}: keys to search over belong under [search.over].")
    method = expect(where, "method", table.get("method", "grid"), Method)
    over = table.get("over", {})
    if not isinstance(over, dict):
        raise ConfigError(
            f"{where}: over is {over!r}, but a table is expected: write [search.over], and its keys below with the "
            "values of each"
        )
    if not over:
        raise ConfigError(
            f"{where}: [search] has nothing to search over: add [search.over] with for example "
            "learning_rate = [1e-3, 1e-4]"
        )
    values = {key: _values(where, key, given) for key, given in over.items()}
    search = _grid(where, table, values) if method == "grid" else _sampled(where, table, method, values)
    prune_after = expect(where, "prune_after", table["prune_after"], Count) if "prune_after" in table else None
    return replace(search, prune_after=prune_after)


def expect(where: str, key: str, value: object, hint: Any) -> Any:
    """Convert a value of the spec to the type `hint`. `where` is the file, for messages.

    Raises:
        ConfigError: the value is invalid.
    """
    try:
        return read(key, value, hint)
    except ConfigError:
        raise ConfigError(f"{where}: {key} is {value!r}, but {in_spec(describe(hint))} is expected") from None


def refuse_duplicates(
    where: str, key: str, values: Collection[Any], meaning: Callable[[Any], object] = lambda value: value
) -> None:
    """Raise ConfigError if a list contains a value twice. Values with an equal `meaning` are the same value."""
    seen = dict[object, Any]()
    for value in values:
        if (same := _hashable(meaning(value))) in seen:
            first = seen[same]
            twice = f"{value!r} twice" if first == value else f"{first!r} and {value!r}, which are the same value"
            raise ConfigError(f"{where}: {key} has {twice}: keep one of them")
        seen[same] = value


def _hashable(value: object) -> object:
    """Return a hashable value; equal values give equal results."""
    match value:
        case list() | tuple():
            return "list", tuple(map(_hashable, value))
        case dict():
            return "table", frozenset(zip(value, map(_hashable, value.values()), strict=True))
    return value


def _grid(where: str, table: Mapping[str, Any], over: Over) -> Search:
    for key in ("trials", "seed"):
        if key in table:
            raise ConfigError(
                f'{where}: a grid tries every combination once: leave out {key}, or write method = "random"'
            )
    for key, values in over.items():
        if isinstance(values, Range):
            raise ConfigError(
                f"{where}: {key} is a range, which is not supported by a grid: list its values, {key} = [...], or "
                'write method = "random"'
            )
    return Search("grid", over, None)


def _sampled(where: str, table: Mapping[str, Any], method: Method, over: Over) -> Search:
    if "trials" not in table:
        raise ConfigError(f"{where}: method {method} needs the number of trials: add trials = 8 under [search]")
    trials = expect(where, "trials", table["trials"], SessionCount)
    return Search(method, over, trials, expect(where, "seed", table.get("seed", 0), Natural))


def _values(where: str, key: str, given: object) -> Choices | Range:
    if isinstance(given, dict):
        return _range(where, key, given)
    if not isinstance(given, list) or not given:
        raise ConfigError(
            f"{where}: {key} is {given!r}, but a list of values is expected, such as [1e-3, 1e-4], or a range, such as "
            "{ low = 1e-4, high = 1e-2 }; a value that all trials share belongs under [settings]"
        )
    return Choices(tuple(given))


def _range(where: str, key: str, given: Mapping[str, Any]) -> Range:
    hints = {part: hint for part, hint in hints_of(Range).items() if part not in ("integers", "whole")}
    if unknown_part := next((part for part in given if part not in hints), None):
        raise ConfigError(
            f"{where}: the range of {key} has an unknown key {unknown_part!r}.{suggestion(unknown_part, hints)} A "
            'range has low and high and, optionally, scale and step, such as { low = 1e-4, high = 1e-2, scale = "log" }'
        )
    for part in given.keys() & hints:
        expect(where, f"{part} of {key}", given[part], hints[part])
    found = build(Range, given, f"{where}, range of {key}")
    if found.low >= found.high:
        raise ConfigError(f"{where}: {key} goes from {found.low:g} to {found.high:g}: low must be less than high")
    if found.scale == "log" and (found.low <= 0 or found.step is not None):
        raise ConfigError(
            f"{where}: {key} has a log scale, which supports only numbers above 0, and no step: raise low, leave out "
            'step, or write scale = "linear"'
        )
    if found.step is not None and not 0 < found.step <= found.high - found.low:
        raise ConfigError(
            f"{where}: {key} has step {found.step:g}, but more than 0 and at most high - low = "
            f"{found.high - found.low:g} is expected"
        )
    return replace(found, integers=all(type(given.get(part)) is int for part in ("low", "high", "step")))
