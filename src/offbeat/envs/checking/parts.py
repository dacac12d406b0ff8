"""The parts of `offbeat check`: random actions, and the checks of what one env returns.

`world.py` uses only the checks: `Worlds` steps a world.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.core.choices import allows_each
from offbeat.core.errors import EnvFailed, OffbeatError, user_traceback
from offbeat.core.seeding import stream
from offbeat.core.types import INFO_MASK, NO_DECISION, ActionSpec, Array, EnvSpec, Tree
from offbeat.envs.actions import action_encoder, random_actions, split_columns
from offbeat.envs.findings import Finding, Severity, check_ends, kind_of
from offbeat.envs.opengl import opengl_remedy
from offbeat.envs.spaces import children, choices_of
from offbeat.envs.writers import mask_writer

SEED = 0
"""Seed of the envs and actions of a check, so that every check finds the same faults."""

# --- actions ---------------------------------------------------------------------------------------------------


class ActionSampler:
    """Samples the actions of a single env."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec, self._encode, self._random = spec, action_encoder(spec), stream(SEED, "check actions of one env")

    def sample(self, mask: Array | None) -> Any:
        actions = random_actions(self._spec, 1, self._random, None if mask is None else mask[None])
        return next(iter(split_columns(self._spec, self._encode(actions))))


class MaskReader:
    """Reads the action masks of a single env, if it has any."""

    def __init__(self, spec: EnvSpec) -> None:
        self.mask: Array | None = None
        """[sum(nvec)] bool, for the next action; None allows all choices."""
        self._name, self._nvec = spec.mask, spec.action.nvec
        self._has_decided = False
        """Whether an info before a decision has been read: infos that have no mask until then have none."""

    def read(self, parts: Mapping[str, Any]) -> Finding | None:
        """Store the mask of the next action; return its fault, None if there is none."""
        info = parts["info"] if isinstance(parts["info"], Mapping) else {}
        if not self._has_decided and self._name is None and self._nvec and INFO_MASK in info:
            self._name = INFO_MASK
        if info.get(NO_DECISION):  # the next action is ignored
            self.mask = None
            return None
        self._has_decided = True
        if self._name is None:
            return None
        given = info.get(INFO_MASK) if self._name == INFO_MASK else _observed(parts["observation"])
        return self._store(given)

    def _store(self, given: Any) -> Finding | None:
        size = sum(self._nvec)
        if given is None:
            return Finding(
                "error", "info has no action_mask, but that of the first decision had one", "return it in every step"
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


def same_actions(spec: EnvSpec, row: Tree, random: np.random.Generator) -> Array:
    """Return one random action for all columns, [N, *shape]; with masks, the same for columns with equal masks."""
    if spec.mask is None:
        return np.repeat(random_actions(spec.action, 1, random), spec.columns, axis=0)
    seed = int(random.integers(2**32))
    sampled = [random_actions(spec.action, 1, np.random.default_rng(seed), mask[None]) for mask in row[spec.mask]]
    return np.concatenate(sampled)


# --- what an env returns ------------------------------------------------------------------------------------


def raised(problem: str, error: BaseException) -> Finding:
    """Return the finding for an exception of an env; `problem`: what the env did, as `fault_of_call` says it."""
    if drawing := opengl_remedy(error):
        return Finding("error", problem, drawing)
    if _is_reset_without_arguments(error):
        return Finding("error", problem, RESET_SIGNATURE)
    if not user_traceback(error):
        return Finding("error", problem)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Finding("error", problem, f"see {where.filename}, line {where.lineno}: {where.line}")


def failure(error: OffbeatError) -> Finding:
    """Return the finding for an error of envs that were stepped as in a run."""
    return raised(error.problem if isinstance(error, EnvFailed) else str(error), error.__cause__ or error)


RESET_SIGNATURE = "define it as `def reset(self, *, seed=None, options=None)`"


def _is_reset_without_arguments(error: BaseException) -> bool:
    """Whether an env's reset does not take `seed` or `options`."""
    return isinstance(error, TypeError) and bool(
        re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error))
    )


def check_parts(space: gym.Space[Any], parts: Mapping[str, Any], *, in_world: bool = False) -> Iterator[Finding]:
    """Yield the faults of what `reset` or `step` returned for one agent.

    Args:
        space: observation space, as `read_space` returns it: parts that policies do not get are not checked.
        parts: the values by name: 'observation' and 'info', after a step 'reward', 'terminated' and 'truncated' too.
        in_world: whether the env has several agents.
    """
    yield from _check_observation(space, parts["observation"])
    if "reward" in parts:
        yield from check_ends(parts["reward"], parts["terminated"], parts["truncated"], in_world=in_world)
    if not isinstance(parts["info"], dict):
        yield Finding("warning", f"info is {kind_of(parts['info'])}, not a dict", "return a dict, {} if it is empty")


def _check_observation(space: gym.Space[Any], observation: Any, name: str = "the observation") -> Iterator[Finding]:
    parts, choices = children(space), choices_of(space)
    if parts is not None:
        for finding in _check_structure(space, observation, name):
            yield finding
            if finding.severity == "error":
                return
        for key, part in parts:
            yield from _check_observation(part, observation[key], f"{name} {key!r}")
    elif choices is not None:
        yield from _check_choices(space, np.asarray(observation), *choices, name)
    elif isinstance(space, gym.spaces.Box):
        yield from _check_box(space, np.asarray(observation), name)


def _check_structure(space: gym.Space[Any], observation: Any, name: str) -> Iterator[Finding]:
    """Yield the fault of an observation that is not the dict or tuple that its space declares."""
    if isinstance(space, gym.spaces.Dict):
        read = {key for key, _ in children(space) or ()}
        if not isinstance(observation, Mapping) or not read.issubset(observation):
            problem = f"{name} is not a dict with the keys of the observation space"
            yield Finding("error", problem, f"return a dict with exactly the keys {sorted(space)}")
        elif more := sorted(str(key) for key in observation if key not in space.spaces):
            problem = f"{name} has keys that the observation space does not declare: {', '.join(more)}"
            yield Finding("warning", problem, "declare them, or leave them out: policies do not get them")
    elif isinstance(space, gym.spaces.Tuple):
        expected = len(space)
        if not isinstance(observation, tuple | list) or len(observation) != expected:
            problem = f"{name} is {kind_of(observation)}, but the observation space declares a tuple of {expected}"
            yield Finding("error", problem, f"return a tuple of {expected}")
        elif isinstance(observation, list):
            problem = f"{name} is a list, but the observation space declares a tuple"
            yield Finding("warning", problem, "return a tuple")


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
        severity: Severity = "warning" if np.can_cast(value.dtype, declared, "same_kind") else "error"
        problem = f"{name} is of {value.dtype}, but the observation space declares {declared}"
        yield Finding(severity, problem, f"return it with .astype(np.{declared}), or declare {value.dtype}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        yield Finding("error", f"{name} has NaN or infinity", "check for a division by zero or a diverged simulation")
    elif np.any(value < space.low) or np.any(value > space.high):
        remedy = "clip the observation, or declare wider bounds (np.inf for no bound)"
        yield Finding("warning", f"{name} is outside the bounds of its space", remedy)
