"""`offbeat check`: what is wrong with an env, in words, before it spoils a run."""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsFloat

import gymnasium as gym
import numpy as np

from offbeat.envs.contract import Envs
from offbeat.envs.gymnasium import make_scalar, mujoco_warnings_once
from offbeat.envs.make import ENVPOOL, make_envs, registered
from offbeat.envs.rows import named
from offbeat.envs.spaces import random_actions
from offbeat.errors import ConfigError, EnvFailed
from offbeat.seeding import stream
from offbeat.types import Array, EnvSpec, Tree

SEED = 0
"""Of the actions and the envs of a check: the same faults are found every time."""

RESET_PARTS = ("observation", "info")
STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with an env."""

    severity: Literal["error", "warning"]
    """'error': a run would fail, or learn from wrong data. 'warning': it may be meant so."""
    seen: str
    remedy: str


def check_env(
    env_id: str, columns: int = 2, steps: int = 1000, kwargs: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Step an env with random actions, by itself and as an actor would, and say what is wrong.

    Args:
        env_id: as for `make_envs`.
        columns: envs to compare with each other.
        steps: env steps of each of them.
        kwargs: for the env's constructor.

    Returns:
        What was found, in the order in which it was met; nothing where all is well.

    Raises:
        ConfigError: the env cannot be made at all.
    """
    findings = [] if env_id.startswith(ENVPOOL) else list(_check_single(env_id, steps, kwargs or {}))
    if not any(finding.severity == "error" for finding in findings):
        findings += _check_columns(env_id, columns, steps, kwargs)
    return list(dict.fromkeys(findings))


def preflight(env_id: str, kwargs: Mapping[str, Any] | None = None, steps: int = 8) -> EnvSpec:
    """Take a few random steps in one column, before anything is created for a run; return what the env looks like.

    Raises:
        ConfigError: the env cannot be made, raises, or returns NaN or a wrong shape at once.
    """
    envs = make_envs(env_id, 1, seed=SEED, role="preflight", kwargs=kwargs)
    try:
        _walk(envs, steps)
    except EnvFailed as error:
        raise ConfigError(str(error)) from error
    finally:
        envs.close()
    return envs.spec


# --- one env, as Gymnasium defines it -----------------------------------------------------------------------


def _check_single(env_id: str, steps: int, kwargs: Mapping[str, Any]) -> Iterator[Finding]:
    entry = registered(env_id)
    if entry.entry_point is None:
        return
    make_envs(env_id, 1, seed=SEED, kwargs=kwargs).close()  # refuses what cannot be made or acted in
    with mujoco_warnings_once(entry):  # without a TimeLimit, which would unpack what it is given
        env = make_scalar(replace(entry, max_episode_steps=None), kwargs)
    try:
        ends = yield from _check_steps(env, steps)
    finally:
        env.close()
    if ends == 0 and entry.max_episode_steps is None and "max_episode_steps" not in kwargs:
        yield Finding(
            "warning",
            f"no episode ended in {steps} steps of random actions, and there is no time limit",
            "register the env with max_episode_steps, unless it is meant to go on for ever",
        )


def _check_steps(env: gym.Env[Any, Any], steps: int) -> Generator[Finding, None, int | None]:
    """Yield what is wrong with each call; return how many episodes ended, None where stepping had to stop."""
    env.action_space.seed(SEED)
    begins, ends = True, 0
    for step in range(steps):
        try:
            returned = env.reset(seed=None if step else SEED) if begins else env.step(env.action_space.sample())
        except Exception as error:  # noqa: BLE001 - whatever an env raises is what the user wants to read
            yield _raised("reset()" if begins else "step()", step, error)
            return None
        parts = RESET_PARTS if begins else STEP_PARTS
        if not isinstance(returned, tuple) or len(returned) != len(parts):
            expected = f"({', '.join(parts)})"
            call = "reset()" if begins else "step()"
            yield Finding("error", f"{call} returned {_kind(returned)}", f"return {expected}")
            return None
        yield from _check_parts(env.observation_space, dict(zip(parts, returned, strict=True)))
        begins = not begins and any(np.any(end) for end in returned[2:4])
        ends += begins
    return ends


def _raised(call: str, step: int, error: Exception) -> Finding:
    where = traceback.extract_tb(error.__traceback__)[-1]
    seen = f"{call}, call number {step}, raised {type(error).__name__}: {error}"
    return Finding("error", seen, f"see {where.filename}, line {where.lineno}: {where.line}")


def _check_parts(space: gym.Space[Any], parts: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _check_observation(space, parts["observation"])
    if "reward" in parts:
        yield from _check_reward(parts["reward"])
    for name in ("terminated", "truncated"):
        if not isinstance(parts.get(name, False), bool | np.bool_):
            yield Finding("error", f"{name} is {_kind(parts[name])}, not a bool", f"return bool({name})")
    if not isinstance(parts["info"], dict):
        yield Finding("warning", f"info is {_kind(parts['info'])}, not a dict", "return a dict: {} where it is empty")


def _check_observation(space: gym.Space[Any], observation: Any, name: str = "") -> Iterator[Finding]:
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space):
            seen = "the observation is not a dict with the keys that the observation space says"
            yield Finding("error", seen, f"return a dict with exactly the keys {sorted(space)}")
            return
        for key, part in space.items():
            yield from _check_observation(part, observation[key], f" {key!r}")
    elif isinstance(space, gym.spaces.Box):
        yield from _check_box(space, np.asarray(observation), f"the observation{name}")


def _check_box(space: gym.spaces.Box, value: Array, name: str) -> Iterator[Finding]:
    declared = np.dtype(space.dtype)
    if value.shape != space.shape:
        seen = f"{name} has shape {value.shape}, but the observation space says {space.shape}"
        yield Finding("error", seen, "return what the space declares, or declare what is returned")
        return
    if value.dtype != declared:
        severity: Literal["error", "warning"] = (
            "warning" if np.can_cast(value.dtype, declared, "same_kind") else "error"
        )
        seen = f"{name} is of {value.dtype}, but the observation space says {declared}"
        yield Finding(severity, seen, f"return it with .astype(np.{declared}), or declare {value.dtype}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        yield Finding("error", f"{name} has NaN or infinity", "look for a division by zero or a diverged simulation")
    elif np.any(value < space.low) or np.any(value > space.high):
        remedy = "clip the observation, or declare wider bounds (np.inf where there is none)"
        yield Finding("warning", f"{name} is outside the bounds of its space", remedy)


def _check_reward(reward: Any) -> Iterator[Finding]:
    if not isinstance(reward, SupportsFloat) or np.shape(np.asarray(reward)) != ():
        yield Finding("error", f"the reward is {_kind(reward)}, not a number", "return float(reward)")
    elif not np.isfinite(float(reward)):
        yield Finding("error", "the reward is NaN or infinite", "look for a division by zero or the log of zero")


def _kind(value: Any) -> str:
    """Return what a value is, without the value: findings that differ only there are one finding."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


# --- columns, as an actor steps them ------------------------------------------------------------------------


def _check_columns(env_id: str, columns: int, steps: int, kwargs: Mapping[str, Any] | None) -> Iterator[Finding]:
    walks = []
    for _ in range(2):
        envs = make_envs(env_id, columns, seed=SEED, role="check", kwargs=kwargs)
        try:
            walks.append(_walk(envs, steps))
        except EnvFailed as error:
            yield Finding("error", str(error), "correct what it names")
            return
        finally:
            envs.close()
    first, second = walks
    draw = "draw every random number from self.np_random, and begin reset() with super().reset(seed=seed)"
    if any(not np.array_equal(first[name], second[name]) for name in first):
        yield Finding("error", "the same seed and the same actions give different rows", draw)
    if columns > 1 and all(np.array_equal(leaf[:, 0], leaf[:, 1]) for leaf in first.values()):
        seen = "columns with different seeds give the same rows under the same actions"
        yield Finding("warning", seen, f"{draw}, unless the env is meant to be deterministic")


def _walk(envs: Envs, steps: int) -> Tree:
    """Return what became of the same random actions in all columns, name -> [steps + 1, N, ...]."""
    random = stream(SEED, "check actions")
    rows = [{name: leaf.copy() for name, leaf in envs.reset().items()}]
    zeros = np.zeros(envs.spec.columns, np.float32)
    rows[0] |= {"reward": zeros, "terminated": zeros, "truncated": zeros}
    for _ in range(steps):
        envs.send(np.repeat(random_actions(envs.spec.action, 1, random), envs.spec.columns, axis=0))
        outcome = envs.recv()
        rows.append({name: part.copy() for name, part in named(outcome).items() if name != "valid"})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
