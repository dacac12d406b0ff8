"""Names of settings in other libraries, and what offbeat calls them: the table other_libraries.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class OtherName:
    """A setting of another library."""

    library: str
    page: str
    """Name of the page docs/how-to/coming-from/PAGE.md."""
    theirs: str
    ours: Mapping[str, str]
    """Our keys, each of other algorithms -> what to pass, if it is not the same value; ''."""

    def key_of(self, keys: Collection[str]) -> str:
        """Return our key: the first that is among the keys of a run, or else the first."""
        return next((key for key in self.ours if key in keys), next(iter(self.ours)))


@cache
def other_names() -> tuple[OtherName, ...]:
    """Return all names of the table."""
    return tuple(_read())


def _tables() -> dict[str, Any]:
    text = (resources.files("offbeat") / "config" / "other_libraries.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _read() -> Iterator[OtherName]:
    for page, table in _tables().items():
        for theirs, given in table["names"].items():
            keys = [_key_and_difference(each) for each in (given if isinstance(given, list) else [given])]
            yield OtherName(table["library"], page, theirs, dict(keys))


def _key_and_difference(given: str | dict[str, str]) -> tuple[str, str]:
    """Return a key of ours, and what to pass if it is not the same value."""
    return (given, "") if isinstance(given, str) else (given["ours"], given["differs"])


def names_like(name: str) -> list[OtherName]:
    """Return what a name is in other libraries; an empty list if none has it."""
    return [other for other in other_names() if other.theirs == name]


@cache
def other_calls() -> dict[str, str]:
    """Return the methods and arguments of other libraries of which offbeat has other ones: name -> what to write."""
    return {
        name: f"{name} is a name of {table['library']}; in offbeat, {instead}"
        for table in _tables().values()
        for name, instead in table.get("calls", {}).items()
    }
