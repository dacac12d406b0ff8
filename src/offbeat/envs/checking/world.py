"""`check_world` finds the faults of a world with several agents. Read `worlds/contract.py` first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from offbeat.config.env import EnvConfig
from offbeat.core.closing import closed_or_warn
from offbeat.core.errors import FAILURES, EnvFailed
from offbeat.core.types import Tree
from offbeat.envs.checking.parts import SEED, ActionSampler, MaskReader, check_parts, failure, raised
from offbeat.envs.checking.rollouts import first_difference, rollouts_of_two
from offbeat.envs.checking.snapshots import check_snapshots
from offbeat.envs.checking.values import Values
from offbeat.envs.contract import Envs
from offbeat.envs.failures import fault_of_world
from offbeat.envs.findings import Finding, kind_of
from offbeat.envs.infos import LATE_NO_DECISION
from offbeat.envs.observations import image_notes, read_space
from offbeat.envs.worlds.contract import World, WorldSpec, WorldStep
from offbeat.envs.worlds.make import make_worlds, marks_decisions, spec_of_world
from offbeat.envs.worlds.state import DEAD, ENDS_AT_ONCE, NOBODY

MAPPINGS = ("observations", "rewards", "terminations", "truncations", "infos")
"""Parts of a `WorldStep` that have a value for each agent. The first and the last one are given at a reset too."""
REWARDS_AND_ENDS = MAPPINGS[1:4]

_ALL = "__all__"
"""Key that envs of RLlib have in terminations and truncations: whether the episodes of all agents end."""


def check_world(
    env_id: str, world: World, count: int, steps: int, settings: EnvConfig, stepped: Callable[[], None]
) -> list[Finding]:
    """Step a world, then several of its kind as an actor would, with random actions; return the faults.

    Args:
        env_id: id of the world.
        world: the world to step alone; it is closed.
        count: number of worlds to compare with each other.
        steps: number of steps.
        settings: the table [env].
        stepped: is called after each step.

    Returns:
        The findings in the order in which they occurred, with the agent and the step; empty for a correct world.

    Raises:
        ConfigError: a space of an agent is not supported.
    """
    with closed_or_warn(world, env_id):
        try:
            first = world.reset(SEED)
        except FAILURES as error:
            return [raised(fault_of_world("reset()", error), error)]
        spec = spec_of_world(env_id, world, first, settings)
        checked = _CheckedWorld(world, spec, settings)
        findings = [*_check_images(spec), *checked.check(first, steps, stepped)]
    if not any(finding.severity == "error" for finding in findings):
        try:
            findings += _compare_worlds(spec, count, steps, settings, stepped, marked=marks_decisions(world, first))
        except EnvFailed as error:
            findings.append(failure(error))
    return list(dict.fromkeys(findings))


def _check_images(spec: WorldSpec) -> Iterator[Finding]:
    for agent, own in spec.agents:
        for problem, remedy in image_notes(own.observation):
            yield Finding("warning", f"agent {agent}: {problem}", remedy)


# --- one world ----------------------------------------------------------------------------------------------


class _CheckedWorld:
    """Steps one world alone, and checks what each of its agents gets."""

    def __init__(self, world: World, spec: WorldSpec, settings: EnvConfig) -> None:
        """Check a world for training with these settings, which may have a time limit that it does not know of."""
        self._limited, ignored = settings.max_episode_steps is not None, settings.ignore_observations
        self._world = world
        self._spaces = {agent: read_space(world.observation_space(agent), ignored) for agent in spec.names}
        """The spaces of the observations that policies get."""
        self._samplers = {agent: ActionSampler(own.action) for agent, own in spec.agents}
        self._masks = {agent: MaskReader(own) for agent, own in spec.agents}
        self._values = {
            agent: Values(space, world.action_space(agent), settings) for agent, space in self._spaces.items()
        }
        self._alive: set[str] = set()
        self._ended: set[str] = set()
        self._seen: set[str] = set()
        """Agents that have appeared in any episode."""
        self._where = "reset"
        self._known: set[tuple[str, str]] = set()
        """Agent and problem of each finding so far, so that each is reported for its first step only."""

    def check(self, first: WorldStep, steps: int, stepped: Callable[[], None]) -> Iterator[Finding]:
        """Yield the findings of `steps` steps, up to the first step with an error.

        Args:
            first: the first reset.
            steps: number of steps.
            stepped: is called after each of them.
        """
        step, ends, age = first, 0, 0
        for taken in range(steps + 1):
            if taken:
                self._where = f"step {age} of the episode" if age else "reset"
                try:
                    step = self._world.step(self._actions(step)) if age else self._world.reset(None)
                except FAILURES as error:
                    yield raised(fault_of_world(self._where, error), error)
                    return
                stepped()
            findings = list(self._new_findings(step))
            yield from findings
            if any(finding.severity == "error" for finding in findings):
                return
            ends, age = ends + step.over, 0 if step.over else age + 1
        yield from self._at_end(ends, steps)

    def _actions(self, step: WorldStep) -> dict[str, Any]:
        return {agent: self._samplers[agent].sample(self._masks[agent].mask) for agent in step.deciding}

    def _at_end(self, ends: int, steps: int) -> Iterator[Finding]:
        if not ends and not self._limited:
            problem = f"the world did not end in {steps} random steps"
            yield Finding("warning", problem, "truncate its episodes, or train with --set max_episode_steps=N")
        for agent in sorted(self._spaces.keys() - self._seen):
            problem = f"agent {agent} did not appear in {steps} random steps"
            yield Finding("warning", problem, "remove it from possible_agents, or give it no policy of its own")
        for agent, values in self._values.items():
            for finding in values.findings():
                yield Finding(finding.severity, f"agent {agent}: {finding.problem}", finding.remedy)

    def _new_findings(self, step: WorldStep) -> Iterator[Finding]:
        for agent, finding in self._check_step(step):
            if (agent, finding.problem) not in self._known:
                self._known.add((agent, finding.problem))
                who = f"agent {agent}, " if agent else ""
                yield Finding(finding.severity, f"{who}{self._where}: {finding.problem}", finding.remedy)

    def _check_step(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Yield the agent of each finding, or '', and the finding."""
        wrong = [name for name in MAPPINGS if not isinstance(getattr(step, name), Mapping)]
        if wrong:
            for name in wrong:
                problem = f"{name} is {kind_of(getattr(step, name))}, not a dict"
                yield "", Finding("error", problem, "return a dict with a value for each agent")
            return
        if self._where == "reset":
            self._alive, self._ended = set(), set()
        yield from self._check_strangers(step)
        yield from self._check_dead(step)
        for agent in sorted(self._alive):
            yield from ((agent, finding) for finding in self._check_alive(agent, step))
        ended = {agent for agent in self._alive if step.ends(agent)}
        self._alive, self._ended = self._alive - ended, self._ended | ended
        yield from self._check_new(step)
        yield from self._check_next(step)

    def _check_strangers(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Check that no others than possible agents get rewards or end; `_check_new` checks those that appear."""
        known = self._spaces.keys() | step.observations.keys() | {_ALL}
        for name in REWARDS_AND_ENDS:
            for agent in sorted(getattr(step, name).keys() - known, key=str):
                problem = f"is in {name}, where it is ignored, because it is not one of the world's possible agents"
                yield str(agent), Finding("warning", problem, "leave it out, or list it in the env's possible_agents")

    def _check_dead(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Check that agents whose episodes ended in earlier steps get nothing."""
        for agent in sorted(self._ended):
            if step.rewards.get(agent):
                problem = f"got a reward of {step.rewards[agent]}, {DEAD}"
                yield agent, Finding("error", problem, "give the reward in the step in which the agent ends")
            if agent in step.deciding:
                remedy = "give an agent that comes back another name, or remove it from the env's agents"
                yield agent, Finding("error", f"is alive again, {DEAD}", remedy)

    def _check_alive(self, agent: str, step: WorldStep) -> Iterator[Finding]:
        """Check what an agent gets that is alive, or ends in this step."""
        if agent not in step.observations:
            problem = "is missing, but it was neither terminated nor truncated before"
            yield Finding("error", problem, "return all five values for each agent until it ends")
            return
        for name in REWARDS_AND_ENDS:
            if agent not in getattr(step, name):
                yield Finding("error", f"has no value in {name}", f"return {name} for each agent until it ends")
                return
        parts = {
            "observation": step.observations[agent],
            "reward": step.rewards[agent],
            "terminated": step.terminations[agent],
            "truncated": step.truncations[agent],
            "info": step.infos.get(agent, {}),
        }
        yield from self._check_parts(agent, parts)

    def _check_parts(self, agent: str, parts: Mapping[str, Any]) -> list[Finding]:
        findings = list(check_parts(self._spaces[agent], parts, in_world=True))
        if not any(finding.severity == "error" for finding in findings):
            self._values[agent].add(parts)
        return findings

    def _check_new(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Check what agents get that appear in this step."""
        for agent, observation in step.observations.items():
            if agent in self._alive or agent in self._ended:
                continue
            if agent not in self._spaces:
                remedy = "list all agents that may appear in the env's possible_agents"
                yield agent, Finding("error", "appears, but it is not one of the world's possible agents", remedy)
                continue
            if step.ends(agent):
                self._ended.add(agent)
                yield agent, Finding("error", *ENDS_AT_ONCE)
                continue
            self._alive.add(agent)
            self._seen.add(agent)
            parts = {"observation": observation, "info": step.infos.get(agent, {})}
            yield from ((agent, finding) for finding in self._check_parts(agent, parts))

    def _check_next(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Check who is alive and chooses the next actions, and their masks."""
        if self._where == "reset" and not self._alive and not step.deciding:
            yield "", Finding("error", *NOBODY)
            return
        if step.over:
            for agent in sorted(self._alive):
                problem = "is missing, but it was neither terminated nor truncated"
                yield agent, Finding("error", problem, "terminate or truncate each agent that leaves the env's agents")
            return
        for agent in step.deciding:
            if agent not in self._alive | self._ended:
                problem = "is to act, but it has no observation"
                yield agent, Finding("error", problem, "return an observation for each agent in the env's agents")
            elif agent in self._alive and agent in step.observations:
                parts = {"observation": step.observations[agent], "info": step.infos.get(agent, {})}
                finding = self._masks[agent].read(parts)
                if finding is not None:
                    yield agent, finding


# --- several worlds, as an actor steps them -----------------------------------------------------------------

Rollout = dict[str, Tree]
"""Agent -> name -> [steps + 1, worlds, ...]."""


def _compare_worlds(
    spec: WorldSpec, count: int, steps: int, settings: EnvConfig, stepped: Callable[[], None], *, marked: bool
) -> Iterator[Finding]:
    """Compare the rows of worlds with equal seeds, of restored worlds with those of saved ones, and of two worlds.

    `marked`: whether the worlds mark rows without a decision from the first reset on.

    Raises:
        EnvFailed: a world fails.
    """
    start = partial(_started, spec, count, settings)
    first, second, savable, late = rollouts_of_two(start, steps, stepped)
    if late and not marked:
        yield Finding("error", f"the world {LATE_NO_DECISION[0]}", LATE_NO_DECISION[1])
        return
    remedy = (
        "draw all random numbers from a generator of this world alone, not from np.random or random, that "
        "reset(seed=seed) starts, and continue it at seed=None"
    )
    difference = _first_difference(first, second)
    if difference is not None:
        row, agent = difference
        problem = (
            f"agent {agent}, row {row}: the same seed and the same actions give different rows: a run trains, but "
            "cannot be repeated"
        )
        yield Finding("warning", problem, remedy)
        return
    if savable:
        with start() as (columns, reset):
            yield from check_snapshots(columns, reset, partial(_made, spec, count, settings), steps)
    of_first, of_second = ({agent: _of_world(first[agent], world) for agent in spec.names} for world in (0, count - 1))
    if count > 1 and _first_difference(of_first, of_second) is None:
        problem = "worlds with different seeds give the same rows of all agents under the same actions"
        yield Finding("warning", problem, f"{remedy}, unless the world is deterministic on purpose")


def _of_world(rows: Tree, world: int) -> Tree:
    return {name: leaf[:, world : world + 1] for name, leaf in rows.items()}


def _first_difference(first: Rollout, second: Rollout) -> tuple[int, str] | None:
    """Return the row and the agent of the first difference; None if all rows are equal."""
    found = ((first_difference(rows, second[agent]), agent) for agent, rows in first.items())
    return min(((difference.row, agent) for difference, agent in found if difference is not None), default=None)


@contextmanager
def _made(spec: WorldSpec, count: int, settings: EnvConfig) -> Iterator[Mapping[str, Envs]]:
    """Make worlds, each agent with a policy of its own; their columns by agent."""
    owners = {agent: (agent,) for agent in spec.names}
    with closing(make_worlds(spec, count, owners, seed=SEED, role="check", settings=settings)) as worlds:
        worlds.set_progress(0.0)
        yield worlds.envs


@contextmanager
def _started(
    spec: WorldSpec, count: int, settings: EnvConfig
) -> Iterator[tuple[Mapping[str, Envs], Mapping[str, Tree]]]:
    """Make the same worlds and reset them; give their columns and the first rows, both by agent."""
    with _made(spec, count, settings) as columns:
        yield columns, {agent: envs.reset() for agent, envs in columns.items()}
