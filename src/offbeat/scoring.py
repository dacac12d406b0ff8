"""Whole episodes with a trained policy, as figures: what `offbeat eval` prints and `offbeat push` puts on the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offbeat.envs.make import make_envs
from offbeat.errors import ConfigError
from offbeat.loading import LoadedPolicy
from offbeat.threads import limit_blas
from offbeat.trust import Code, require
from offbeat.types import EnvSpec
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
        ConfigError: the env cannot be made here, is code that was not accepted, or is not what was trained on.
    """
    require(Code(env=loaded.trained.env), "the policy")
    limit_blas(1)
    columns, info_mask = min(episodes, EVALUATION_ENVS), loaded.policy.spec.info_mask
    trained = loaded.trained
    envs = make_envs(trained.env, columns, seed=seed, role="eval", settings=trained.env_config, info_mask=info_mask)
    try:
        _require_fit(loaded, envs.spec)
        result = evaluate(loaded.policy, envs, episodes=episodes, seed=seed, sampled=sampled, on_step=on_step)
    finally:
        envs.close()
    return {
        "episodes": episodes,
        "return_mean": result.return_mean,
        "return_std": result.return_std,
        "return_min": float(result.returns.min()),
        "return_max": float(result.returns.max()),
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
