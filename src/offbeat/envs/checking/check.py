"""`check_env` finds the faults of an env, for `offbeat check`. It calls `check_world` for one with several agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np

from offbeat.config.env import UNSET, EnvConfig
from offbeat.core.closing import closed_or_warn
from offbeat.core.errors import FAILURES, EnvFailed
from offbeat.core.tasks import TaskSample
from offbeat.core.types import INFO_MASK, EnvSpec, Tree
from offbeat.envs.checking.evaluated_env import place_of, require_evaluable
from offbeat.envs.checking.parts import SEED, ActionSampler, MaskReader, check_parts, failure, raised
from offbeat.envs.checking.preflight import preflight, preflight_world
from offbeat.envs.checking.rollouts import first_difference, rollout, rollouts_of_two, started
from offbeat.envs.checking.snapshots import check_snapshots
from offbeat.envs.checking.tasks import TASKS, check_methods, check_tasks, has_tasks, set_first_task
from offbeat.envs.checking.values import Values
from offbeat.envs.checking.world import check_world
from offbeat.envs.contract import Envs
from offbeat.envs.failures import fault_of_call
from offbeat.envs.findings import Finding, has_error, kind_of
from offbeat.envs.infos import LATE_NO_DECISION
from offbeat.envs.make import make_envs, single_agent_adapter
from offbeat.envs.normalizers import normalizer_notes
from offbeat.envs.observations import image_notes, read_space
from offbeat.envs.space_generators import seed_spaces
from offbeat.envs.worlds.make import make_world

RESET_PARTS = ("observation", "info")
STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")
"""What `reset` and `step` of an env return."""

SEEDED = (
    "sample all random numbers from self.np_random, not from np.random, random or a generator of the class, which all "
    "envs of a process share; and start reset() with super().reset(seed=seed)"
)
RESEEDED = (
    "the rows differ from a reset without a seed on: let reset(seed=None) go on with the env's own generator of the "
    "last seed, as super().reset(seed=seed) does with self.np_random. For an env of a package, pass a seed to each "
    "reset in a wrapper"
)
"""Remedies for an env that is not repeatable."""
ALONE = (
    "keep the state in the env object, not in its module or class; or register the env with a vector_entry_point "
    "that runs each in a process of its own, such as gymnasium.vector.AsyncVectorEnv"
)
"""Remedy for envs that disturb each other."""

Report = Callable[[int, int], None]
"""Is called with the number of steps so far and the total number."""


def check_env(
    env_id: str, columns: int = 2, steps: int = 1000, settings: EnvConfig = UNSET, report: Report = lambda *_: None
) -> list[Finding]:
    """Step a single env and the envs of an actor with random actions, and return their faults.

    Args:
        env_id: Id of the env, as for `make_envs`, or of a world with several agents, as for `make_world`.
        columns: Number of envs or worlds to compare with each other.
        steps: Number of env steps of each env.
        settings: The table [env].
        report: Is called with the number of steps so far, and with that of all steps.

    Returns:
        The findings in the order in which they occurred; empty for a correct env.

    With `eval_kwargs`, the envs of evaluations are checked too.

    Raises:
        ConfigError: the env cannot be made, or has other spaces in evaluations.
    """
    done, total = count(1), (6 if settings.eval_kwargs else 3) * steps
    stepped = lambda: report(min(next(done), total), total)  # noqa: E731
    findings, tasks = _check_variant(env_id, columns, steps, settings, stepped)
    if settings.eval_kwargs and not has_error(findings):
        own, _ = _check_variant(env_id, columns, steps, settings.in_evaluations, stepped)
        place = place_of(settings)
        findings += [replace(each, problem=f"{place}: {each.problem}") for each in own if each not in findings]
        if not has_error(own):
            _require_same_spaces(env_id, settings, tasks)
    return findings


def _require_same_spaces(env_id: str, settings: EnvConfig, tasks: TaskSample | None) -> None:
    """Refuse `eval_kwargs` with which an env has other spaces."""
    spec = preflight_world(env_id, settings, saves=False) or preflight(env_id, settings, tasks)
    require_evaluable(spec, settings, tasks)


def _check_variant(
    env_id: str, columns: int, steps: int, settings: EnvConfig, stepped: Callable[[], None]
) -> tuple[list[Finding], TaskSample | None]:
    """Return the faults of an env or a world with the arguments `kwargs`, and the tasks to try if it has tasks."""
    world = make_world(env_id, settings.kwargs)
    if world is not None:
        return check_world(env_id, world, columns, steps, settings, stepped), None
    findings, tasks = _check_single(env_id, steps, settings, stepped)
    if tasks is not None and not has_error(findings):
        findings += check_tasks(env_id, settings)
    if not has_error(findings):
        findings += _check_columns(env_id, columns, steps, settings, tasks, stepped)
    return list(dict.fromkeys(findings)), tasks


# --- one env, as Gymnasium defines it -----------------------------------------------------------------------


def _check_single(
    env_id: str, steps: int, settings: EnvConfig, stepped: Callable[[], None]
) -> tuple[list[Finding], TaskSample | None]:
    """Return the faults of one env, and the tasks to try if it has tasks."""
    with closing(make_envs(env_id, 1, seed=SEED, settings=settings)) as envs:  # refuses what is not supported
        spec = envs.spec
    notes = *image_notes(spec.observation), *normalizer_notes(spec.normalizers)
    findings = [Finding("warning", *note) for note in notes]
    env = single_agent_adapter(env_id).make_single(env_id, settings)
    if env is None:
        return findings, None
    with closed_or_warn(env, env_id):
        findings += _check_steps(env, spec, settings, steps, stepped)
        findings += check_methods(env)
        return findings, TASKS if has_tasks(env) else None


def _check_steps(
    env: gym.Env[Any, Any], spec: EnvSpec, settings: EnvConfig, steps: int, stepped: Callable[[], None]
) -> Iterator[Finding]:
    """Yield the faults of each call."""
    fault = set_first_task(env, spec.id)
    if fault is not None:
        yield fault
        return
    observation = read_space(env.observation_space, settings.ignore_observations)
    calls, values = _Calls(env, spec), Values(observation, env.action_space, settings)
    ends, taken, failed = 0, 0, False
    while taken < steps:
        parts = calls.next(f"step {taken} of the check")
        if isinstance(parts, Finding):
            yield parts
            return
        for finding in check_parts(observation, parts):
            failed |= finding.severity == "error"
            yield finding
        if not failed:
            values.add(parts)
        if calls.stepped:
            taken += 1
            stepped()
        if (fault := calls.prepare_next(parts)) is not None:
            yield fault
            return
        ends += calls.resets
    yield from values.findings()
    if not ends and spec.time_limit is None:
        yield Finding(
            "warning",
            f"no episode ended in {steps} random steps, and there is no time limit",
            "register the env with max_episode_steps, or train with --set max_episode_steps=N",
        )


class _Calls:
    """The calls of one env: a reset with a seed, then steps with random actions, and resets where episodes end."""

    def __init__(self, env: gym.Env[Any, Any], spec: EnvSpec) -> None:
        self._env, self._actions, self._masks = env, ActionSampler(spec.action), MaskReader(spec)
        self._seed: int | None = SEED
        self.resets = True
        """Whether the next call is a reset."""
        self.stepped = False
        """Whether the last call was a step."""
        seed_spaces(env, SEED)

    def next(self, when: str) -> dict[str, Any] | Finding:
        """Make the next call; return the parts that it returns, by name, or the fault that ends the check."""
        self.stepped = not self.resets
        method, names = ("step", STEP_PARTS) if self.stepped else ("reset", RESET_PARTS)
        try:
            returned = self._call()
        except FAILURES as error:
            return raised(fault_of_call(f"{method}(), {when},", error), error)
        if not isinstance(returned, tuple) or len(returned) != len(names):
            return Finding("error", f"{method}() returned {kind_of(returned)}", f"return ({', '.join(names)})")
        return dict(zip(names, returned, strict=True))

    def _call(self) -> Any:
        if self.stepped:
            return self._env.step(self._actions.sample(self._masks.mask))
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)

    def prepare_next(self, parts: Mapping[str, Any]) -> Finding | None:
        """Note whether the episode has ended, or else the mask of the next action; return a fault of this mask."""
        self.resets = self.stepped and any(np.any(np.asarray(parts[name])) for name in ("terminated", "truncated"))
        return None if self.resets else self._masks.read(parts)


# --- columns, as an actor steps them ------------------------------------------------------------------------


def _check_columns(
    env_id: str,
    columns: int,
    steps: int,
    settings: EnvConfig,
    tasks: TaskSample | None,
    stepped: Callable[[], None],
) -> Iterator[Finding]:
    """Compare the rows of envs with equal seeds, of restored envs with those of saved ones, and of two columns.

    Yields:
        The faults of several actors' envs. In an env with tasks, all randomness may be in the tasks.
    """
    try:
        start = partial(_started_columns, env_id, columns, settings, tasks)
        first, second, savable, late = rollouts_of_two(start, steps, stepped)
        if late:
            yield Finding("error", f"the env {LATE_NO_DECISION[0]}", LATE_NO_DECISION[1])
            return
        if (difference := first_difference(first[""], second[""])) is not None:
            problem = "the same seed and the same actions give different rows: a run trains, but cannot be repeated"
            yield Finding("warning", problem, RESEEDED if difference.after_an_end else SEEDED)
            return
        if savable:
            with start() as (envs, reset):
                make = partial(_new_columns, envs[""].spec, env_id, columns, settings, tasks)
                yield from check_snapshots(envs, reset, make, steps)
        if columns > 1 and tasks is None and all(np.array_equal(leaf[:, 0], leaf[:, 1]) for leaf in first[""].values()):
            problem = "envs with different seeds give the same rows under the same actions"
            yield Finding("warning", problem, f"{SEEDED}, unless the env is deterministic on purpose")
    except EnvFailed as error:
        yield _fault_of_columns(error, env_id, columns, steps, settings, tasks)


@contextmanager
def _started_columns(
    env_id: str, columns: int, settings: EnvConfig, tasks: TaskSample | None
) -> Iterator[tuple[Mapping[str, Envs], Mapping[str, Tree]]]:
    """Make envs and reset them; give the envs and their first row, both with the agent ''."""
    with started(env_id, columns, "check", settings, tasks) as (envs, first):
        yield {"": envs}, {"": first}


@contextmanager
def _new_columns(
    spec: EnvSpec, env_id: str, columns: int, settings: EnvConfig, tasks: TaskSample | None
) -> Iterator[Mapping[str, Envs]]:
    """Make envs with this spec, which may have a mask from infos, without a reset."""
    made = make_envs(
        env_id,
        columns,
        seed=SEED,
        role="restored",
        settings=settings,
        info_mask=spec.mask == INFO_MASK,
        tasks=tasks,
    )
    with closing(made) as envs:
        yield {"": envs}


def _fault_of_columns(
    error: EnvFailed, env_id: str, columns: int, steps: int, settings: EnvConfig, tasks: TaskSample | None
) -> Finding:
    """Return why several envs failed: they disturb each other if one alone does not fail."""
    if columns > 1:
        with suppress(EnvFailed), started(env_id, 1, "check", settings, tasks) as (envs, first):
            rollout(envs, first, steps)
            problem = f"{columns} envs in one process disturb each other, one alone works: {error.problem}"
            return Finding("error", problem, ALONE)
    return failure(error)
