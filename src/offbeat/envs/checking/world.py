"""`check_world` finds the faults of a world with several agents. Read `worlds/contract.py` first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

from offbeat.config.env import EnvConfig
from offbeat.core.closing import closed_or_warn
from offbeat.core.errors import FAILURES, EnvFailed
from offbeat.core.types import Tree
from offbeat.envs.checking.parts import SEED, check_parts, failure, raised
from offbeat.envs.checking.rollouts import first_difference, rollout_of_agents, rollouts_of_two
from offbeat.envs.checking.snapshots import check_snapshots
from offbeat.envs.checking.values import Values
from offbeat.envs.contract import Envs
from offbeat.envs.failures import fault_of_world
from offbeat.envs.findings import Finding, has_error, kind_of
from offbeat.envs.infos import LATE_NO_DECISION
from offbeat.envs.observations import image_notes, read_space
from offbeat.envs.worlds.contract import World, WorldSpec, WorldStep
from offbeat.envs.worlds.make import make_worlds, marks_decisions, spec_of_world
from offbeat.envs.worlds.worlds import Worlds

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
        findings = [*_check_images(spec), *_check_alone(world, spec, steps, settings, stepped)]
    if not has_error(findings):
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


def _check_alone(
    world: World, spec: WorldSpec, steps: int, settings: EnvConfig, stepped: Callable[[], None]
) -> list[Finding]:
    """Step one world, up to the first step with an error."""
    noted, owners = _NotedWorld(world, spec, settings), {agent: (agent,) for agent in spec.names}
    worlds = Worlds(spec, [cast("World", noted)], owners, groups=[slice(0, 1)], seeds=[SEED])
    try:
        reset = {agent: envs.reset() for agent, envs in worlds.envs.items()}
        rollout_of_agents(worlds.envs, reset, steps, stepped=stepped)
    except EnvFailed as error:
        if has_error(noted.findings):
            return noted.findings
        fault = failure(error)
        problem = fault.problem.removeprefix(f"{spec.id}, world 0: ")
        return [*noted.findings, replace(fault, problem=problem)]
    return [*noted.findings, *noted.at_end(steps)]


class _NotedWorld:
    """A world that `Worlds` steps. It notes faults that `Worlds` does not refuse, and raises ValueError at an error."""

    def __init__(self, world: World, spec: WorldSpec, settings: EnvConfig) -> None:
        """Note the faults of a world for training with these settings, whose time limit it does not know of."""
        self._limited, ignored = settings.max_episode_steps is not None, settings.ignore_observations
        self._world, self._age, self._ends = world, 0, 0
        self._spaces = {agent: read_space(world.observation_space(agent), ignored) for agent in spec.names}
        """The spaces of the observations that policies get."""
        self._values = {
            agent: Values(space, world.action_space(agent), settings) for agent, space in self._spaces.items()
        }
        self._alive: set[str] = set()
        self._ended: set[str] = set()
        """Agents whose episodes have ended. What they get is not checked here."""
        self._seen: set[str] = set()
        """Agents that have appeared in any episode."""
        self.findings: list[Finding] = []
        self._known: set[tuple[str, str]] = set()
        """Agent and problem of each finding so far, so that each is reported for its first step only."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def reset(self, seed: int | None) -> WorldStep:
        self._age, self._alive, self._ended = 0, set(), set()
        return self._noted(self._world.reset(seed))

    def step(self, actions: Mapping[str, Any]) -> WorldStep:
        self._age += 1
        step = self._noted(self._world.step(actions))
        self._ends += step.over
        return step

    def _noted(self, step: WorldStep) -> WorldStep:
        for agent, finding in self._check_step(step):
            if (agent, finding.problem) not in self._known:
                self._known.add((agent, finding.problem))
                where = f"step {self._age} of the episode: " if self._age else "reset(): "
                who = f"agent {agent}: " if agent else ""
                self.findings.append(replace(finding, problem=f"{where}{who}{finding.problem}"))
        if has_error(self.findings):
            raise ValueError("the check ends here")
        return step

    def _check_step(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Yield the agent of each finding, or '', and the finding."""
        wrong = [name for name in MAPPINGS if not isinstance(getattr(step, name), Mapping)]
        for name in wrong:
            problem = f"{name} is {kind_of(getattr(step, name))}, not a dict"
            yield "", Finding("error", problem, "return a dict with a value for each agent")
        if not wrong:
            yield from self._check_strangers(step)
            for agent in [each for each in self._spaces if each in step.observations and each not in self._ended]:
                yield from ((agent, finding) for finding in self._check_agent(agent, step))
                (self._ended if step.ends(agent) else self._alive).add(agent)
            self._alive -= self._ended
            self._seen |= self._alive

    def _check_strangers(self, step: WorldStep) -> Iterator[tuple[str, Finding]]:
        """Check that no others than possible agents get rewards or end; `Worlds` refuses others that appear."""
        known = self._spaces.keys() | step.observations.keys() | {_ALL}
        for name in REWARDS_AND_ENDS:
            for agent in sorted(getattr(step, name).keys() - known, key=str):
                problem = f"is in {name}, where it is ignored, because it is not one of the world's possible agents"
                yield str(agent), Finding("warning", problem, "leave it out, or list it in the env's possible_agents")

    def _check_agent(self, agent: str, step: WorldStep) -> list[Finding]:
        """Check what an agent gets that appears, is alive, or ends in this step."""
        parts = {"observation": step.observations[agent], "info": step.infos.get(agent, {})}
        if agent in self._alive:
            if not all(agent in getattr(step, name) for name in REWARDS_AND_ENDS):
                return []  # `Worlds` refuses it
            ends = {"terminated": step.terminations[agent], "truncated": step.truncations[agent]}
            parts |= {"reward": step.rewards[agent], **ends}
        findings = list(check_parts(self._spaces[agent], parts, in_world=True))
        if not has_error(findings):
            self._values[agent].add(parts)
        return findings

    def at_end(self, steps: int) -> Iterator[Finding]:
        """Yield the findings of all steps together."""
        if not self._ends and not self._limited:
            problem = f"the world did not end in {steps} random steps"
            yield Finding("warning", problem, "truncate its episodes, or train with --set max_episode_steps=N")
        for agent in sorted(self._spaces.keys() - self._seen):
            problem = f"agent {agent} did not appear in {steps} random steps"
            yield Finding("warning", problem, "remove it from possible_agents, or give it no policy of its own")
        for agent, values in self._values.items():
            for finding in values.findings():
                yield replace(finding, problem=f"agent {agent}: {finding.problem}")


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
