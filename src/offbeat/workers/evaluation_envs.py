"""The envs of an evaluation: the columns of each policy, in envs with one agent or in worlds with several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from offbeat.config.env import MAX_EPISODE_STEPS, EnvConfig
from offbeat.core.closing import close_all
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.tasks import Trials
from offbeat.envs.contract import Envs, Outcome, shortest
from offbeat.envs.make import make_envs
from offbeat.envs.worlds.contract import PoliciesOf, WorldSpec
from offbeat.envs.worlds.make import make_worlds
from offbeat.envs.worlds.worlds import Worlds
from offbeat.league.drawn_policies import policy_of_agents, rotate_policies, sides_of_policies
from offbeat.league.sides import Side
from offbeat.workers.episodes import EpisodeCounter, WorldsRow

EVALUATION_ENVS = 32
"""Maximum number of envs, or of worlds, that an evaluation steps at once."""


@dataclass(frozen=True)
class EvaluationEnvs:
    """The envs of an evaluation, in one group. An env with one agent is a world with one column."""

    columns: Mapping[str, Envs]
    """The columns of each policy, by its name. All have the same worlds."""
    worlds: Worlds | None = None
    """The worlds of these columns; None: each env has one agent."""
    cut_at: int | None = field(default=None, kw_only=True)
    """Env steps after which the evaluation cuts an episode that the envs do not truncate there; None: they do it."""

    @classmethod
    def of_one(cls, envs: Envs) -> EvaluationEnvs:
        """Return the columns of a single policy in envs with one agent."""
        return cls({DEFAULT_POLICY: envs})

    def counter(self, episodes: int) -> EpisodeCounter:
        """Return a counter of this number of episodes."""
        specs = {policy: envs.spec for policy, envs in self.columns.items()}
        agents = {policy: len(spec.agents) or 1 for policy, spec in specs.items()}
        policy, spec = next(iter(specs.items()))
        worlds, cuts_itself = spec.columns // agents[policy], self.cut_at is not None
        cut_at = self.cut_at if cuts_itself else spec.cut_at
        return EpisodeCounter(episodes, worlds, agents, cut_at, spec.info, cuts_itself=cuts_itself)

    def row(self, outcomes: Mapping[str, Outcome]) -> WorldsRow:
        """Return the last row of all worlds from the outcomes of all policies."""
        policy, outcome = next(iter(outcomes.items()))
        if self.worlds is None or outcome.env_step is None:
            return WorldsRow(outcomes, ~outcome.resets, outcome.ended)
        return WorldsRow(outcomes, outcome.env_step[:: len(self.columns[policy].spec.agents)], self.worlds.over)

    def close(self) -> None:
        """Close all envs."""
        close_all(self.columns.values())


def evaluation_envs(
    env_id: str,
    episodes: int,
    *,
    seed: int,
    role: str,
    settings: EnvConfig,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    info_mask: bool = False,
    trials: Trials | None = None,
    world: WorldSpec | None = None,
    owners: Mapping[str, Sequence[str]] = MappingProxyType({}),
    sides: Mapping[str, Sequence[Sequence[str]]] = MappingProxyType({}),
) -> EvaluationEnvs:
    """Make the envs for an evaluation.

    Args:
        env_id: id of the env.
        episodes: number of episodes, or of trials.
        seed: seed of the envs.
        role: purpose of the envs.
        settings: the table [env].
        max_episode_steps: env steps after which an episode is cut: by the envs or, if they cannot be limited, by the
            counter. The env then plays the episode to its end, and the rest does not count.
        info_mask: whether the env gives masks in its infos.
        trials: the trials, for a policy that infers its task: the envs then have its tasks.
        world: agents and spaces of a world with several agents; None: each env has one agent.
        owners: the agents of each policy, in a world.
        sides: the sides that each policy can play, as lists of agents, if policies are drawn for each episode in
            training. In the episodes of an evaluation they take turns.

    Raises:
        ConfigError: as for `make_envs` and `make_worlds`.
    """
    count = min(episodes, EVALUATION_ENVS) if trials is None else columns_for(episodes)
    if world is None:
        envs = make_envs(
            env_id,
            count,
            seed=seed,
            role=role,
            settings=settings,
            info_mask=info_mask,
            cut_after=max_episode_steps,
            tasks=None if trials is None else trials.tasks,
        )
        ends_earlier = shortest(max_episode_steps, envs.spec.time_limit) == envs.spec.time_limit
        cut_by_envs = ends_earlier or envs.spec.cut_at is not None
        return EvaluationEnvs({DEFAULT_POLICY: envs}, cut_at=None if cut_by_envs else max_episode_steps)
    game = sides_of_policies(sides)
    worlds = make_worlds(
        world,
        count,
        owners,
        seed=seed,
        role=role,
        settings=settings,
        cut_after=max_episode_steps,
        policies_of=_rotation(game, count) if game else None,
    )
    return EvaluationEnvs(worlds.envs, worlds)


def columns_for(trials: int) -> int:
    """Return how many columns play this number of trials in the fewest rounds, with the fewest columns for that."""
    rounds = -(-trials // EVALUATION_ENVS)
    return -(-trials // rounds)


def _rotation(sides: Sequence[Side], worlds: int) -> PoliciesOf:
    """Return the policies of the agents in each episode of an evaluation in this number of worlds."""

    def policies_of(world: int, episode: int) -> Mapping[str, str]:
        return policy_of_agents(sides, rotate_policies(sides, world + episode * worlds))

    return policies_of
