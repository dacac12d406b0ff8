"""Evaluation plans: plain data from which evaluations during training are made, in this process or another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offbeat.config.env import EnvConfig
from offbeat.config.run_config import RunConfig
from offbeat.core.types import Policy
from offbeat.models.spec import PolicySpec
from offbeat.workers.columns import Unwatched, Watch
from offbeat.workers.evaluator import Evaluation, evaluate, evaluation_envs


@dataclass(frozen=True)
class EvaluationPlan:
    """Evaluates with its own envs and seeds: the same weights always give the same result."""

    run: RunConfig
    env: EnvConfig
    policy: PolicySpec

    def evaluate(
        self,
        policy: Policy,
        *,
        attempt: int = 0,
        watch: Watch | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> Evaluation:
        """Make the envs and play the episodes of an evaluation.

        Args:
            policy: the policy, with its weights loaded.
            attempt: number of recent failures of this evaluation. It changes the random streams, so that a failure
                that follows from the seed does not occur again.
            watch: is notified of each env call.
            on_step: is called after each vector step with the number of episodes that have ended; may raise to stop.

        Raises:
            EnvFailed: an env failed.
        """
        watch = watch or Unwatched()
        watch.enter(resets=True)
        envs = evaluation_envs(
            self.run.env,
            self.run.eval_episodes,
            seed=self.run.seed,
            role=f"evaluation, attempt {attempt}" if attempt else "evaluation",
            settings=self.env,
            max_episode_steps=self.env.evaluation_limit(self.run.eval_max_episode_steps),
            info_mask=self.policy.info_mask,
        )
        watch.leave()
        try:
            return evaluate(
                policy,
                envs,
                episodes=self.run.eval_episodes,
                seed=self.run.seed,
                max_steps=self.run.eval_max_steps,
                watch=watch,
                on_step=on_step,
            )
        finally:
            envs.close()
