"""Gymnasium's locomotion envs of MuJoCo, version 5: what their steps read from MuJoCo and compute, for n envs at once.

The values are those of the `step` methods of Gymnasium's classes, bit for bit. Weights and limits are read from the
env. `mujoco_columns` steps the envs.
"""
# ruff: noqa: SLF001 - the weights and limits have no public names

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from offbeat.core.types import F64

Arrays = Mapping[str, F64]
"""Arrays of MuJoCo's data by name, [n, *shape]."""

GYMNASIUM = "1.4."
"""Start of the versions of Gymnasium whose envs are these. Another version may add numbers in another order."""


@dataclass(frozen=True)
class Locomotion:
    """One class of envs."""

    reads: tuple[str, ...]
    """Names of the arrays of MuJoCo's data that observations, costs and health need."""
    observed: Callable[[Any, Arrays], list[F64]]
    """(env, arrays) -> the parts of the observation, [n, *shape] each."""
    position: Callable[[Any], Callable[[], float]]
    """env -> a function that reads its position along the x axis, whose change per second is rewarded."""
    cost: Callable[[Any, NDArray[np.float32], Arrays], NDArray[Any]]
    """(env, actions, arrays) -> the costs of the actions and of the contacts, [n]."""
    healthy: Callable[[Any, Arrays], NDArray[np.bool_]] | None = None
    """(env, arrays) -> [n]: episodes end where it is false. None: they end by time alone."""

    @property
    def reads_contacts(self) -> bool:
        """Whether the contact forces, which MuJoCo computes only on request, are needed."""
        return "cfrc_ext" in self.reads

    def outcome(
        self, env: Any, moved: F64, actions: NDArray[np.float32], arrays: Arrays
    ) -> tuple[F64, NDArray[np.bool_] | bool]:
        """Return the rewards of a step of n envs, and where they terminated.

        Args:
            env: one of the envs.
            moved: how far each has moved along the x axis, [n].
            actions: their actions, [n, *shape].
            arrays: the arrays `reads` after the step.
        """
        rewards = env._forward_reward_weight * (moved / env.dt)
        if self.healthy is None:
            return rewards - self.cost(env, actions, arrays), False
        healthy = self.healthy(env, arrays)
        return rewards + healthy * env._healthy_reward - self.cost(env, actions, arrays), ~healthy


def locomotion_of(env: gym.Env[Any, Any]) -> Locomotion | None:
    """Return the record of an env without its wrappers; None if it is of no class, or of another version, than these.

    An env of a class that extends one of these has no record: it may override the methods. Nor has an env that a
    function made: only an id that names the class, without arguments, says that all arguments have their defaults.
    """
    name = f"{type(env).__module__}:{type(env).__qualname__}"
    if not gym.__version__.startswith(GYMNASIUM) or env.spec is None:
        return None
    return _CLASSES.get(name) if env.spec.entry_point == name and not env.spec.kwargs else None


# --- positions ----------------------------------------------------------------------------------------------


def _root_position(env: Any) -> Callable[[], float]:
    return _reader(env.data.qpos[:1])


def _torso_position(env: Any) -> Callable[[], float]:
    return _reader(env.data.xpos[env._main_body, :1])


def _reader(view: F64) -> Callable[[], float]:
    return view.item


def _mass_center(env: Any) -> Callable[[], float]:
    mass, positions = env.model.body_mass, env.data.xipos

    def read() -> float:
        return float(np.einsum("b,bj->j", mass, positions)[0] / mass.sum())

    return read


# --- observations -------------------------------------------------------------------------------------------


def _without_x(_env: Any, arrays: Arrays) -> list[F64]:
    return [arrays["qpos"][:, 1:], arrays["qvel"]]


def _without_x_clipped(_env: Any, arrays: Arrays) -> list[F64]:
    return [arrays["qpos"][:, 1:], np.clip(arrays["qvel"], -10, 10)]


def _without_xy(_env: Any, arrays: Arrays) -> list[F64]:
    return [arrays["qpos"][:, 2:], arrays["qvel"]]


def _with_contacts(env: Any, arrays: Arrays) -> list[F64]:
    return [*_without_xy(env, arrays), _clipped_contacts(env, arrays)[:, 1:]]


def _humanoid(env: Any, arrays: Arrays) -> list[F64]:
    bodies = [arrays[name][:, 1:] for name in ("cinert", "cvel")]
    return [*_without_xy(env, arrays), *bodies, arrays["qfrc_actuator"][:, 6:], arrays["cfrc_ext"][:, 1:]]


# --- costs --------------------------------------------------------------------------------------------------


def _squares(parts: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of squares of each env."""
    sums: NDArray[Any] = np.square(parts).reshape(len(parts), -1).sum(axis=1)
    return sums


def _control_cost(env: Any, actions: NDArray[Any], _arrays: Arrays) -> NDArray[Any]:
    cost: NDArray[Any] = env._ctrl_cost_weight * _squares(actions)
    return cost


def _clipped_contacts(env: Any, arrays: Arrays) -> F64:
    clipped: F64 = np.clip(arrays["cfrc_ext"], *env._contact_force_range)
    return clipped


def _cost_of_clipped_contacts(env: Any, actions: NDArray[np.float32], arrays: Arrays) -> NDArray[Any]:
    contacts = env._contact_cost_weight * _squares(_clipped_contacts(env, arrays))
    costs: NDArray[Any] = _control_cost(env, actions, arrays) + contacts
    return costs


def _clipped_cost_of_contacts(env: Any, _actions: NDArray[np.float32], arrays: Arrays) -> NDArray[Any]:
    """The cost of MuJoCo's controls, which are 0 and not the actions where it has reset a diverged simulation."""
    contacts = np.clip(env._contact_cost_weight * _squares(arrays["cfrc_ext"]), *env._contact_cost_range)
    costs: NDArray[Any] = _control_cost(env, arrays["ctrl"], arrays) + contacts
    return costs


# --- health -------------------------------------------------------------------------------------------------


def _between(values: F64, limits: tuple[float, float]) -> NDArray[np.bool_]:
    low, high = limits
    return (low < values) & (values < high)


def _walker_is_healthy(env: Any, arrays: Arrays) -> NDArray[np.bool_]:
    height, angle = arrays["qpos"][:, 1], arrays["qpos"][:, 2]
    return _between(height, env._healthy_z_range) & _between(angle, env._healthy_angle_range)


def _hopper_is_healthy(env: Any, arrays: Arrays) -> NDArray[np.bool_]:
    states = (arrays["qpos"][:, 2:], arrays["qvel"])
    in_range = [_between(state, env._healthy_state_range).all(axis=1) for state in states]
    return _walker_is_healthy(env, arrays) & in_range[0] & in_range[1]


def _ant_is_healthy(env: Any, arrays: Arrays) -> NDArray[np.bool_]:
    low, high = env._healthy_z_range
    height = arrays["qpos"][:, 2]
    finite = [np.isfinite(arrays[name]).all(axis=1) for name in ("qpos", "qvel")]
    healthy: NDArray[np.bool_] = finite[0] & finite[1] & (low <= height) & (height <= high)
    return healthy


def _humanoid_is_healthy(env: Any, arrays: Arrays) -> NDArray[np.bool_]:
    return _between(arrays["qpos"][:, 2], env._healthy_z_range)


# --- the classes --------------------------------------------------------------------------------------------

_STATE = ("qpos", "qvel")
_CLASSES = {
    f"gymnasium.envs.mujoco.{path}": record
    for path, record in {
        "half_cheetah_v5:HalfCheetahEnv": Locomotion(_STATE, _without_x, _root_position, _control_cost),
        "swimmer_v5:SwimmerEnv": Locomotion(_STATE, _without_xy, _root_position, _control_cost),
        "hopper_v5:HopperEnv": Locomotion(
            _STATE, _without_x_clipped, _root_position, _control_cost, _hopper_is_healthy
        ),
        "walker2d_v5:Walker2dEnv": Locomotion(
            _STATE, _without_x_clipped, _root_position, _control_cost, _walker_is_healthy
        ),
        "ant_v5:AntEnv": Locomotion(
            (*_STATE, "cfrc_ext"), _with_contacts, _torso_position, _cost_of_clipped_contacts, _ant_is_healthy
        ),
        "humanoid_v5:HumanoidEnv": Locomotion(
            (*_STATE, "ctrl", "cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
            _humanoid,
            _mass_center,
            _clipped_cost_of_contacts,
            _humanoid_is_healthy,
        ),
    }.items()
}
