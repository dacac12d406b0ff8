"""Reads what `policies` can be: shared, separate, a TOML file, tables, or a function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.config.policy_agents import Assignment
from offbeat.config.trust import policies_code, require
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.files import user_path
from offbeat.core.toml_files import read_toml


@dataclass(frozen=True)
class PolicyChoice:
    """The policies that the caller has chosen."""

    kind: object
    """The value of `policies` in [run], unchecked."""
    tables: Mapping[str, Any] | None = None
    """The tables [policies.NAME], unchecked; None: none are given."""
    assignment: Assignment | None = None
    source: Path | None = None
    """The file of the tables."""

    def require_code(self) -> None:
        """Refuse code that the file names, if it is neither installed nor named by the caller.

        Raises:
            ConfigError: with the code. Nothing of it was imported.
        """
        if self.source is not None:
            require(policies_code(self.tables), str(self.source))


def choice_of(given: object) -> PolicyChoice:
    """Return the choice for a given value of `policies`.

    Raises:
        ConfigError: the file cannot be read, or has something else than tables of policies, or a function needs other
            arguments than the name of an agent.
    """
    if callable(given):
        _require_one_argument(given)
        return PolicyChoice("tables", assignment=given)
    if isinstance(given, Mapping):
        return PolicyChoice("tables", given)
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".toml")):
        file = user_path(given)
        return PolicyChoice("tables", _tables_in(file), source=file)
    if given in ("shared", "separate"):
        return PolicyChoice(given)
    raise ConfigError(
        f"policies is {in_short(given)}, but shared, separate or a file with tables [policies.NAME] is expected: pass "
        "--policies shared, --policies separate or --policies FILE.toml"
    )


def _require_one_argument(assignment: Assignment) -> None:
    """Refuse a function that cannot be called with the name of an agent alone."""
    with suppress(ValueError):  # a function in C may have no signature
        signature = inspect.signature(assignment)
        try:
            signature.bind("agent")
        except TypeError:
            raise ConfigError(
                f"policies is a function of {signature}, but it is called with the name of an agent alone, once for "
                "the whole run: write such a function. To draw a policy in each episode, write tables [policies.NAME] "
                "that match the same agents, and pass --set league.draw_policies=true"
            ) from None


def _tables_in(path: Path) -> Mapping[str, Any]:
    """Return the tables [policies.NAME] of a file, which may be the config.toml of a run."""
    form = 'a table begins with [policies.hunter], and has lines such as agents = "hunter_*"'
    tables = read_toml(path, f"policies: {path}", if_unreadable="pass a TOML file", if_invalid=form)
    own = tables.pop("policies", None)
    if {"run", "env", "runtime"} <= tables.keys():  # the config.toml of a run, of which only the policies are taken
        tables = {}
    if tables or not isinstance(own, Mapping) or not own:
        found = f"has {', '.join(tables)}" if tables else "has no policy"
        raise ConfigError(
            f"policies: {path} {found}, but only tables [policies.NAME] are expected: settings of the run "
            "do not belong in this file"
        )
    return own
