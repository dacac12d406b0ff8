"""The tables [policies.NAME]: which agents of a world a policy acts for, and its own settings.

Without a table, one policy (`DEFAULT_POLICY`) acts for all agents.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import TYPE_CHECKING, Any

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.unknown_keys import unknown_key
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import hints_of
from offbeat.core.fields import build, in_short, read
from offbeat.core.frozen_table import EMPTY, FrozenTable, PlainTable, in_toml

if TYPE_CHECKING:
    from offbeat.config.settings import AlgorithmSettings

Assignment = Callable[[str], str]
"""Returns the name of an agent's policy, from the name of the agent."""


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
    remedy = f"change the table [policies.{name}]"
    policy = build(PolicyConfig, table, f"{where}, table [policies.{name}]", remedy)
    if not policy.agents:
        raise ConfigError(f'{where}: the policy {name} has no agents: write agents = "PATTERN" in [policies.{name}]')
    return policy


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
    from offbeat.core.types import DEFAULT_POLICY  # not at the top: it loads NumPy

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
    from offbeat.core.types import DEFAULT_POLICY  # not at the top: it loads NumPy

    return tuple(sorted(policies)) or (DEFAULT_POLICY,)


# --- agents -------------------------------------------------------------------------------------------------


def owners(
    policies: Mapping[str, PolicyConfig], agents: Sequence[str], *, several: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return policy -> its agents, the policies sorted by name and the agents in the order of the world.

    Args:
        policies: in the order of their tables. Without one, a single policy owns all agents.
        agents: names of all agents of the world, in its order.
        several: whether an agent belongs to all policies that match it, not only to the first one.

    Raises:
        ConfigError: an agent matches no pattern, or a policy has no agent.
    """
    if not policies:
        return {names_of(())[0]: tuple(agents)}
    matching = {agent: _matching(agent, policies) for agent in agents}
    owners_of = matching if several else {agent: names[:1] for agent, names in matching.items()}
    owned = {name: tuple(agent for agent in agents if name in owners_of[agent]) for name in names_of(policies)}
    for name, own in owned.items():
        if not own:
            raise _no_agents(name, policies[name], {agent: names[0] for agent, names in owners_of.items()})
    return owned


def _matching(agent: str, policies: Mapping[str, PolicyConfig]) -> list[str]:
    """Return the policies that match an agent, in the order of their tables: at least one."""
    names = [name for name, policy in policies.items() if any(fnmatchcase(agent, pattern) for pattern in policy.agents)]
    if names:
        return names
    patterns = ", ".join(f"{', '.join(policy.agents)} ({name})" for name, policy in policies.items())
    raise ConfigError(
        f"the agent {in_short(agent)} belongs to no policy: it matches none of the patterns {patterns}. Add it to the "
        'agents of a policy, or add a last policy with agents = "*"'
    )


def _no_agents(name: str, policy: PolicyConfig, owner_of: Mapping[str, str]) -> ConfigError:
    """Return the error for a policy without agents."""
    for agent, owner in owner_of.items():
        if any(fnmatchcase(agent, pattern) for pattern in policy.agents):
            return ConfigError(
                f"the policy {name} has no agents: an earlier table matches all of them, such as that of {owner}, "
                f"which matches {agent}. Write the table [policies.{name}] above it"
            )
    return ConfigError(
        f"the policy {name} has no agents: {', '.join(policy.agents)} matches none of {', '.join(owner_of)}. Change "
        f"agents in the table [policies.{name}], or remove the table"
    )


def separate(agents: Sequence[str]) -> Policies:
    """Return one policy per agent, with the name of the agent; none for a single agent.

    Characters that a name cannot have become '_', and a number is added to a name that is taken.
    """
    if len(agents) == 1:
        return NO_POLICIES
    from offbeat.core.types import DEFAULT_POLICY  # not at the top: it loads NumPy

    taken = {DEFAULT_POLICY, *agents}
    policies: dict[str, PolicyConfig] = {}
    for agent in agents:
        fits = agent != DEFAULT_POLICY and is_name(agent)
        name = agent if fits else next(name for name in _names_for(agent) if name not in taken)
        taken.add(name)
        policies[name] = PolicyConfig((glob.escape(agent),))
    return FrozenTable(policies)


def _names_for(agent: str) -> Iterator[str]:
    """Yield valid names for an agent's policy, the nearest one first."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", agent)[: MAX_LENGTH - 8] or "agent"
    yield name
    yield from (f"{name}_{number}" for number in count(2))


def assigned(assignment: Assignment, agents: Sequence[str]) -> Policies:
    """Return the policies that a function assigns, each with a list of its agents.

    Raises:
        ConfigError: the function returns something else than a valid name.
    """
    lists: dict[str, list[str]] = {}
    for agent in agents:
        name = assignment(agent)
        if not isinstance(name, str):
            raise ConfigError(
                f"policies is a function that returns {in_short(name)} for the agent {agent}, but the name of a policy "
                "is expected: return text"
            )
        lists.setdefault(name, []).append(glob.escape(agent))
    require_names(lists)
    return FrozenTable({name: PolicyConfig(tuple(own)) for name, own in lists.items()})


# --- settings -----------------------------------------------------------------------------------------------


def settings_of(
    name: str, own: Mapping[str, Any], settings: AlgorithmSettings, runtime: RuntimeConfig
) -> AlgorithmSettings:
    """Return the algorithm's settings with the values of one policy.

    Args:
        name: the policy.
        own: its values, by key.
        settings: the settings of the run.
        runtime: the runtime and its layout.

    Raises:
        ConfigError: a key is unknown or belongs to the whole run, or a value is invalid.
    """
    where, hints = f"[policies.{name}.settings]", hints_of(type(settings))
    for key in own:
        if any(key in hints_of(table) for table in (RunConfig, EnvConfig, RuntimeConfig)):
            raise _of_whole_run(name, key)
        if key not in hints:
            raise unknown_key(key, own[key], hints, f"See {where}.")
    remedy = f"change it in {where}"
    values = {key: read(key, value, hints[key], remedy) for key, value in own.items()}
    try:
        changed = replace(settings, **values)
        changed.check(runtime)
        shared, memory = settings.memory(runtime), changed.memory(runtime)
    except ConfigError as error:
        raise ConfigError(f"the policy {name}, in {where}: {error}") from error
    if memory != shared:
        raise _of_whole_run(name, _changing_memory(values, settings, runtime))
    return changed


def _of_whole_run(name: str, keys: str) -> ConfigError:
    return ConfigError(
        f"[policies.{name}.settings] has {keys}, which all policies of a run share: set it for the whole run, and "
        "remove it there"
    )


def _changing_memory(values: Mapping[str, Any], settings: AlgorithmSettings, runtime: RuntimeConfig) -> str:
    """Return the keys that change the shape of the memory or its pace."""
    shared = settings.memory(runtime)
    keys = []
    for key, value in values.items():
        try:
            same = replace(settings, **{key: value}).memory(runtime) == shared
        except ConfigError:  # the key cannot be changed alone
            same = False
        keys += [] if same else [key]
    return " and ".join(keys or values)
