"""Marks of config fields, for `Annotated`: conditions on values, as in `Annotated[int, Bound(1)]`, and others.

See `fields.py`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar


class Check:
    """A condition on a value, in addition to its type. It is used in `Annotated`; `str` describes it."""

    example: ClassVar[str] = ""
    """A text that holds; '' if the type has one already."""

    def refuses(self, value: Any) -> bool:
        """Whether a value of the right type is not accepted."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bound(Check):
    """The range of a number: `low` and `high` are inclusive, `above` and `below` exclusive."""

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    unit: str = ""
    """Of the number, for messages."""

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high and self.above < value < self.below

    def refuses(self, value: Any) -> bool:
        return not self.holds(value)

    def examples(self, kind: type) -> list[str]:
        """Return numbers in the range, the usual ones first."""
        usual = (2, 1, 0) if kind is int else (1, 0.5)
        return [_text(number) for number in (*usual, self.low) if self.holds(number)]

    def __str__(self) -> str:
        parts = [
            f"at least {_text(self.low)}" if self.low > -math.inf else "",
            f"more than {_text(self.above)}" if self.above > -math.inf else "",
            f"at most {_text(self.high)}" if self.high < math.inf else "",
            f"less than {_text(self.below)}" if self.below < math.inf else "",
        ]
        return f"of {self.unit} " * bool(self.unit) + " and ".join(part for part in parts if part)


def _text(number: float) -> str:
    """Return a bound as it is typed. A whole number has all its digits."""
    return str(number) if isinstance(number, int) else f"{number:g}"


@dataclass(frozen=True)
class PrintableText(Check):
    """Printable text of limited length, which cannot contain terminal control codes."""

    example: ClassVar[str] = "my_name"

    max_length: int = 1000

    def refuses(self, value: Any) -> bool:
        return not value.isprintable() or len(value) > self.max_length

    def __str__(self) -> str:
        return f"of at most {self.max_length} printable characters"


@dataclass(frozen=True)
class OneOf(Check):
    """One of several words."""

    words: tuple[str, ...]

    def refuses(self, value: Any) -> bool:
        return value not in self.words

    def __str__(self) -> str:
        return "among " + ", ".join(filter(None, self.words))


class DeviceName(Check):
    """The name of a device of torch."""

    example: ClassVar[str] = "cpu"

    def refuses(self, value: Any) -> bool:
        return not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", value)

    def __str__(self) -> str:
        return "that is cpu, cuda or cuda:N"


class ResourceAmount(Check):
    """A custom resource of a cluster and its amount."""

    example: ClassVar[str] = "license=1"

    def refuses(self, value: Any) -> bool:
        return not re.fullmatch(r"[^\s=,]{1,100}=[0-9]{1,9}(\.[0-9]{1,4})?", value)

    def __str__(self) -> str:
        return "of the form NAME=AMOUNT"


@dataclass(frozen=True)
class Flag:
    """Marks a field that has its own flag on the command line. It is used in `Annotated`. `--set` sets any field."""

    metavar: str = "N"
    """Placeholder of the value in `--help`."""


@dataclass(frozen=True)
class Example:
    """A value of a field for error messages, as it is typed, if none follows from its type. Used in `Annotated`."""

    example: str


class Unlimited:
    """Marks a float that may be infinite, but not NaN."""
