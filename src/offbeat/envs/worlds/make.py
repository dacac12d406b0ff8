"""Makes worlds, envs with several agents, and finds out their agents and spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym

from offbeat.config.curriculum import parameters
from offbeat.config.env import KWARGS_SYNTAX, UNSET, EnvConfig, adapter_prefix, refuse_for_world
from offbeat.core.closing import all_or_closed, close_or_warn, closed_on_error
from offbeat.core.constructor_arguments import require_arguments
from offbeat.core.errors import FAILURES, ConfigError, OffbeatError
from offbeat.core.frozen_table import thawed
from offbeat.core.seeding import derive_seed
from offbeat.core.types import INFO_MASK, NO_DECISION, EnvSpec
from offbeat.envs.adapters.pettingzoo.agents import api_of
from offbeat.envs.adapters.pettingzoo.kinds import world_of
from offbeat.envs.contract import Limits
from offbeat.envs.make import adapter_of, cannot_make, groups_of
from offbeat.envs.observations import observation_leaves, stacked
from offbeat.envs.previous_inputs import with_previous_inputs
from offbeat.envs.progress import progress_setters
from offbeat.envs.registration import own_maker
from offbeat.envs.render_mode import accepts_render_mode, require_render_mode
from offbeat.envs.reproduce import env_flags
from offbeat.envs.spaces import action_spec
from offbeat.envs.worlds.contract import PoliciesOf, World, WorldAdapter, WorldSpec, WorldStep
from offbeat.envs.worlds.worlds import Worlds


def marks_decisions(world: World, first: WorldStep) -> bool:
    """Whether a world marks rows without a decision from its first reset, `first`, on: by turns, or in its infos."""
    return world.turns or any(NO_DECISION in info for info in first.infos.values())


def make_world(env_id: str, kwargs: Mapping[str, Any]) -> World | None:
    """Make one world; return None if the env has only one agent.

    Args:
        env_id: an id with the prefix of a library of worlds, or 'module:name' of a class or function that makes a
            parallel or turn-based env with PettingZoo's API.
        kwargs: arguments of the env's constructor.

    Raises:
        ConfigError: the env is unknown, a package is missing, or the env cannot be made.
    """
    try:
        return _make_world(env_id, kwargs)
    except OffbeatError:
        raise
    except FAILURES as error:
        raise cannot_make(env_id, kwargs, error) from error


def _make_world(env_id: str, kwargs: Mapping[str, Any], render_mode: str | None = None) -> World | None:
    kwargs = thawed(kwargs)
    if adapter_prefix(env_id):
        adapter = adapter_of(env_id)
        return adapter.make_world(env_id, kwargs, render_mode) if isinstance(adapter, WorldAdapter) else None
    maker = own_maker(env_id)
    if maker is None:
        return None
    try:
        require_arguments(env_id, maker, kwargs, KWARGS_SYNTAX)
    except ConfigError:
        if isinstance(maker, type) and not hasattr(maker, "reset"):
            raise _no_env(env_id, maker, None) from None  # arguments would not help
        raise
    if isinstance(maker, type) and issubclass(maker, gym.Env):
        return None
    modes = {"render_mode": render_mode} if render_mode is not None and accepts_render_mode(maker) else {}
    env: Any = maker(**kwargs, **modes)
    with closed_on_error([env]):
        if render_mode is not None and not modes:
            require_render_mode(env_id, maker, env, render_mode)
        if not isinstance(env, gym.Env):
            if api_of(env) is None:
                raise _no_env(env_id, maker, env)
            return world_of(env)
    close_or_warn(env, env_id)
    return None


def _no_env(env_id: str, maker: object, made: object) -> ConfigError:
    """Return the error for a class or function whose object is not an env."""
    if isinstance(made, gym.vector.VectorEnv):
        return ConfigError(
            f"{env_id} is a vector env, which gets the number of its envs by an id: write gymnasium.register("
            f'"MyEnv-v0", vector_entry_point="{env_id}") in the module, and pass "{env_id.partition(":")[0]}:MyEnv-v0"'
        )
    if isinstance(maker, type):
        what = "is not the class of an env"
    else:
        returned = "None" if made is None else f"a {type(made).__name__}"
        what = f"returned {f'the class {made.__name__}' if isinstance(made, type) else returned}, which is not an env"
    return ConfigError(
        f"{env_id} {what}: pass a class that extends gymnasium.Env, or a function that returns an env. An env with "
        "several agents has possible_agents, observation_space, action_space, reset and step, as pettingzoo.ParallelEnv"
    )


def make_worlds(
    spec: WorldSpec,
    count: int,
    owners: Mapping[str, Sequence[str]],
    *,
    seed: int,
    actor: int = 0,
    origin: int = 0,
    groups: int = 1,
    role: str = "env",
    settings: EnvConfig = UNSET,
    cut_after: int | None = None,
    policies_of: PoliciesOf | None = None,
) -> Worlds:
    """Make the worlds of one actor.

    The random stream of a world is keyed by (seed, role, actor, origin, world), as that of a single env by its column.

    Args:
        spec: from `spec_of_world`.
        count: number of worlds of this actor.
        owners: the agents of each policy, by its name, in the order of the world.
        seed: seed of the run.
        actor: index of the actor.
        origin: ticket at which the episodes start.
        groups: number of groups of equal size that are stepped in turn.
        role: purpose of the worlds; evaluation has its own random streams.
        settings: the table [env].
        cut_after: steps of the world after which an evaluation cuts an episode.
        policies_of: as for `Worlds`.

    Raises:
        ConfigError: a world cannot be made, or the agents of one policy have different spaces.
    """
    settings = settings.completed(spec.id)
    limits = Limits(settings.max_episode_steps, cut_after)
    flags = env_flags(spec.id, settings)  # of these worlds: those of an evaluation may have other arguments
    agents = ((name, replace(limits.spec_with_limits(agent, None), flags=flags)) for name, agent in spec.agents)
    limited = replace(spec, agents=tuple(agents))
    made = all_or_closed(_require_world(make_world(spec.id, settings.kwargs), spec.id) for _ in range(count))
    with closed_on_error(made):
        worlds = Worlds(
            limited,
            made,
            owners,
            groups=groups_of(count, groups),
            seeds=[derive_seed(seed, role, actor, origin, world) for world in range(count)],
            limit=limits.shorter_than(None),
            curriculum=parameters(settings.curriculum),
            policies_of=policies_of,
        )
        worlds.envs = {policy: with_previous_inputs(envs, settings) for policy, envs in worlds.envs.items()}
        return worlds


def _require_world(world: World | None, env_id: str) -> World:
    """Return a world, or raise ConfigError for None: an earlier env of this id had several agents."""
    if world is None:
        raise ConfigError(f"{env_id} had several agents when it was tested, and has one now: make it always alike")
    return world


def make_renderable_world(env_id: str, settings: EnvConfig, render_mode: str) -> World:
    """Make one world that can be rendered, with the final parameters of the curriculum.

    Exceptions of the env's constructor are not caught.

    Args:
        env_id: as for `make_world`.
        settings: the table [env].
        render_mode: 'human' or 'rgb_array'.

    Raises:
        ConfigError: the env is unknown, or it cannot be rendered in this mode.
    """
    settings = settings.completed(env_id)
    world = _require_world(_make_world(env_id, settings.kwargs, render_mode), env_id)
    with closed_on_error([world]):
        for set_progress in progress_setters(world.env, parameters(settings.curriculum), env_id):
            set_progress(1.0)
    return world


# --- its agents and their spaces ---------------------------------------------------------------------------


def spec_of_world(env_id: str, world: World, first: WorldStep, settings: EnvConfig) -> WorldSpec:
    """Return the agents of a world and their spaces; `first`: what its first reset returned.

    Raises:
        ConfigError: a space or a setting is not supported.
    """
    refuse_for_world(settings, env_id)
    agents = tuple((agent, _agent_spec(env_id, world, agent, first, settings)) for agent in world.agents)
    return WorldSpec(env_id, agents)


def _agent_spec(env_id: str, world: World, agent: str, first: WorldStep, settings: EnvConfig) -> EnvSpec:
    where = f"{env_id}, agent {agent}"
    action = action_spec(world.action_space(agent), where, in_world=True)
    info_mask = bool(action.nvec) and _has_info_mask(world, agent, first)
    spec = EnvSpec(
        id=env_id,
        observation=observation_leaves(
            world.observation_space(agent),
            where,
            action,
            settings,
            info_mask=info_mask,
            others=map(world.observation_space, world.agents),
        ),
        action=action,
        columns=1,
        frame_skip=world.frame_skip,
        info=settings.info_metrics,
        agents=(agent,),
        flags=env_flags(env_id, settings),
    )
    return stacked(spec, settings.frame_stack or 1)


def _has_info_mask(world: World, agent: str, first: WorldStep) -> bool:
    """Whether the infos of an agent have an action mask. One that decides nothing at first is as others of its kind."""

    def is_alike(other: str) -> bool:
        spaces = (world.action_space, world.observation_space)
        return all(space(agent) == space(other) for space in spaces)

    alike = [agent] if agent in first.deciding else [agent, *filter(is_alike, first.deciding)]
    return any(INFO_MASK in first.infos.get(each, {}) for each in alike)
