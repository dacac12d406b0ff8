"""Which policy acts for which agents of a world: by the patterns of the tables, one each, or as a function says."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count

from offbeat.config.policies import (
    MAX_LENGTH,
    NO_POLICIES,
    Policies,
    PolicyConfig,
    is_name,
    names_of,
    require_names,
)
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.frozen_table import FrozenTable
from offbeat.core.policy_names import DEFAULT_POLICY

Assignment = Callable[[str], str]
"""Returns the name of an agent's policy, from the name of the agent."""


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
