"""Refuses an env, as it is installed now, that does not fit the policies that are to act in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.core.errors import ConfigError
from offbeat.core.fields import in_short
from offbeat.core.types import EnvSpec, in_brief
from offbeat.envs.checking.preflight import preflight_world
from offbeat.envs.worlds.contract import WorldSpec

INSTALL_TRAINED = "install the version of the env that the run was trained with (see versions.json in its directory)"
"""What to do if the installed env is another one than that of the training."""


def world_for(trained: Trained, owners: Mapping[str, Sequence[str]]) -> WorldSpec:
    """Return the agents and spaces of an env, after a few test steps.

    Raises:
        ConfigError: its agents are not those that the policies act for; or policies of other agents are missing.
    """
    world = preflight_world(trained.env, trained.env_config, saves=False)
    acted_for = [agent for agents in owners.values() for agent in agents]
    owned = sorted(set(acted_for) if trained.sides else acted_for)  # several policies of an agent only if one is drawn
    if world is not None and all(owners.values()) and set(owned) < set(world.names):
        raise policies_missing(trained.env, [agent for agent in world.names if agent not in owned])
    if world is None or sorted(world.names) != owned or not all(owners.values()):
        now = ", ".join(map(in_short, world.names)) if world else "a single one"
        raise ConfigError(
            f"the agents of {trained.env} are {now}, but the policies were trained with "
            f"{', '.join(map(in_short, owned))}: {INSTALL_TRAINED}"
        )
    return world


def policies_missing(env_id: str, agents: Sequence[str]) -> ConfigError:
    """Return the error for agents of a world for which no policy is given."""
    return ConfigError(
        f"no policy is given for {', '.join(map(in_short, agents))} of {env_id}: pass the run, or all its policies, "
        f"offbeat.load_all(run). If the run has no other policies, {INSTALL_TRAINED}"
    )


def require_env_fit(loaded: LoadedPolicy, env: EnvSpec) -> None:
    """Refuse an env whose observation or action spec differs from that of a policy.

    Raises:
        ConfigError: with the difference.
    """
    spec, action = loaded.acting_policy.spec, env.action
    known = (spec.action.kind, spec.action.shape, spec.action.nvec)
    same = spec.observation == env.observation
    different = "actions" if same else "observations"
    now, then = (action, spec.action) if same else (env.observation, spec.observation)
    if not same or known != (action.kind, action.shape, action.nvec):
        of = f" of {', '.join(env.agents)}" if env.agents else ""
        raise ConfigError(
            f"the {different}{of} of {env.id} differ from those that the policy was trained with ({in_brief(now)}, "
            f"not {in_brief(then)}): pass an env with the same {different}, or {INSTALL_TRAINED}"
        )
