"""Names of settings in other libraries, and what offbeat calls them: the table other_libraries.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class OtherName:
    """A setting of another library."""

    library: str
    page: str
    """Name of the page docs/how-to/coming-from/PAGE.md."""
    theirs: str
    ours: tuple[str, ...]
    """Our keys; each is of other algorithms."""
    differs: str
    """What to pass, if it is not the same value; ''."""

    def key_of(self, keys: Collection[str]) -> str:
        """Return our key: the first that is among the keys of a run, or else the first."""
        return next((key for key in self.ours if key in keys), self.ours[0])


@cache
def other_names() -> tuple[OtherName, ...]:
    """Return all names of the table."""
    return tuple(_read())


def _read() -> Iterator[OtherName]:
    text = (resources.files("offbeat") / "config" / "other_libraries.toml").read_text()
    for page, table in tomllib.loads(text).items():
        for theirs, given in table["names"].items():
            value, differs = (given["ours"], given["differs"]) if isinstance(given, dict) else (given, "")
            yield OtherName(
                table["library"], page, theirs, (value,) if isinstance(value, str) else tuple(value), differs
            )


def names_like(name: str) -> list[OtherName]:
    """Return what a name is in other libraries; an empty list if none has it."""
    return [other for other in other_names() if other.theirs == name]
