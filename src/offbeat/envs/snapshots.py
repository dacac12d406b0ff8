"""The state of one Gymnasium env, saved and put back bit for bit.

Provided for classic control and for Gymnasium's MuJoCo envs. An env of your own takes part by having two
methods, ``snapshot() -> State`` and ``restore(state)``, for all that it keeps between steps. Its `np_random`
and its time limit are kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs import classic_control
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.wrappers import TimeLimit

from offbeat.envs.contract import State

AnyEnv = gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]


class Codec(NamedTuple):
    """How the state of one kind of env is read and written, its np_random and wrappers apart."""

    save: Callable[[Any], State]
    load: Callable[[Any, State], None]


def can_save(env: AnyEnv) -> bool:
    """Return whether all of the env's state is known, its wrappers included."""
    limits, inner = _peel(env)
    return all(type(limit) is TimeLimit for limit in limits) and _codec(inner) is not None


def save(env: AnyEnv) -> State:
    """Return the state of an env that `can_save`: nested dicts of arrays and plain values."""
    limits, inner = _peel(env)
    codec = _codec(inner)
    assert codec is not None, f"{inner} has no snapshots"
    return {
        "env": codec.save(inner),
        "random": inner.np_random.bit_generator.state,
        "elapsed": {str(depth): limit._elapsed_steps for depth, limit in enumerate(limits)},  # noqa: SLF001
    }


def load(env: AnyEnv, state: State) -> None:
    """Put back what `save` returned, into a fresh env of the same kind: no reset is needed."""
    limits, inner = _peel(env)
    codec = _codec(inner)
    assert codec is not None, f"{inner} has no snapshots"
    codec.load(inner, state["env"])
    inner.np_random.bit_generator.state = state["random"]
    for depth, limit in enumerate(limits):
        limit._elapsed_steps = state["elapsed"][str(depth)]  # noqa: SLF001


def _peel(env: AnyEnv) -> tuple[list[Any], Any]:
    """Return the wrappers, from the outside in, and the env itself."""
    wrappers: list[Any] = []
    while isinstance(env, gym.Wrapper):
        wrappers.append(env)
        env = env.env
    return wrappers, env


def _codec(env: Any) -> Codec | None:
    if callable(getattr(env, "snapshot", None)) and callable(getattr(env, "restore", None)):
        return Codec(lambda env: dict(env.snapshot()), lambda env, state: env.restore(state))
    if type(env) in _ATTRIBUTES:
        return _attributes_codec(*_ATTRIBUTES[type(env)])
    if type(env).__module__.startswith("gymnasium.envs.mujoco."):
        return Codec(_save_mujoco, _load_mujoco)
    return None


# --- classic control: everything is in a few attributes -----------------------------------------------------

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
    """Return a copy that shares nothing with the env; its dtype is kept, as arithmetic depends on it."""
    return value if value is None or isinstance(value, int | float) else np.array(value)


# --- MuJoCo: the integration state, and what the envs read of the last step ---------------------------------

_DERIVED = ("xpos", "xipos")
"""Body positions, which Ant and Humanoid subtract from those after the next step. They lag the integration
state by one simulated frame, so they are kept as they are; mj_forward would compute others."""


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
