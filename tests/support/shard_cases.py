"""Algorithms with minibatches of every kind, to be cut into shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from tests.reference import dqn, sac
from tests.support import update_rows
from tests.support.sequence_samples import SEQUENCES, env_of, minibatch_of, sampled

from offbeat.algorithms.a2c import A2CConfig
from offbeat.algorithms.base import Algorithm, Minibatch
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3 import TD3
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.seeding import stream
from offbeat.core.types import EnvSpec
from offbeat.metrics.timings import Timings
from offbeat.models.collective import Collective

ROWS = 8
UPDATES = 2


class Cut(NamedTuple):
    """An algorithm and its first minibatches."""

    algorithm: Algorithm
    minibatches: list[Minibatch]


ShardCase = Callable[[Collective], Cut]
"""The same algorithm and minibatches at each call."""


def unrolls(
    config: OnPolicyConfig, action: str = "discrete", *, fast: bool = False, only_one: bool = False, **spec: Any
) -> ShardCase:
    """Minibatches of unrolls. With several updates, the policy has moved away from the proximal one.

    With `no_decision` the batch has rows without a decision, with `only_one` a single one, in the first minibatch.
    """

    def make(collective: Collective) -> Cut:
        side = update_rows.bench(config, action, **spec)
        algorithm = side.algorithm
        assert (algorithm.stages[0].gradients is not None) == fast
        algorithm.collective = collective
        batch = side.fill(0, seed=4)
        if spec.get("no_decision"):
            leave_without_decision(batch, only_one=only_one)
        random = stream(0, "learn", 0)
        prepared = algorithm.prepare(side.learner.feed.take(0, Timings()).batch)
        minibatches = list(islice(algorithm.minibatches(prepared, random), UPDATES))
        if isinstance(config, PPOConfig):
            update_rows.perturb(algorithm, 0.05)
        return Cut(algorithm, minibatches)

    return make


def leave_without_decision(batch: dict[str, Any], *, only_one: bool) -> None:
    """Turn some decisions of a batch, and all of one column, into rows without one; or only one of them."""
    done = batch["terminated"] | batch["truncated"]
    ours = batch["valid"] & ~done
    ours[0] = ours[-1] = False
    if only_one:
        ours &= np.cumsum(ours).reshape(ours.shape) == 1
    else:
        ours[:, 1:] &= np.random.default_rng(0).random(ours[:, 1:].shape) < 0.4
        ours[:, 0] = True
    batch["valid"][ours] = False
    batch["no_decision"][ours] = True


def transitions(
    kind: type[SAC | TD3 | DQN],
    config: Any,
    action: str = "discrete",
    *,
    images: bool = False,
    by_autograd: bool = False,
) -> ShardCase:
    """Minibatches of single transitions."""

    def make(collective: Collective) -> Cut:
        env = env_of(action)
        if images:
            env = replace(env, observation=update_rows.WITH_IMAGES)
        algorithm = made(kind, config, env, collective)
        if isinstance(algorithm, SAC | TD3) and by_autograd:
            sac.by_autograd(algorithm)
        samples = [
            sac.random_samples(algorithm.spec, ROWS, seed, weighted=config.prioritized) for seed in range(UPDATES)
        ]
        return Cut(algorithm, [algorithm.minibatch(each, stream(0, "learn", 0)) for each in samples])

    return make


def sequences(
    kind: type[SAC | TD3 | DQN], config_class: type[Any], action: str = "discrete", **settings: Any
) -> ShardCase:
    """Minibatches of sequences, for a core."""

    def make(collective: Collective) -> Cut:
        env = env_of(action)
        algorithm = made(kind, config_class(**{**SEQUENCES, **settings}), env, collective)
        samples = [sampled(algorithm, env, seed) for seed in range(UPDATES)]
        return Cut(algorithm, [minibatch_of(algorithm, each) for each in samples])

    return make


def made(kind: type[SAC | TD3 | DQN], config: Any, env: EnvSpec, collective: Collective) -> SAC | TD3 | DQN:
    algorithm = kind(config, config.policy_spec(env), seed=1)
    (dqn if issubclass(kind, DQN) else sac).perturb(algorithm, 0.3)
    algorithm.collective = collective
    return algorithm


SMALL: dict[str, Any] = {"hidden_sizes": (6, 5)}
MINI: dict[str, Any] = {**SMALL, "minibatch_size": 12}
CORE: dict[str, Any] = {"core": "gru", "core_size": 4}
SHARD_CASES: dict[str, ShardCase] = {
    "ppo, fast path": unrolls(PPOConfig(**MINI), fast=True),
    "ppo, box, fast path": unrolls(PPOConfig(**MINI, value_clip=0.1, entropy_coef=0.1), "box", fast=True),
    "ppo": unrolls(PPOConfig(**MINI, value_clip=0.1, entropy_coef=0.1), "multidiscrete"),
    "ppo, advantages as they are": unrolls(PPOConfig(**MINI, normalize_advantages=False), "tree"),
    "ppo, recomputed advantages": unrolls(  # each minibatch is an epoch
        PPOConfig(**SMALL, minibatch_size=1000, recompute_advantages=True), "multidiscrete"
    ),
    "ppo, masks": unrolls(PPOConfig(**MINI), observation="masked"),
    "ppo, lag, images": unrolls(PPOConfig(hidden_sizes=(), minibatch_size=12), images=True, max_lag=1),
    "ppo, rows without a decision": unrolls(PPOConfig(**MINI), no_decision=True),
    "ppo, one row without a decision": unrolls(PPOConfig(**MINI), no_decision=True, only_one=True),
    "ppo, gru": unrolls(PPOConfig(**MINI, **CORE)),
    "ppo, gru, rows without a decision": unrolls(PPOConfig(**MINI, **CORE), no_decision=True, max_lag=1),
    "ppo, gru, images": unrolls(PPOConfig(hidden_sizes=(), minibatch_size=12, **CORE), images=True),
    "a2c, fast path": unrolls(A2CConfig(**SMALL), "box", fast=True),
    "a2c": unrolls(A2CConfig(**SMALL, exploration="symmetric_kl", normalize_advantages=True)),
    "impala, lag, fast path": unrolls(IMPALAConfig(**SMALL), max_lag=1, fast=True),
    "impala": unrolls(IMPALAConfig(**SMALL), "multidiscrete"),
    "impala, lstm, rows without a decision": unrolls(IMPALAConfig(**SMALL, core="lstm", core_size=4), no_decision=True),
    "sac, fast path": transitions(SAC, SACConfig(**SMALL), "box"),
    "sac, prioritized, fast path": transitions(SAC, SACConfig(**SMALL, prioritized=True), "matrix"),
    "sac": transitions(SAC, SACConfig(**SMALL), "box", by_autograd=True),
    "sac, masks, prioritized": transitions(SAC, SACConfig(**SMALL, prioritized=True), "masked"),
    "sac, gru": sequences(SAC, SACConfig, "box"),
    "sac, lstm, masks, prioritized": sequences(SAC, SACConfig, "masked", core="lstm", prioritized=True),
    "td3, fast path": transitions(TD3, TD3Config(**SMALL), "box"),
    "td3, prioritized": transitions(TD3, TD3Config(**SMALL, prioritized=True), "matrix", by_autograd=True),
    "td3, gru": sequences(TD3, TD3Config, "box"),
    "dqn": transitions(DQN, DQNConfig(**SMALL)),
    "dqn, images, prioritized": transitions(DQN, DQNConfig(hidden_sizes=(), prioritized=True), images=True),
    "dqn, gru, prioritized": sequences(DQN, DQNConfig, "masked", prioritized=True),
}
