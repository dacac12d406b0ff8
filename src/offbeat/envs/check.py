"""`offbeat check`: what is wrong with an env, in words, before it spoils a run."""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, SupportsFloat

import gymnasium as gym
import numpy as np

from offbeat.config.env import ENVPOOL, UNSET, EnvConfig, family_of
from offbeat.core.choices import allows_each
from offbeat.core.errors import ConfigError, EnvFailed, with_notes_of
from offbeat.core.seeding import stream
from offbeat.core.types import INFO_MASK, ActionSpec, Array, EnvSpec, Tree
from offbeat.envs.adapters.gymnasium import GymnasiumEnvs
from offbeat.envs.contract import Envs
from offbeat.envs.encoding import action_encoder, apart
from offbeat.envs.make import make_envs, registered
from offbeat.envs.rows import mask_writer, named
from offbeat.envs.sources import make_scalar, mujoco_warnings_once
from offbeat.envs.spaces import children, choices_of, random_actions

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
    pooled = env_id.startswith(ENVPOOL) or family_of(env_id) is not None  # no single env is ever stepped
    findings = [] if pooled else list(_check_single(env_id, steps, kwargs or {}))
    if not any(finding.severity == "error" for finding in findings):
        findings += _check_columns(env_id, columns, steps, kwargs)
    return list(dict.fromkeys(findings))


def preflight(
    env_id: str, settings: EnvConfig = UNSET, kwargs: Mapping[str, Any] | None = None, steps: int = 8
) -> EnvSpec:
    """Take a few random steps in one column, before anything is created for a run; return what the env looks like.

    `asked` is what else `make_envs` is asked for: info_metrics, curriculum.

    Raises:
        ConfigError: the env cannot be made, raises, or returns NaN or a wrong shape at once.
    """
    try:
        with _begun(env_id, 1, "preflight", settings, kwargs) as (envs, first):
            _walk(envs, first, steps)
            return replace(envs.spec, no_decision=isinstance(envs, GymnasiumEnvs) and envs.no_decision)
    except EnvFailed as error:
        raise with_notes_of(ConfigError(str(error)), error) from error


@contextmanager
def _begun(
    env_id: str, columns: int, role: str, settings: EnvConfig, kwargs: Mapping[str, Any] | None
) -> Iterator[tuple[Envs, Tree]]:
    """Make envs and reset them; once more, with a leaf for the mask, where their infos turn out to have one."""
    make = partial(make_envs, env_id, columns, seed=SEED, role=role, settings=settings, kwargs=kwargs)
    with closing(make()) as envs:
        envs.set_progress(0.0)
        first = envs.reset()
        if not (isinstance(envs, GymnasiumEnvs) and envs.offers_mask):
            yield envs, first
            return
    with closing(make(info_mask=True)) as envs:
        envs.set_progress(0.0)
        yield envs, envs.reset()


# --- one env, as Gymnasium defines it -----------------------------------------------------------------------


def _check_single(env_id: str, steps: int, kwargs: Mapping[str, Any]) -> Iterator[Finding]:
    entry = registered(env_id)
    if entry.entry_point is None:
        return
    with closing(make_envs(env_id, 1, seed=SEED, kwargs=kwargs)) as envs:  # refuses what cannot be made or acted in
        spec = envs.spec
    with mujoco_warnings_once(entry):  # without a TimeLimit, which would unpack what it is given
        env = make_scalar(replace(entry, max_episode_steps=None), kwargs)
    try:
        ends = yield from _check_steps(env, spec, steps)
    finally:
        env.close()
    if ends == 0 and spec.time_limit is None:
        yield Finding(
            "warning",
            f"no episode ended in {steps} steps of random actions, and there is no time limit",
            "register the env with max_episode_steps, or train with --set max_episode_steps=N",
        )


def _check_steps(env: gym.Env[Any, Any], spec: EnvSpec, steps: int) -> Generator[Finding, None, int | None]:
    """Yield what is wrong with each call; return how many episodes ended, None where stepping had to stop."""
    actions, masks = _Actions(spec.action), _Masks(spec)
    begins, ends = True, 0
    for step in range(steps):
        try:
            returned = env.reset(seed=None if step else SEED) if begins else env.step(actions.draw(masks.mask))
        except Exception as error:  # noqa: BLE001 - whatever an env raises is what the user wants to read
            yield _raised("reset()" if begins else "step()", step, error)
            return None
        parts = RESET_PARTS if begins else STEP_PARTS
        if not isinstance(returned, tuple) or len(returned) != len(parts):
            expected = f"({', '.join(parts)})"
            call = "reset()" if begins else "step()"
            yield Finding("error", f"{call} returned {_kind(returned)}", f"return {expected}")
            return None
        named_parts = dict(zip(parts, returned, strict=True))
        yield from _check_parts(env.observation_space, named_parts)
        begins = not begins and any(np.any(end) for end in returned[2:4])
        ends += begins
        wrong = None if begins else masks.take(named_parts)
        if wrong is not None:
            yield wrong
            return None
    return ends


class _Actions:
    """Draws the actions that are handed to a single env."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec, self._encode, self._random = spec, action_encoder(spec), stream(SEED, "check actions of one env")

    def draw(self, mask: Array | None) -> Any:
        drawn = random_actions(self._spec, 1, self._random, None if mask is None else mask[None])
        return next(iter(apart(self._spec, self._encode(drawn))))


class _Masks:
    """Reads the masks of a single env, where it has any."""

    def __init__(self, spec: EnvSpec) -> None:
        self.mask: Array | None = None
        """[sum(nvec)] bool: of the next action."""
        self._name, self._nvec = spec.mask, spec.action.nvec
        self._begun = False

    def take(self, parts: Mapping[str, Any]) -> Finding | None:
        """Keep the mask of the next decision; return what is wrong with it, None for nothing."""
        info = parts["info"] if isinstance(parts["info"], dict) else {}
        if not self._begun and self._name is None and self._nvec and INFO_MASK in info:
            self._name = INFO_MASK
        self._begun = True
        if self._name is None:
            return None
        given = info.get(INFO_MASK) if self._name == INFO_MASK else _observed(parts["observation"])
        return self._read(given)

    def _read(self, given: Any) -> Finding | None:
        size = sum(self._nvec)
        if given is None:
            return Finding("error", "info has no action_mask, which it had at the first reset", "give it in every step")
        mask = np.zeros(size, np.bool_)
        try:
            mask_writer(mask)(given)
        except (TypeError, ValueError) as error:
            remedy = f"return a NumPy array of {size} flags, those of all components side by side"
            return Finding("error", f"action_mask: {error}", remedy)
        if not allows_each(mask[None], self._nvec).all():
            seen = "action_mask allows none of the choices of an action in a state that goes on"
            return Finding("error", seen, "allow one at least, or end the episode there")
        self.mask = mask
        return None


def _observed(observation: Any) -> Any:
    return observation.get(INFO_MASK) if isinstance(observation, Mapping) else None


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


def _check_observation(space: gym.Space[Any], observation: Any, name: str = "the observation") -> Iterator[Finding]:
    parts, choices = children(space), choices_of(space)
    if parts is not None:
        wrong = _wrong_parts(space, observation, name)
        if wrong is not None:
            yield wrong
            return
        for key, part in parts:
            yield from _check_observation(part, observation[key], f"{name} {key!r}")
    elif choices is not None:
        yield from _check_choices(space, np.asarray(observation), *choices, name)
    elif isinstance(space, gym.spaces.Box):
        yield from _check_box(space, np.asarray(observation), name)


def _wrong_parts(space: gym.Space[Any], observation: Any, name: str) -> Finding | None:
    """Return in what an observation is not the dict or tuple that its space says."""
    if isinstance(space, gym.spaces.Dict):
        if isinstance(observation, Mapping) and set(observation) == set(space):
            return None
        seen = f"{name} is not a dict with the keys that the observation space says"
        return Finding("error", seen, f"return a dict with exactly the keys {sorted(space)}")
    expected = len(children(space) or ())
    if isinstance(observation, tuple) and len(observation) == expected:
        return None
    seen = f"{name} is {_kind(observation)}, but the observation space says a tuple of {expected}"
    return Finding("error", seen, f"return a tuple of {expected}")


def _check_choices(
    space: gym.Space[Any], value: Array, choices: tuple[int, ...], start: tuple[int, ...], name: str
) -> Iterator[Finding]:
    if value.shape != space.shape:
        seen = f"{name} has shape {value.shape}, but the observation space says {space.shape}"
        yield Finding("error", seen, "return what the space declares, or declare what is returned")
    elif value.dtype.kind not in "iub":
        seen = f"{name} is of {value.dtype}, but the observation space says whole numbers, {space}"
        yield Finding("error", seen, "return whole numbers, or declare a Box")
    else:
        first = np.array(start or [0] * len(choices))
        numbers = value.reshape(-1) - first
        if ((numbers < 0) | (numbers >= np.array(choices))).any():
            remedy = "return numbers from the first choice on (start, or 0), or declare as many choices as there are"
            yield Finding("error", f"{name} is none of the choices of its space, {space}", remedy)


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
        try:
            with _begun(env_id, columns, "check", UNSET, kwargs) as (envs, begun):
                walks.append(_walk(envs, begun, steps))
        except EnvFailed as error:
            yield Finding("error", str(error), "correct what it names")
            return
    first, second = walks
    draw = "draw every random number from self.np_random, and begin reset() with super().reset(seed=seed)"
    if any(not np.array_equal(first[name], second[name]) for name in first):
        yield Finding("error", "the same seed and the same actions give different rows", draw)
    if columns > 1 and all(np.array_equal(leaf[:, 0], leaf[:, 1]) for leaf in first.values()):
        seen = "columns with different seeds give the same rows under the same actions"
        yield Finding("warning", seen, f"{draw}, unless the env is meant to be deterministic")


def _walk(envs: Envs, first: Tree, steps: int) -> Tree:
    """Return what became of the same random actions in all columns, name -> [steps + 1, N, ...], the first included."""
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
    """Return one random action for all columns, [N, *shape]; under masks, the same for columns with the same mask."""
    if spec.mask is None:
        return np.repeat(random_actions(spec.action, 1, random), spec.columns, axis=0)
    seed = int(random.integers(2**32))
    draws = (random_actions(spec.action, 1, np.random.default_rng(seed), mask[None]) for mask in row[spec.mask])
    return np.concatenate(list(draws))
