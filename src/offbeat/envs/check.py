"""`check_env` finds the faults of an env, for `offbeat check`. `preflight` takes a few steps before each run."""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, SupportsFloat

import gymnasium as gym
import numpy as np

from offbeat.config.env import UNSET, EnvConfig
from offbeat.core.choices import allows_each
from offbeat.core.errors import ConfigError, EnvFailed, with_notes_of
from offbeat.core.fields import read
from offbeat.core.frozen_table import PlainTable, thawed
from offbeat.core.seeding import stream
from offbeat.core.types import INFO_MASK, ActionSpec, Array, EnvSpec, Tree
from offbeat.envs.actions import action_encoder, random_actions, split_columns
from offbeat.envs.contract import Envs, InfoSignals
from offbeat.envs.make import adapter_of, make_envs
from offbeat.envs.rows import mask_writer, named
from offbeat.envs.spaces import children, choices_of

SEED = 0
"""Seed of the envs and actions of a check, so that every check finds the same faults."""

RESET_PARTS = ("observation", "info")
STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")


@dataclass(frozen=True)
class Finding:
    """One fault of an env."""

    severity: Literal["error", "warning"]
    """'error': a run would fail or learn from wrong data. 'warning': it may be intended."""
    problem: str
    remedy: str


def check_env(
    env_id: str, columns: int = 2, steps: int = 1000, kwargs: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Step a single env and the envs of an actor with random actions, and return their faults.

    Args:
        env_id: Id of the env, as for `make_envs`.
        columns: Number of envs to compare with each other.
        steps: Number of env steps of each env.
        kwargs: Arguments of the env's constructor.

    Returns:
        The findings in the order in which they occurred; empty for a correct env.

    Raises:
        ConfigError: the env cannot be made.
    """
    settings = EnvConfig(kwargs=read("kwargs", kwargs or {}, PlainTable))
    findings = list(_check_single(env_id, steps, settings))
    if not any(finding.severity == "error" for finding in findings):
        findings += _check_columns(env_id, columns, steps, settings)
    return list(dict.fromkeys(findings))


def preflight(env_id: str, settings: EnvConfig = UNSET, steps: int = 8) -> EnvSpec:
    """Take a few random steps in one column, before a run creates anything; return the env's spec.

    Args:
        env_id: Id of the env, as for `make_envs`.
        settings: The table [env].
        steps: Number of env steps.

    Raises:
        ConfigError: the env cannot be made, or in these steps it raises an exception or returns NaN or a wrong shape.
    """
    try:
        with _started(env_id, 1, "preflight", settings) as (envs, first):
            _rollout(envs, first, steps)
            return replace(envs.spec, no_decision=isinstance(envs, InfoSignals) and envs.no_decision)
    except EnvFailed as error:
        raise with_notes_of(ConfigError(str(error)), error) from error


@contextmanager
def _started(env_id: str, columns: int, role: str, settings: EnvConfig) -> Iterator[tuple[Envs, Tree]]:
    """Make envs and reset them. If their infos have an action mask, make them again with a leaf for it."""
    make = partial(make_envs, env_id, columns, seed=SEED, role=role, settings=settings)
    with closing(make()) as envs:
        envs.set_progress(0.0)
        first = envs.reset()
        if not (isinstance(envs, InfoSignals) and envs.offers_mask):
            yield envs, first
            return
    with closing(make(info_mask=True)) as envs:
        envs.set_progress(0.0)
        yield envs, envs.reset()


# --- one env, as Gymnasium defines it -----------------------------------------------------------------------


def _check_single(env_id: str, steps: int, settings: EnvConfig) -> Iterator[Finding]:
    with closing(make_envs(env_id, 1, seed=SEED, settings=settings)) as envs:  # refuses what is not supported
        spec = envs.spec
    env = adapter_of(env_id).make_single(env_id, thawed(settings.kwargs))
    if env is None:
        return
    try:
        ends = yield from _check_steps(env, spec, steps)
    finally:
        env.close()
    if ends == 0 and spec.time_limit is None:
        yield Finding(
            "warning",
            f"no episode ended in {steps} random steps, and there is no time limit",
            "register the env with max_episode_steps, or train with --set max_episode_steps=N",
        )


def _check_steps(env: gym.Env[Any, Any], spec: EnvSpec, steps: int) -> Generator[Finding, None, int | None]:
    """Yield the faults of each call; return how many episodes ended, None if an error stopped the check."""
    actions, masks = _ActionSampler(spec.action), _MaskReader(spec)
    starts, ends = True, 0
    for step in range(steps):
        try:
            returned = env.reset(seed=None if step else SEED) if starts else env.step(actions.sample(masks.mask))
        except Exception as error:  # noqa: BLE001 - the user needs to see any exception
            yield _raised("reset()" if starts else "step()", step, error)
            return None
        parts = RESET_PARTS if starts else STEP_PARTS
        if not isinstance(returned, tuple) or len(returned) != len(parts):
            expected = f"({', '.join(parts)})"
            call = "reset()" if starts else "step()"
            yield Finding("error", f"{call} returned {_kind(returned)}", f"return {expected}")
            return None
        parts_by_name = dict(zip(parts, returned, strict=True))
        yield from _check_parts(env.observation_space, parts_by_name)
        starts = not starts and any(np.any(end) for end in returned[2:4])
        ends += starts
        finding = None if starts else masks.read(parts_by_name)
        if finding is not None:
            yield finding
            return None
    return ends


class _ActionSampler:
    """Samples the actions of a single env."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec, self._encode, self._random = spec, action_encoder(spec), stream(SEED, "check actions of one env")

    def sample(self, mask: Array | None) -> Any:
        actions = random_actions(self._spec, 1, self._random, None if mask is None else mask[None])
        return next(iter(split_columns(self._spec, self._encode(actions))))


class _MaskReader:
    """Reads the action masks of a single env, if it has any."""

    def __init__(self, spec: EnvSpec) -> None:
        self.mask: Array | None = None
        """[sum(nvec)] bool, for the next action."""
        self._name, self._nvec = spec.mask, spec.action.nvec
        self._started = False

    def read(self, parts: Mapping[str, Any]) -> Finding | None:
        """Store the mask of the next action; return its fault, None if there is none."""
        info = parts["info"] if isinstance(parts["info"], dict) else {}
        if not self._started and self._name is None and self._nvec and INFO_MASK in info:
            self._name = INFO_MASK
        self._started = True
        if self._name is None:
            return None
        given = info.get(INFO_MASK) if self._name == INFO_MASK else _observed(parts["observation"])
        return self._store(given)

    def _store(self, given: Any) -> Finding | None:
        size = sum(self._nvec)
        if given is None:
            return Finding(
                "error", "info has no action_mask, but it had one at the first reset", "return it in every step"
            )
        mask = np.zeros(size, np.bool_)
        try:
            mask_writer(mask)(given)
        except (TypeError, ValueError) as error:
            remedy = f"return a NumPy array of {size} flags, the components concatenated"
            return Finding("error", f"action_mask: {error}", remedy)
        if not allows_each(mask[None], self._nvec).all():
            problem = "action_mask allows no choice although the episode continues"
            return Finding("error", problem, "allow at least one choice, or end the episode there")
        self.mask = mask
        return None


def _observed(observation: Any) -> Any:
    return observation.get(INFO_MASK) if isinstance(observation, Mapping) else None


def _raised(call: str, step: int, error: Exception) -> Finding:
    where = traceback.extract_tb(error.__traceback__)[-1]
    problem = f"{call}, call number {step}, raised {type(error).__name__}: {error}"
    return Finding("error", problem, f"see {where.filename}, line {where.lineno}: {where.line}")


def _check_parts(space: gym.Space[Any], parts: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _check_observation(space, parts["observation"])
    if "reward" in parts:
        yield from _check_reward(parts["reward"])
    for name in ("terminated", "truncated"):
        if not isinstance(parts.get(name, False), bool | np.bool_):
            yield Finding("error", f"{name} is {_kind(parts[name])}, not a bool", f"return bool({name})")
    if not isinstance(parts["info"], dict):
        yield Finding("warning", f"info is {_kind(parts['info'])}, not a dict", "return a dict, {} if it is empty")


def _check_observation(space: gym.Space[Any], observation: Any, name: str = "the observation") -> Iterator[Finding]:
    parts, choices = children(space), choices_of(space)
    if parts is not None:
        finding = _check_structure(space, observation, name)
        if finding is not None:
            yield finding
            return
        for key, part in parts:
            yield from _check_observation(part, observation[key], f"{name} {key!r}")
    elif choices is not None:
        yield from _check_choices(space, np.asarray(observation), *choices, name)
    elif isinstance(space, gym.spaces.Box):
        yield from _check_box(space, np.asarray(observation), name)


def _check_structure(space: gym.Space[Any], observation: Any, name: str) -> Finding | None:
    """Return the fault of an observation that is not the dict or tuple that its space declares."""
    if isinstance(space, gym.spaces.Dict):
        if isinstance(observation, Mapping) and set(observation) == set(space):
            return None
        problem = f"{name} is not a dict with the keys of the observation space"
        return Finding("error", problem, f"return a dict with exactly the keys {sorted(space)}")
    expected = len(children(space) or ())
    if isinstance(observation, tuple) and len(observation) == expected:
        return None
    problem = f"{name} is {_kind(observation)}, but the observation space declares a tuple of {expected}"
    return Finding("error", problem, f"return a tuple of {expected}")


def _check_choices(
    space: gym.Space[Any], value: Array, choices: tuple[int, ...], start: tuple[int, ...], name: str
) -> Iterator[Finding]:
    if value.shape != space.shape:
        problem = f"{name} has shape {value.shape}, but the observation space declares {space.shape}"
        yield Finding("error", problem, "return what the space declares, or declare what is returned")
    elif value.dtype.kind not in "iub":
        problem = f"{name} is of {value.dtype}, but the observation space declares whole numbers, {space}"
        yield Finding("error", problem, "return whole numbers, or declare a Box")
    else:
        first = np.array(start or [0] * len(choices))
        numbers = value.reshape(-1) - first
        if ((numbers < 0) | (numbers >= np.array(choices))).any():
            remedy = "return numbers in [start, start + n), or declare the choices that the env returns"
            yield Finding("error", f"{name} is not one of the choices of its space, {space}", remedy)


def _check_box(space: gym.spaces.Box, value: Array, name: str) -> Iterator[Finding]:
    declared = np.dtype(space.dtype)
    if value.shape != space.shape:
        problem = f"{name} has shape {value.shape}, but the observation space declares {space.shape}"
        yield Finding("error", problem, "return what the space declares, or declare what is returned")
        return
    if value.dtype != declared:
        severity: Literal["error", "warning"] = (
            "warning" if np.can_cast(value.dtype, declared, "same_kind") else "error"
        )
        problem = f"{name} is of {value.dtype}, but the observation space declares {declared}"
        yield Finding(severity, problem, f"return it with .astype(np.{declared}), or declare {value.dtype}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        yield Finding("error", f"{name} has NaN or infinity", "check for a division by zero or a diverged simulation")
    elif np.any(value < space.low) or np.any(value > space.high):
        remedy = "clip the observation, or declare wider bounds (np.inf for no bound)"
        yield Finding("warning", f"{name} is outside the bounds of its space", remedy)


def _check_reward(reward: Any) -> Iterator[Finding]:
    if not isinstance(reward, SupportsFloat) or np.shape(np.asarray(reward)) != ():
        yield Finding("error", f"the reward is {_kind(reward)}, not a number", "return float(reward)")
    elif not np.isfinite(float(reward)):
        yield Finding("error", "the reward is NaN or infinite", "check for a division by zero or the log of zero")


def _kind(value: Any) -> str:
    """Return the kind of a value, without the value itself, so that equal findings are reported once."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


# --- columns, as an actor steps them ------------------------------------------------------------------------


def _check_columns(env_id: str, columns: int, steps: int, settings: EnvConfig) -> Iterator[Finding]:
    rollouts = []
    for _ in range(2):
        try:
            with _started(env_id, columns, "check", settings) as (envs, first):
                rollouts.append(_rollout(envs, first, steps))
        except EnvFailed as error:
            yield Finding("error", str(error), "fix the problem that the message names")
            return
    first, second = rollouts
    remedy = "sample all random numbers from self.np_random, and start reset() with super().reset(seed=seed)"
    if any(not np.array_equal(first[name], second[name]) for name in first):
        yield Finding("error", "the same seed and the same actions give different rows", remedy)
    if columns > 1 and all(np.array_equal(leaf[:, 0], leaf[:, 1]) for leaf in first.values()):
        problem = "columns with different seeds give the same rows under the same actions"
        yield Finding("warning", problem, f"{remedy}, unless the env is deterministic on purpose")


def _rollout(envs: Envs, first: Tree, steps: int) -> Tree:
    """Take the same random actions in all columns; return the rows, name -> [steps + 1, N, ...], the first included."""
    random = stream(SEED, "check actions")
    rows = [{name: leaf.copy() for name, leaf in first.items()}]
    zeros = np.zeros(envs.spec.columns, np.float32)
    rows[0] |= {"reward": zeros, "terminated": zeros, "truncated": zeros}
    for _ in range(steps):
        envs.send(_same_actions(envs.spec, rows[-1], random))
        outcome = envs.recv()
        rows.append({name: part.copy() for name, part in named(outcome).items() if name != "valid"})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _same_actions(spec: EnvSpec, row: Tree, random: np.random.Generator) -> Array:
    """Return one random action for all columns, [N, *shape]; with masks, the same for columns with equal masks."""
    if spec.mask is None:
        return np.repeat(random_actions(spec.action, 1, random), spec.columns, axis=0)
    seed = int(random.integers(2**32))
    sampled = [random_actions(spec.action, 1, np.random.default_rng(seed), mask[None]) for mask in row[spec.mask]]
    return np.concatenate(sampled)
