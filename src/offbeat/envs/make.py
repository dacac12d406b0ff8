"""`make_envs` makes the envs of one actor from an id, with the adapter of the env's library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from offbeat.config.env import ADAPTERS, KWARGS_SYNTAX, UNSET, EnvConfig, adapter_prefix
from offbeat.core.closing import closed_on_error
from offbeat.core.constructor_arguments import require_arguments
from offbeat.core.errors import FAILURES, ConfigError, OffbeatError, type_and_text, with_traceback_of
from offbeat.core.seeding import derive_seed
from offbeat.core.tasks import TaskSample
from offbeat.envs.contract import Adapter, EnvRequest, Envs, Limits, TaskEnvs
from offbeat.envs.observations import stacked
from offbeat.envs.opengl import opengl_remedy
from offbeat.envs.previous_inputs import with_previous_inputs
from offbeat.envs.registration import maker_in, missing_package
from offbeat.envs.worlds.contract import WorldAdapter


def adapter_of(env_id: str) -> Adapter | WorldAdapter:
    """Return the adapter of an env, by the prefix of its id."""
    return _load_adapter(adapter_prefix(env_id))


def single_agent_adapter(env_id: str) -> Adapter:
    """Return the adapter of an env with one agent.

    Raises:
        ConfigError: the envs of its library have several.
    """
    adapter = adapter_of(env_id)
    if isinstance(adapter, WorldAdapter):
        raise ConfigError(f"{env_id} is a world with several agents, but an env with one agent is expected here")
    return adapter


def _load_adapter(prefix: str) -> Adapter | WorldAdapter:
    return cast("Adapter | WorldAdapter", import_module(ADAPTERS[prefix]).ADAPTER)


def list_envs() -> list[str]:
    """Return the ids of all envs whose packages are installed."""
    return [env_id for prefix in ADAPTERS for env_id in _load_adapter(prefix).ids()]


def make_envs(
    env_id: str,
    columns: int,
    *,
    seed: int,
    actor: int = 0,
    origin: int = 0,
    groups: int = 1,
    role: str = "env",
    settings: EnvConfig = UNSET,
    info_mask: bool = False,
    cut_after: int | None = None,
    tasks: TaskSample | None = None,
) -> Envs:
    """Make the envs of one actor; `.spec` describes them. They are `Snapshots` if their whole state can be saved.

    The random stream of a column is keyed by (seed, role, actor, origin, column). The columns of a vector env share the
    stream of the first one.

    Args:
        env_id: An id of Gymnasium ('module:ID' included), 'envpool:ID', or 'module:Class' (or a function).
        columns: Number of envs of this actor, N.
        seed: Seed of the run.
        actor: Index of the actor.
        origin: Ticket at which the episodes start: 0, or the ticket at which a resume starts new episodes.
        groups: Number of groups of equal size that are stepped in turn.
        role: Purpose of the envs; evaluation has its own random streams.
        settings: The table [env]. Unset values have the defaults of the env.
        info_mask: Whether to read a leaf 'action_mask' from the infos; `preflight` finds out.
        cut_after: Env steps after which an evaluation cuts an episode. Vector envs without such a limit ignore it.
        tasks: The tasks that the envs can be set to; the envs are then `TaskEnvs`. None: the envs have one task.

    Raises:
        ConfigError: the env is unknown, a package is missing, or a space, a setting or `tasks` is not supported.
    """
    settings = settings.completed(env_id)
    seeds = tuple(derive_seed(seed, role, actor, origin, column) for column in range(columns))
    limits = Limits(settings.max_episode_steps, cut_after)
    request = EnvRequest(env_id, groups_of(columns, groups), seeds, settings, limits, info_mask, tasks)
    try:
        envs = single_agent_adapter(env_id).make(request)
    except OffbeatError:
        raise
    except FAILURES as error:
        raise cannot_make(env_id, request.kwargs, error) from error
    with closed_on_error([envs]):
        if envs.spec.mask is not None and settings.action_repeats > 1:
            raise ConfigError(
                f"frame_skip is {settings.action_repeats}, but {env_id} has action masks, and a mask holds for one "
                "step: in the next one the repeated action may not be allowed. Leave it out, or repeat actions in a "
                "wrapper"
            )
        envs.spec = stacked(envs.spec, settings.frame_stack or 1)
        if tasks is not None:
            task_envs(envs)
        return with_previous_inputs(envs, settings)


def task_envs(envs: Envs) -> TaskEnvs:
    """Return envs as envs with tasks.

    Raises:
        ConfigError: their library has no tasks.
    """
    if isinstance(envs, TaskEnvs):
        return envs
    raise ConfigError(
        f"{envs.spec.id} has no tasks: use a Gymnasium env with the methods set_task and sample_tasks, such as "
        "offbeat/PointRobot-v0"
    )


def groups_of(columns: int, groups: int) -> tuple[slice, ...]:
    """Return the slices of `groups` groups of equal size of an actor's envs.

    Raises:
        ConfigError: the number of groups does not divide the number of envs.
    """
    if columns < 1 or groups < 1 or columns % groups:
        raise ConfigError(
            f"{columns} envs per actor cannot be split into {groups} groups of equal size: "
            "pass a number of envs per actor that the number of groups divides, both at least 1"
        )
    size = columns // groups
    return tuple(slice(first, first + size) for first in range(0, columns, size))


def cannot_make(env_id: str, kwargs: Mapping[str, Any], error: BaseException) -> ConfigError:
    """Return the error of an env that could not be made with these arguments, with the traceback of the env's code."""
    given = f" with the arguments {dict(kwargs)}" if kwargs else ""
    error = _raised_by_env(error)
    message = (
        missing_package(env_id)
        or _wrong_arguments(env_id, kwargs, error)
        or f"{env_id} cannot be made{given} ({type_and_text(error)}): {_remedy(env_id, kwargs, error)}"
    )
    return with_traceback_of(ConfigError(message), error)


def _remedy(env_id: str, kwargs: Mapping[str, Any], error: BaseException) -> str:
    lacks = re.search(r"has no attribute '((?:observation|action)_space)'", str(error))
    if isinstance(error, AttributeError) and lacks:
        return f"set self.{lacks[1]} in its __init__"
    if remedy := opengl_remedy(error):
        return remedy
    if isinstance(error, ImportError) and adapter_prefix(env_id):
        return "install what its library needs"
    return f"{_call(env_id, kwargs)} in Python to see where it fails"


def _wrong_arguments(env_id: str, kwargs: Mapping[str, Any], error: BaseException) -> str:
    """Return which argument of a registered env's constructor is missing or unknown; '' if that was not the reason."""
    entry = gym.registry.get(env_id.rpartition(":")[2])
    if not isinstance(error, TypeError) or adapter_prefix(env_id) or entry is None or entry.entry_point is None:
        return ""
    point = entry.entry_point
    try:
        maker = load_env_creator(point) if isinstance(point, str) else point
        require_arguments(env_id, maker, {**entry.kwargs, **kwargs}, KWARGS_SYNTAX)
    except ConfigError as refused:
        return str(refused)
    return ""


def _call(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Return how an env is made in Python."""
    if adapter_prefix(env_id):
        return "make it"
    module, _, name = env_id.rpartition(":")
    named = [f"{key}={value!r}" for key, value in kwargs.items()]
    if module and maker_in(module, name) is not None:
        return f"run `import {module}; {module}.{name}({', '.join(named)})`"
    return f"run `import gymnasium; gymnasium.make({', '.join([repr(env_id), *named])})`"


def _raised_by_env(error: BaseException) -> BaseException:
    """Return the exception that an env's constructor raised, if this is Gymnasium's copy of it with a longer text."""
    cause = error.__cause__
    return cause if type(cause) is type(error) and str(error).startswith(f"{cause} was raised") else error
