"""Gymnasium's envs of one group, made: an env's own vector env where there is one, else a list of single envs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from offbeat.core.errors import ConfigError
from offbeat.envs.limits import NO_LIMITS, Limits, limited, time_limit_of

AnyVectorEnv = VectorEnv[Any, Any, Any]
AnyEnv = gym.Env[Any, Any]

_LIMIT = "max_episode_steps"
"""The argument, and the attribute, by which vector envs have a time limit: Gymnasium wraps none around them."""


class Source(NamedTuple):
    """The envs of one group."""

    envs: AnyVectorEnv | list[AnyEnv]
    own: int | None
    """Their own time limit, as far as it is known."""
    limits: Limits
    """Those that they were given; an own one that is shorter stays."""


def make_source(registered: RegisteredEnv, columns: int, kwargs: Mapping[str, Any], limits: Limits) -> Source:
    """Make the envs of one group: single ones where a vector env cannot be given the limit of the run.

    Raises:
        ConfigError: there is only a vector env, and it does not reset in NEXT_STEP order or cannot be limited.
    """
    reason = ""
    if registered.vector_entry_point is not None and not registered.additional_wrappers:
        made = _make_vector(registered, columns, kwargs, limits)
        if isinstance(made, Source):
            return made
        reason = made
    if registered.entry_point is None:
        raise ConfigError(
            f"{registered.id} has only a vector env, and it {reason}, or register an entry_point for single envs"
        )
    envs = [make_scalar(registered, kwargs) for _ in range(columns)]
    return Source([limited(env, limits) for env in envs], time_limit_of(envs[0]), limits)


def _make_vector(registered: RegisteredEnv, columns: int, kwargs: Mapping[str, Any], limits: Limits) -> Source | str:
    """Make an env's own vector env; or return why it will not do, and the remedy."""
    own, settable = _vector_limit(registered, kwargs)
    wanted = limits.shorter_than(own) if settable else None
    given = kwargs if wanted is None else {**kwargs, _LIMIT: wanted}
    vector = gym.make_vec(registered, columns, vectorization_mode="vector_entry_point", **given)
    if not settable:
        own, limits = _declared(vector), Limits(limits.run)
    if vector.metadata.get("autoreset_mode") is not AutoresetMode.NEXT_STEP:
        vector.close()
        return _WRONG_ORDER
    if not settable and limits.shorter_than(own) is not None:
        vector.close()
        return f"cannot be given max_episode_steps={limits.run}: give its constructor an argument of this name"
    return Source(vector, own, limits)


_WRONG_ORDER = (
    "does not reset in NEXT_STEP order, in which no true next observation is lost: give it "
    "metadata['autoreset_mode'] = AutoresetMode.NEXT_STEP"
)


def _vector_limit(registered: RegisteredEnv, kwargs: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return the limit that a vector env has if it is given no other, and whether it can be given one."""
    maker = registered.vector_entry_point
    argument = _argument(load_env_creator(maker) if isinstance(maker, str) else maker)
    default = argument.default if argument is not None and isinstance(argument.default, int) else None
    registered_kwargs = registered.kwargs or {}
    own = kwargs.get(_LIMIT, registered_kwargs.get(_LIMIT, registered.max_episode_steps))
    # Gymnasium hands a registered limit to every vector env, so one that has it takes another too.
    return default if own is None else own, argument is not None or registered.max_episode_steps is not None


def _argument(maker: Any) -> inspect.Parameter | None:
    """Return the constructor's argument for the limit, if it has one."""
    try:
        return inspect.signature(maker).parameters.get(_LIMIT)
    except (TypeError, ValueError):  # of some compiled code nothing is known
        return None


def _declared(vector: AnyVectorEnv) -> int | None:
    """Return the limit that a vector env says it has."""
    limit = getattr(vector, _LIMIT, None)
    return limit if isinstance(limit, int) else None


def make_scalar(registered: RegisteredEnv, kwargs: Mapping[str, Any], limits: Limits = NO_LIMITS) -> AnyEnv:
    """Make one env without the wrappers that check every step: offbeat has its own checks."""
    return limited(gym.make(replace(registered, order_enforce=False), disable_env_checker=True, **kwargs), limits)


@contextmanager
def mujoco_warnings_once(registered: RegisteredEnv) -> Iterator[None]:
    """While envs are made: pass on what MuJoCo says of their model as a Python warning, which is shown once.

    By itself it prints the same line for every column, and writes it to a file in the working directory.
    """
    if not str(registered.entry_point).startswith("gymnasium.envs.mujoco.") or find_spec("mujoco") is None:
        yield
        return
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_pass_on)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _pass_on(text: str) -> None:
    """Leave out that Gymnasium's models use deprecated attributes: there is nothing a user could do about it."""
    if "deprecated" not in text:
        warnings.warn(text, stacklevel=2)
