"""The tables [policies.NAME]: one for each policy of a run with several, with its name, agents and own settings.

Without a table, one policy (`DEFAULT_POLICY`) acts for all agents. `policy_agents` says which agents a policy has, and
`policy_settings` which settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from offbeat.core.errors import ConfigError, suggestion
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import build, in_short
from offbeat.core.frozen_table import EMPTY, FrozenTable, PlainTable, in_toml
from offbeat.core.policy_names import DEFAULT_POLICY


@dataclass(frozen=True)
class PolicyConfig:
    """One policy of a run with several: its agents, and what differs from the settings of the run."""

    agents: tuple[str, ...]
    """Patterns of the names of its agents, with the wildcards *, ? and [...]. An agent belongs to the policy with the
    first pattern that matches, in the order of the tables; with `league.draw_policies`, to all that match."""
    train: bool = True
    """Whether it learns; a policy that does not learn acts with its initial weights."""
    init_from: str | None = None
    """Run directory whose weights are its initial weights; none: that of the run's `init_from`, if it is given. A
    policy that does not learn needs one of the two."""
    init_policy: str | None = None
    """Name of the policy of that run whose weights are taken; none: the one with the same name, or the only one."""
    settings: PlainTable = EMPTY
    """Values that differ from the algorithm's own table, by key. Keys that change when actors act, how often policies
    learn, or the layout of the memory can only be set for the whole run."""


Policies = FrozenTable[PolicyConfig]
NO_POLICIES: Policies = FrozenTable()
MAX_LENGTH = 100
"""Largest number of characters of a policy's name."""


def read_policies(tables: object, where: str) -> Policies:
    """Return the policies in the tables [policies.NAME], in their order.

    Args:
        tables: name -> table, unchecked.
        where: the source of the tables, for messages.

    Raises:
        ConfigError: a name, a key or a value is invalid.
    """
    if not isinstance(tables, Mapping) or any(not isinstance(name, str) for name in tables):
        raise ConfigError(
            f"{where}: policies is {in_short(tables)}, but a table for each policy is expected: write "
            '[policies.NAME] with agents = "PATTERN"'
        )
    policies = FrozenTable({name: _read_policy(name, table, where) for name, table in tables.items()})
    require_names(policies)
    return policies


def tables_of(policies: Mapping[str, PolicyConfig]) -> dict[str, dict[str, Any]]:
    """Return the tables [policies.NAME] as a TOML file has them."""
    return {name: in_toml(asdict(policy)) for name, policy in policies.items()}


def _read_policy(name: str, table: object, where: str) -> PolicyConfig:
    if isinstance(table, Mapping):
        table = {key: in_toml(value) for key, value in table.items()}
        for key in table:
            if key not in hints_of(PolicyConfig):
                raise ConfigError(f"{where}, table [policies.{name}]: unknown key {key!r}.{_meant_by(key)}")
    remedy = f"change the table [policies.{name}]"
    policy = build(PolicyConfig, table, f"{where}, table [policies.{name}]", remedy)
    if not policy.agents:
        raise ConfigError(f'{where}: the policy {name} has no agents: write agents = "PATTERN" in [policies.{name}]')
    return policy


def _meant_by(key: str) -> str:
    """Return what to write instead of an unknown key of a policy's table."""
    if key == "algorithm":
        return " All policies of a run have its algorithm: leave it out"
    *keys, last = hints_of(PolicyConfig)
    return (
        f"{suggestion(key, (*keys, last))} Its keys are {', '.join(keys)} and {last}, which has the values that differ "
        "from the algorithm's own table"
    )


def require_weights(policies: Mapping[str, PolicyConfig], init_from: str | None) -> None:
    """Refuse policies that would act with random weights for the whole run, or that name a policy of no run.

    Args:
        policies: the tables.
        init_from: that of the whole run.

    Raises:
        ConfigError: with the policy and the remedy.
    """
    for name, policy in policies.items():
        where = f'write init_from = "RUN" in [policies.{name}], or pass --init-from RUN'
        source = policy.init_from or init_from
        if not policy.train and source is None:
            raise ConfigError(f"the policy {name} does not learn (train = false), but it has no weights: {where}")
        if policy.init_policy is not None and source is None:
            raise ConfigError(
                f"the policy {name} has init_policy {in_short(policy.init_policy)}, but no run to take it from: {where}"
            )
    if policies and not any(policy.train for policy in policies.values()):
        raise ConfigError(
            f"none of the policies {', '.join(policies)} learns: remove train = false from one of their tables, or run "
            "`offbeat eval`"
        )


def is_name(text: str) -> bool:
    """Whether a text can be the name of a policy."""
    return re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_LENGTH}}}", text) is not None


def require_names(names: Iterable[str]) -> None:
    """Refuse invalid names of policies: they are parts of the names of files and metrics.

    Raises:
        ConfigError: with the characters that a name can have.
    """
    names = list(names)
    for name in names:
        if not is_name(name):
            raise ConfigError(
                f"a policy has the name {in_short(name)}, but 1 to {MAX_LENGTH} letters, digits, _ and - are expected: "
                "rename it"
            )
    if DEFAULT_POLICY in names and len(names) > 1:
        raise ConfigError(
            f"a policy has the name {DEFAULT_POLICY!r}, which only the single policy of a run can have: rename it"
        )


def names_of(policies: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a run's policies in the order in which they are trained: sorted."""
    return tuple(sorted(policies)) or (DEFAULT_POLICY,)
