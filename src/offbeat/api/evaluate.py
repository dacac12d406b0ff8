"""Evaluates a trained policy on whole episodes: the scores of `offbeat eval` and of the model card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offbeat.api.load import LoadedPolicy
from offbeat.config.env import EVALUATION_STEPS
from offbeat.config.trust import Code, require
from offbeat.core.errors import ConfigError
from offbeat.core.threads import limit_blas
from offbeat.core.types import EnvSpec
from offbeat.workers.evaluator import Evaluation, evaluate, evaluation_envs

SCORE_STEPS = 10_000_000
"""Default limit of the env steps of an evaluation, over all envs."""


def score(
    loaded: LoadedPolicy,
    *,
    episodes: int,
    seed: int,
    sampled: bool = False,
    max_episode_steps: int = EVALUATION_STEPS,
    max_steps: int = SCORE_STEPS,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Play whole episodes in new envs, and return the scores by name.

    Args:
        loaded: the policy.
        episodes: number of episodes.
        seed: seed of the envs and of the action sampling.
        sampled: sample the actions instead of taking the most likely ones.
        max_episode_steps: env steps after which an episode is cut. Its return up to there counts.
        max_steps: env steps, over all envs, after which the evaluation ends.
        on_step: called after each step of the envs with the number of ended episodes.

    Returns:
        The scores by name. `episodes` is the number of episodes in the scores, `cut` the number of those that were cut,
        `not_begun` the number of requested episodes that were not started.

    Raises:
        ConfigError: the env cannot be created, is code that was not accepted, or does not fit the policy.
        EnvFailed: the env failed during a step.
    """
    require(Code(env=loaded.trained.env), "the policy")
    limit_blas(1)
    trained = loaded.trained
    envs = evaluation_envs(
        trained.env,
        episodes,
        seed=seed,
        role="eval",
        settings=trained.env_config,
        max_episode_steps=max_episode_steps,
        info_mask=loaded.policy.spec.info_mask,
    )
    try:
        _require_fit(loaded, envs.spec)
        result = evaluate(
            loaded.policy, envs, episodes=episodes, seed=seed, sampled=sampled, max_steps=max_steps, on_step=on_step
        )
    finally:
        envs.close()
    return _scores(result, loaded)


def _scores(result: Evaluation, loaded: LoadedPolicy) -> dict[str, Any]:
    """Return the scores of an evaluation and the progress of the training run, by name."""
    trained = loaded.trained
    return {
        "episodes": len(result.returns),
        "cut": result.cut,
        "not_begun": result.not_begun,
        "return_mean": result.return_mean,
        "return_std": result.return_std,
        "return_min": result.return_min,
        "return_max": result.return_max,
        "length_mean": result.length_mean,
        "env_steps": trained.env_steps,
        "learning_step": trained.learning_step,
        "updates": trained.updates,
    }


def _require_fit(loaded: LoadedPolicy, env: EnvSpec) -> None:
    """Refuse an env whose observation or action spec differs from that of the policy.

    Raises:
        ConfigError: with the difference.
    """
    spec, action = loaded.policy.spec, env.action
    known = (spec.action.kind, spec.action.shape, spec.action.nvec)
    different = "observations" if spec.observation != env.observation else "actions"
    if spec.observation != env.observation or known != (action.kind, action.shape, action.nvec):
        raise ConfigError(
            f"the {different} of {env.id} differ from those that the policy was trained with: install the version of "
            "the env that it was trained with"
        )
