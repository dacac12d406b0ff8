"""Evaluation plans: plain data from which evaluations during training are made, in this process or another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.core.tasks import Trials
from offbeat.envs.call_watch import EnvCallWatch
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.spec import PolicySpec
from offbeat.workers.episodes import Evaluation
from offbeat.workers.evaluation_envs import EvaluationEnvs, evaluation_envs
from offbeat.workers.evaluator import PlayOptions
from offbeat.workers.trials import evaluate_policies


@dataclass(frozen=True)
class EvaluatedPolicy:
    """One policy of an evaluation."""

    name: str
    spec: PolicySpec
    agents: tuple[str, ...] = ()
    """Its agents in a world with several agents."""
    sides: tuple[tuple[str, ...], ...] = ()
    """As `PolicyParts.sides`."""


@dataclass(frozen=True)
class EvaluationPlan:
    """Evaluates with its own envs and seeds: the same weights always give the same result."""

    run: RunConfig
    env_config: EnvConfig
    policies: tuple[EvaluatedPolicy, ...]
    """All policies of the run, which are evaluated together."""
    world: WorldSpec | None = None
    """Agents and spaces of a world with several agents; None: each env has one agent."""
    trials: Trials | None = None
    """The trials in new tasks, for a policy that infers its task; None: the env has one task."""

    def make_policies(self) -> dict[str, ActingPolicy]:
        """Make the policies, by name. Their weights are to be loaded."""
        return {policy.name: make_policy(policy.spec) for policy in self.policies}

    def evaluate(
        self,
        policies: Mapping[str, ActingPolicy],
        closing: ExitStack,
        *,
        attempt: int = 0,
        watch: EnvCallWatch,
        on_step: Callable[[int], None] | None = None,
    ) -> Evaluation:
        """Make the envs and play the episodes of an evaluation.

        Args:
            policies: the policies by name, with their weights loaded.
            closing: gets the envs, to close them. After an error they may hang in `close`.
            attempt: number of recent failures of this evaluation. It changes the random streams, so that a failure
                that follows from the seed does not occur again.
            watch: is notified of each env call.
            on_step: is called after each vector step with the number of episodes that have ended; may raise to stop.

        Raises:
            EnvFailed: an env failed.
        """
        watch.enter(resets=True)
        envs = self._envs(attempt)
        closing.callback(envs.close)
        watch.leave()
        options = PlayOptions(max_steps=self.run.eval_max_steps, watch=watch, on_step=on_step)
        return evaluate_policies(
            policies, envs, self.trials, episodes=self.episodes, seed=self.run.seed, options=options
        )

    @property
    def episodes(self) -> int:
        """Number of episodes, or of trials, of an evaluation."""
        return self.run.evaluation_episodes(self.trials)

    @property
    def max_episode_steps(self) -> int:
        """Env steps after which an evaluation cuts an episode."""
        return self.run.eval_max_episode_steps or self.env_config.evaluation_limit

    def _envs(self, attempt: int) -> EvaluationEnvs:
        return evaluation_envs(
            self.run.env,
            self.episodes,
            seed=self.run.seed,
            role=f"evaluation, attempt {attempt}" if attempt else "evaluation",
            settings=self.env_config,
            max_episode_steps=self.max_episode_steps,
            info_mask=self.policies[0].spec.info_mask,
            trials=self.trials,
            world=self.world,
            owners={policy.name: policy.agents for policy in self.policies},
            sides={policy.name: policy.sides for policy in self.policies},
        )
