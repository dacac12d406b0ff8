"""Saves and restores the state of one Gymnasium env, bit for bit.

Supported are classic control, Gymnasium's MuJoCo envs, and any env with two methods, ``snapshot() -> State`` and
``restore(state)``, for its state between steps. Its `np_random`, the random generators of its spaces and its time limit
are saved for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs import classic_control
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.wrappers import TimeLimit

from offbeat.envs.adapters.gymnasium.action_repeat import ActionRepeat
from offbeat.envs.adapters.gymnasium.groups import AnyEnv
from offbeat.envs.adapters.gymnasium.mask_method import MaskInInfos
from offbeat.envs.contract import State
from offbeat.envs.env_generator import load_generator
from offbeat.envs.registration import MUJOCO_MODULES
from offbeat.envs.space_generators import load_generators, save_generators, separate_spaces, spaces_of
from offbeat.envs.task_wrapper import TaskWrapper


class Codec(NamedTuple):
    """How the state of one kind of env is read and written, without its np_random and wrappers."""

    save: Callable[[Any], State]
    load: Callable[[Any, State], None]


def can_save(env: AnyEnv) -> bool:
    """Return whether the whole state of an env and of its wrappers can be saved."""
    limits, inner = _unwrap(env)
    return all(type(limit) is TimeLimit for limit in limits) and _codec(inner) is not None


def save(env: AnyEnv) -> State:
    """Return the state of an env for which `can_save` is true: nested dicts of arrays and plain values."""
    limits, inner = _unwrap(env)
    codec = _codec(inner)
    assert codec is not None, f"the state of {inner} cannot be saved"
    return {
        "env": codec.save(inner),
        "random": inner.np_random.bit_generator.state,
        "spaces": save_generators(spaces_of(env)),
        "elapsed": {str(depth): limit._elapsed_steps for depth, limit in enumerate(limits)},  # noqa: SLF001
    }


def load(env: AnyEnv, state: State) -> None:
    """Restore a state that `save` returned. The env may be newly made; it needs no reset."""
    limits, inner = _unwrap(env)
    codec = _codec(inner)
    assert codec is not None, f"the state of {inner} cannot be saved"
    codec.load(inner, state["env"])
    load_generator(inner, state["random"])
    separate_spaces(env)
    load_generators(spaces_of(env), state["spaces"])
    for depth, limit in enumerate(limits):
        limit._elapsed_steps = state["elapsed"][str(depth)]  # noqa: SLF001


def _unwrap(env: AnyEnv) -> tuple[list[Any], Any]:
    """Return the wrappers that may have a state, outermost first, and the env itself."""
    wrappers: list[Any] = []
    while isinstance(env, gym.Wrapper):
        if type(env) not in (TaskWrapper, ActionRepeat, MaskInInfos):
            wrappers.append(env)
        env = env.env
    return wrappers, env


def _codec(env: Any) -> Codec | None:
    if callable(getattr(env, "snapshot", None)) and callable(getattr(env, "restore", None)):
        return Codec(lambda env: dict(env.snapshot()), lambda env, state: env.restore(state))
    if type(env) in _ATTRIBUTES:
        return _attributes_codec(*_ATTRIBUTES[type(env)])
    if type(env).__module__.startswith(MUJOCO_MODULES):
        return Codec(_save_mujoco, _load_mujoco)
    return None


# --- classic control: the state is in a few attributes -----------------------------------------------------

_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    CartPoleVectorEnv: ("state", "steps", "prev_done", "low", "high"),
    classic_control.CartPoleEnv: ("state", "steps_beyond_terminated"),
    classic_control.PendulumEnv: ("state",),
    classic_control.MountainCarEnv: ("state",),
    classic_control.Continuous_MountainCarEnv: ("state",),
    classic_control.AcrobotEnv: ("state",),
}


def _attributes_codec(*names: str) -> Codec:
    def save_attributes(env: Any) -> State:
        return {name: _plain(getattr(env, name)) for name in names}

    def load_attributes(env: Any, state: State) -> None:
        for name in names:
            setattr(env, name, _plain(state[name]))

    return Codec(save_attributes, load_attributes)


def _plain(value: Any) -> Any:
    """Return a copy that shares no memory with the env and has the same dtype."""
    return value if value is None or isinstance(value, int | float) else np.array(value)


# --- MuJoCo: the integration state, and the values that envs read from the last step ------------------------

_DERIVED = ("xpos", "xipos")
"""Body positions, which Ant and Humanoid subtract from those after the next step. They are one simulated frame behind
the integration state, so they are saved too: mj_forward would compute other values."""


def _save_mujoco(env: Any) -> State:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, integration, kind)
    return {"integration": integration, **{name: getattr(env.data, name).copy() for name in _DERIVED}}


def _load_mujoco(env: Any, state: State) -> None:
    import mujoco

    mujoco.mj_setState(env.model, env.data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for name in _DERIVED:
        getattr(env.data, name)[:] = state[name]
