"""Whole episodes with a trained policy, as figures: what `offbeat eval` prints and `offbeat push` puts on the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offbeat.envs.make import make_envs
from offbeat.loading import LoadedPolicy
from offbeat.threads import limit_blas
from offbeat.workers.evaluator import EVALUATION_ENVS, evaluate


def score(
    loaded: LoadedPolicy,
    *,
    episodes: int,
    seed: int,
    sampled: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Play exactly `episodes` whole episodes on envs of their own, and return the figures by name.

    Args:
        loaded: the policy.
        episodes: how many.
        seed: keys the envs and the sampling.
        sampled: sample actions, instead of taking the most likely one.
        on_step: as for `evaluate`.

    Raises:
        ConfigError: the env cannot be made here.
    """
    limit_blas(1)
    columns, info_mask = min(episodes, EVALUATION_ENVS), loaded.policy.spec.info_mask
    trained = loaded.trained
    envs = make_envs(trained.env, columns, seed=seed, role="eval", settings=trained.env_config, info_mask=info_mask)
    try:
        result = evaluate(loaded.policy, envs, episodes=episodes, seed=seed, sampled=sampled, on_step=on_step)
    finally:
        envs.close()
    return {
        "episodes": episodes,
        "return_mean": result.return_mean,
        "return_std": result.return_std,
        "return_min": result.return_min,
        "return_max": result.return_max,
        "length_mean": result.length_mean,
        "env_steps": trained.env_steps,
        "learning_step": trained.learning_step,
        "updates": trained.updates,
    }
