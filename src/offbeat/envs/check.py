"""`offbeat check`: what is wrong with an env, in words, before it spoils a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

import gymnasium as gym
import numpy as np

from offbeat.envs.contract import Envs
from offbeat.envs.gymnasium import make_scalar
from offbeat.envs.make import ENVPOOL, make_envs, registered
from offbeat.envs.rows import named
from offbeat.envs.spaces import random_actions
from offbeat.errors import ConfigError, EnvFailed
from offbeat.seeding import stream
from offbeat.types import Array, Tree

SEED = 0
"""Of the actions and the envs of a check: the same faults are found every time."""


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


def preflight(env_id: str, kwargs: Mapping[str, Any] | None = None, steps: int = 8) -> None:
    """Take a few random steps in one column, before anything is created for a run.

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


# --- one env, as Gymnasium defines it -----------------------------------------------------------------------


def _check_single(env_id: str, steps: int, kwargs: Mapping[str, Any]) -> Iterator[Finding]:
    entry = registered(env_id)
    if entry.entry_point is None:
        return
    make_envs(env_id, 1, seed=SEED, kwargs=kwargs).close()  # refuses what cannot be made or acted in
    env = make_scalar(entry, kwargs)
    try:
        yield from _check_episodes(env, steps)
    finally:
        env.close()


def _check_episodes(env: gym.Env[Any, Any], steps: int) -> Iterator[Finding]:
    """Yield what is wrong in so many steps, and stop where no further step makes sense."""
    env.action_space.seed(SEED)
    begins, ended = True, False
    for step in range(steps):
        call = f"reset() before step {step}" if begins else f"step() number {step}"
        try:
            returned = (
                env.reset(seed=SEED if step == 0 else None) if begins else env.step(env.action_space.sample())
            )
        except Exception as error:  # noqa: BLE001 - whatever an env raises is what the user wants to read
            yield Finding(
                "error", f"{call} raised {type(error).__name__}: {error}", "read its traceback: step the env"
            )
            return
        yield from _check_returned(env, call, returned, begins)
        if not isinstance(returned, tuple) or len(returned) != (2 if begins else 5):
            return
        begins = not begins and any(np.any(end) for end in returned[2:4])
        ended = ended or begins
    if not ended and (env.spec is None or env.spec.max_episode_steps is None):
        yield Finding(
            "warning",
            f"no episode ended in {steps} steps of random actions, and there is no time limit",
            "register the env with max_episode_steps, unless it is meant to go on for ever",
        )


def _check_returned(env: gym.Env[Any, Any], call: str, returned: Any, begins: bool) -> Iterator[Finding]:
    parts = "(observation, info)" if begins else "(observation, reward, terminated, truncated, info)"
    if not isinstance(returned, tuple) or len(returned) != (2 if begins else 5):
        yield Finding("error", f"{call} returned {_brief(returned)}, not {parts}", f"return {parts}")
        return
    yield from _check_observation(env.observation_space, returned[0])
    if not begins:
        yield from _check_reward(returned[1])
        yield from _check_ends(returned[2], returned[3])
    if not isinstance(returned[-1], dict):
        yield Finding(
            "warning", f"info is {_brief(returned[-1])}, not a dict", f"return {parts} with a dict at the end"
        )


def _check_observation(
    space: gym.Space[Any], call: str, observation: Any, name: str = ""
) -> Iterator[Finding]:
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space):
            keys = f"the keys {sorted(space)}"
            yield Finding(
                "error", f"{call} gave the observation {_brief(observation)}", f"return a dict with {keys}"
            )
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
        yield Finding(
            "error", f"{name} has NaN or infinity", "look for a division by zero or a diverged simulation"
        )
    elif np.any(value < space.low) or np.any(value > space.high):
        remedy = "clip the observation, or declare wider bounds (np.inf where there is none)"
        yield Finding("warning", f"{name} is outside the bounds of its space", remedy)


def _check_reward(reward: Any) -> Iterator[Finding]:
    if not isinstance(reward, SupportsFloat) or np.shape(np.asarray(reward)) != ():
        yield Finding("error", f"the reward is {_brief(reward)}, not a number", "return float(reward)")
    elif not np.isfinite(float(reward)):
        yield Finding(
            "error", "the reward is NaN or infinite", "look for a division by zero or the log of zero"
        )


def _check_ends(terminated: Any, truncated: Any) -> Iterator[Finding]:
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            yield Finding("error", f"{name} is {_brief(value)}, not a bool", f"return bool({name})")


def _brief(value: Any) -> str:
    """Return the value's type and its beginning."""
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"


# --- columns, as an actor steps them ------------------------------------------------------------------------


def _check_columns(
    env_id: str, columns: int, steps: int, kwargs: Mapping[str, Any] | None
) -> Iterator[Finding]:
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
