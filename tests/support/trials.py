"""Policies with random weights that infer their task, and their trials in test tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from offbeat.config.env import MAX_EPISODE_STEPS, UNSET, EnvConfig
from offbeat.core.seeding import stream
from offbeat.core.tasks import TaskSample, Trials
from offbeat.envs.make import make_envs
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import ContextEncoderSpec, PolicySpec
from offbeat.workers.episodes import Evaluation
from offbeat.workers.evaluation_envs import evaluation_envs
from offbeat.workers.evaluator import PlayOptions
from offbeat.workers.trials import evaluate_policies

ROBOT = "offbeat/PointRobot-v0"
TRIALS = Trials(TaskSample(seed=5, train=3, test=4), prior_episodes=2)


def policy_for(env_id: str, *, zero: bool = False) -> ActingPolicy:
    env = make_envs(env_id, 1, seed=0).spec
    spec = PolicySpec(
        env.observation, env.action, (8,), "relu", "tanh_gaussian", False, context_encoder=ContextEncoderSpec(2, (5,))
    )
    policy = make_policy(spec)
    size = published_layout(spec).size
    policy.load(np.zeros(size, np.float32) if zero else stream(0, "weights").normal(size=size).astype(np.float32))
    return policy


def played(
    policy: ActingPolicy,
    env_id: str,
    count: int,
    *,
    seed: int = 0,
    env: EnvConfig = UNSET,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    **options: Any,
) -> Evaluation:
    envs = evaluation_envs(
        env_id, count, seed=seed, role="test", settings=env, max_episode_steps=max_episode_steps, trials=TRIALS
    )
    own = PlayOptions(**options)
    return evaluate_policies({"default": policy}, envs, TRIALS, episodes=count, seed=seed, options=own)


def sampled_tests(env_class: Any) -> list[Any]:
    """The test tasks, as the envs sample them."""
    random, env = stream(TRIALS.tasks.seed, "tasks"), env_class()
    env.sample_tasks(TRIALS.tasks.train, random)
    return list(env.sample_tasks(TRIALS.tasks.test, random))
