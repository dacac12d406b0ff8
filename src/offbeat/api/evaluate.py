"""Whole episodes with a trained policy, as scores: what `offbeat eval` prints and `offbeat push` puts on the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offbeat.api.load import LoadedPolicy
from offbeat.config.env import EVALUATION_STEPS
from offbeat.config.trust import Code, require
from offbeat.core.errors import ConfigError
from offbeat.core.threads import limit_blas
from offbeat.core.types import EnvSpec
from offbeat.workers.evaluator import evaluate, evaluation_envs

SCORE_STEPS = 10_000_000
"""Env steps of all envs together after which it ends, if nothing else is asked for."""


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
    """Play `episodes` whole episodes on envs of their own, and return the scores by name.

    `episodes` is how many the scores are of, `cut` how many of these a bound cut, and `not_begun` how many were asked
    for beside them.

    Args:
        loaded: the policy.
        episodes: how many.
        seed: keys the envs and the sampling.
        sampled: sample actions, instead of taking the most likely one.
        max_episode_steps: env steps after which an episode is cut, which counts with what it has earned.
        max_steps: env steps after which all ends, all envs together.
        on_step: as for `evaluate`.

    Raises:
        ConfigError: the env cannot be made here, is code that was not accepted, or is not what was trained on.
        EnvFailed: it failed while it was stepped.
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
    """Refuse an env whose observations or actions are not those that the policy knows.

    Raises:
        ConfigError: with what differs.
    """
    spec, action = loaded.policy.spec, env.action
    known = (spec.action.kind, spec.action.shape, spec.action.nvec)
    different = "observations" if spec.observation != env.observation else "actions"
    if spec.observation != env.observation or known != (action.kind, action.shape, action.nvec):
        raise ConfigError(
            f"the policy was trained on other {different} than {env.id} has here: use the version of the env that it "
            "was trained with"
        )
