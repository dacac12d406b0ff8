"""Loaded policies with random weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.models import policy_spec, random_vector

from offbeat.algorithms.ppo import PPOConfig
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.trained import Trained
from offbeat.envs.checking.preflight import preflight
from offbeat.models.acting import make_policy


def loaded(env_id: str, **settings: Any) -> LoadedPolicy:
    """Return a policy for an env, with settings of PPO."""
    spec = PPOConfig(**{"hidden_sizes": (4,), **settings}).policy_spec(preflight(env_id))
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(0)))
    return LoadedPolicy(policy, Trained(env_id, "ppo", 0, 0, 0))


def recurrent() -> LoadedPolicy:
    """Return a policy with a core."""
    spec = replace(policy_spec("discrete"), core="gru", core_size=6)
    policy = make_policy(spec)
    policy.load(random_vector(spec, np.random.default_rng(0)) * 3)
    return LoadedPolicy(policy, Trained("test", "ppo", 0, 0, 0))
