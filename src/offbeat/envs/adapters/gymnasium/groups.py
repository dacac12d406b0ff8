"""Makes the Gymnasium envs of one group: the env's own vector env if it has one, otherwise a list of single envs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import TimeLimit

from offbeat.config.env import EnvConfig
from offbeat.config.importing import import_path
from offbeat.core.closing import all_or_closed, close_or_warn, closed_on_error
from offbeat.core.errors import ConfigError, type_and_text, with_traceback_of
from offbeat.core.frozen_table import thawed
from offbeat.core.importable import is_importable
from offbeat.envs.adapters.gymnasium.action_repeat import ActionRepeat
from offbeat.envs.adapters.gymnasium.mask_method import with_masks_in_infos
from offbeat.envs.contract import NO_LIMITS, EnvRequest, Limits, shortest
from offbeat.envs.registration import MUJOCO_MODULES
from offbeat.envs.render_mode import accepts_render_mode, require_render_mode

AnyVectorEnv = VectorEnv[Any, Any, Any]
SingleEnv = gym.Env[Any, Any]
AnyEnv = SingleEnv | AnyVectorEnv

_LIMIT = "max_episode_steps"
"""Argument and attribute for the time limit of vector envs: Gymnasium has no time limit wrapper for them."""


class Group(NamedTuple):
    """The envs of one group."""

    envs: AnyVectorEnv | list[SingleEnv]
    own_limit: int | None
    """The env's own time limit; None if there is none, or it is not known."""
    limits: Limits
    """The limits that were requested. A shorter limit of the env itself still applies."""

    @property
    def objects(self) -> Sequence[AnyEnv]:
        """The single envs, or the vector env."""
        return self.envs if isinstance(self.envs, list) else [self.envs]

    @property
    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """The observation space and the action space of one env."""
        if isinstance(self.envs, list):
            return self.envs[0].observation_space, self.envs[0].action_space
        return self.envs.single_observation_space, self.envs.single_action_space

    def close(self) -> None:
        """Close all envs."""
        for env in self.objects:
            env.close()


def make_group(registered: RegisteredEnv, columns: int, request: EnvRequest) -> Group:
    """Make the envs of one group: single envs if the vector env does not accept the time limit of the run.

    Args:
        registered: The entry of the env in Gymnasium's registry.
        columns: Number of columns of the group.
        request: What is asked for. Tasks, wrappers and repeated actions need single envs.

    Raises:
        ConfigError: there is only a vector env, and single envs are asked for, or it does not reset in NEXT_STEP order
            or accepts no time limit.
    """
    kwargs, limits, settings = request.kwargs, request.limits, request.settings
    reason = _needs_single_envs(request, registered)
    if registered.vector_entry_point is not None and not reason:
        made = _make_vector(registered, columns, kwargs, limits)
        if isinstance(made, Group):
            return made
        reason = made
    if registered.entry_point is None:
        raise ConfigError(
            f"{registered.id} has only a vector env, which {reason}, or register an entry_point for single envs"
        )
    envs = all_or_closed(
        make_single(registered, kwargs, wrappers=settings.wrappers, frame_skip=settings.action_repeats)
        for _ in range(columns)
    )
    own = _time_limit_of(envs[0])
    limit = limits.shorter_than(own)
    return Group(envs if limit is None else [TimeLimit(env, limit) for env in envs], own, limits)


def _needs_single_envs(request: EnvRequest, registered: RegisteredEnv) -> str:
    """Return why a vector env does not do, with a remedy; '' if it does."""
    if registered.additional_wrappers:
        return "cannot have the wrappers that it is registered with: leave them out"
    if request.settings.action_repeats > 1:
        return "cannot repeat actions: leave frame_skip out"
    if request.settings.wrappers:
        return "cannot have wrappers: leave them out"
    return "" if request.tasks is None else "cannot have a task for each env: use an env with single envs"


def _make_vector(registered: RegisteredEnv, columns: int, kwargs: Mapping[str, Any], limits: Limits) -> Group | str:
    """Make an env's own vector env, or return why it cannot be used, with a remedy."""
    own, settable = _vector_limit(registered, kwargs)
    limit = limits.shorter_than(own) if settable else None
    arguments = kwargs if limit is None else {**kwargs, _LIMIT: limit}
    vector = gym.make_vec(registered, columns, vectorization_mode="vector_entry_point", **arguments)
    if not settable:
        own, limits = _declared(vector), Limits(limits.run)
    if vector.metadata.get("autoreset_mode") is not AutoresetMode.NEXT_STEP:
        close_or_warn(vector, registered.id)
        return _WRONG_ORDER
    if not settable and limits.shorter_than(own) is not None:
        close_or_warn(vector, registered.id)
        return f"does not accept max_episode_steps={limits.run}: add an argument of this name to its constructor"
    return Group(vector, own, limits)


_WRONG_ORDER = (
    "does not reset in NEXT_STEP order, the only one that keeps the true next observation: set "
    "metadata['autoreset_mode'] = AutoresetMode.NEXT_STEP"
)


def _vector_limit(registered: RegisteredEnv, kwargs: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return the default time limit of a vector env, and whether it accepts another one."""
    maker = registered.vector_entry_point
    argument = _argument(load_env_creator(maker) if isinstance(maker, str) else maker)
    default = argument.default if argument is not None and isinstance(argument.default, int) else None
    registered_kwargs = registered.kwargs or {}
    own = kwargs.get(_LIMIT, registered_kwargs.get(_LIMIT, registered.max_episode_steps))
    # Gymnasium passes a registered limit to the constructor, so a vector env with one accepts another.
    return default if own is None else own, argument is not None or registered.max_episode_steps is not None


def _argument(maker: Any) -> inspect.Parameter | None:
    """Return the constructor's parameter for the time limit; None if it has none."""
    try:
        return inspect.signature(maker).parameters.get(_LIMIT)
    except (TypeError, ValueError):  # compiled code may have no signature
        return None


def _declared(vector: AnyVectorEnv) -> int | None:
    """Return the time limit that a vector env has as an attribute; None if it has none."""
    limit = getattr(vector, _LIMIT, None)
    return limit if isinstance(limit, int) else None


def make_single(
    registered: RegisteredEnv,
    kwargs: Mapping[str, Any],
    limits: Limits = NO_LIMITS,
    *,
    wrappers: Sequence[str] = (),
    frame_skip: int = 1,
) -> SingleEnv:
    """Make one env without the wrappers that check every step: offbeat has its own checks.

    Args:
        registered: Its entry in Gymnasium's registry.
        kwargs: Arguments of its constructor.
        limits: Limits of its episodes.
        wrappers: Paths of wrappers, the innermost first.
        frame_skip: Steps of the env, in its wrappers, per env step.

    Raises:
        ConfigError: a wrapper cannot be imported, or raised an exception.
    """
    env = gym.make(replace(registered, order_enforce=False), disable_env_checker=True, **kwargs)
    with closed_on_error([env]):
        for wrapper in wrappers:
            env = _wrapped(env, wrapper, registered.id)
        env = with_masks_in_infos(env)
    if frame_skip > 1:
        env = ActionRepeat(env, frame_skip)
    limit = limits.shorter_than(_time_limit_of(env))
    return env if limit is None else TimeLimit(env, limit)


def make_in_mode(registered: RegisteredEnv, settings: EnvConfig, render_mode: str) -> SingleEnv:
    """Make one env that is rendered in a mode.

    Raises:
        ConfigError: it has no argument render_mode, and has another mode; or as `make_single`.
    """
    kwargs, limits = thawed(settings.kwargs), Limits(settings.max_episode_steps)
    outside: dict[str, Any] = {"wrappers": settings.wrappers, "frame_skip": settings.action_repeats}
    point = registered.entry_point
    maker = load_env_creator(point) if isinstance(point, str) else point
    if maker is None or accepts_render_mode(maker):
        kwargs["render_mode"] = render_mode
        return make_single(registered, kwargs, limits, **outside)
    env = make_single(registered, kwargs, limits, **outside)
    with closed_on_error([env]):
        require_render_mode(registered.id, maker, env, render_mode)
    return env


def _wrapped(env: SingleEnv, wrapper: str, env_id: str) -> SingleEnv:
    """Return an env in a wrapper, given as its path."""
    make = import_path(wrapper)
    try:
        wrapped = make(env)
    except Exception as error:
        refused = ConfigError(
            f"the wrapper {wrapper} cannot wrap {env_id} ({type_and_text(error)}): it is called with the env "
            "alone. If it needs arguments, pass as the env my_module:my_function, which makes the env and wraps it"
        )
        raise with_traceback_of(refused, error) from error
    if not isinstance(wrapped, gym.Env):
        raise ConfigError(
            f"the wrapper {wrapper} returned a {type(wrapped).__name__}, but an env is expected: pass a class that "
            "extends gymnasium.Wrapper"
        )
    return wrapped


def _time_limit_of(env: Any) -> int | None:
    """Return the shortest limit of the TimeLimit wrappers around a single env, in steps of it; None if there is none.

    A limit that the env itself implements is not known here.
    """
    limits, steps = [], 1
    while isinstance(env, gym.Wrapper):
        if isinstance(env, ActionRepeat):
            steps = env.steps_per_action
        if isinstance(env, TimeLimit):
            inside = env._max_episode_steps  # noqa: SLF001 - there is no public attribute
            limits.append(-(-inside // steps))  # the step that reaches the limit is the last one
        env = env.env
    return shortest(*limits)


@contextmanager
def mujoco_warnings_once(registered: RegisteredEnv) -> Iterator[None]:
    """While entered, turn MuJoCo's messages about a model into Python warnings, which are shown once.

    By default MuJoCo prints the same message for every column and writes it to a file in the working directory.
    """
    if not str(registered.entry_point).startswith(MUJOCO_MODULES) or not is_importable("mujoco"):
        yield
        return
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_warn)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _warn(text: str) -> None:
    """Show a warning, except for deprecated attributes in Gymnasium's models, which a user cannot change."""
    if "deprecated" not in text:
        warnings.warn(text, stacklevel=2)
