"""Algorithms of every kind on any device, with minibatches for several updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.reference import crossq, dqn, sac
from tests.support import update_rows
from tests.support.models import ACTIONS, OBSERVATIONS, policy_spec
from torch import Tensor

from offbeat.algorithms.a2c import A2CConfig
from offbeat.algorithms.base import Algorithm, Minibatch
from offbeat.algorithms.crossq import CrossQ
from offbeat.algorithms.crossq_config import CrossQConfig
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.impala import IMPALAConfig
from offbeat.algorithms.on_policy import OnPolicy
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPOConfig
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig
from offbeat.algorithms.td3 import TD3
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.seeding import stream
from offbeat.core.types import EnvSpec, Tree
from offbeat.metrics.timings import Timings
from offbeat.workers import updates as updates_module
from offbeat.workers.stages import DeviceApplier
from offbeat.workers.updates import Updates

ROWS = 8
Case = Callable[[str], tuple[Algorithm, Iterator[Minibatch]]]
"""From a device to an algorithm there and its minibatches, the same at each call."""


@contextmanager
def stages_on_a_device() -> Iterator[None]:
    """Let updates on a CPU decide as those on another device do."""
    with patch.object(updates_module, "make_applier", DeviceApplier):
        yield


def learned_by(algorithm: Algorithm, updates: Updates) -> Tree:
    """Return a copy of everything that updates change."""
    moments = {
        f"adam/{group}/{name}": array for group, of_group in updates.state().items() for name, array in of_group.items()
    }
    return {name: np.array(array) for name, array in {**algorithm.weights(), **moments}.items()}


def moved(tensors: Mapping[str, Any], device: str) -> dict[str, Any]:
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        for name, value in tensors.items()
    }


def on_policy(config: OnPolicyConfig, action: str, *, fast: bool = False) -> Case:
    def make(device: str) -> tuple[Algorithm, Iterator[Minibatch]]:
        squashed = config.action_distribution == "squashed"
        spec = policy_spec(action, hidden_sizes=(6, 5), squashed=squashed)
        kind = update_rows.ALGORITHMS[type(config)]
        algorithms: list[OnPolicy[Any]] = [
            kind(config, spec, seed=1, corrected=False, device=of) for of in (device, "cpu")
        ]
        algorithm, twin = algorithms
        if fast:
            assert algorithm.stages[0].gradients is not None
        else:
            algorithm.stages = tuple(replace(stage, gradients=None) for stage in algorithm.stages)
        update_rows.perturb(twin, 0.3)
        if device == "cpu":
            update_rows.perturb(algorithm, 0.3)
        rows = (update_rows.random_minibatch(twin, spec, ROWS, seed) for seed in range(100))
        return algorithm, (moved(minibatch, device) for minibatch in rows)

    return make


def recurrent_ppo(device: str) -> tuple[Algorithm, Iterator[Minibatch]]:
    """Return PPO with a core; its minibatches are made on the CPU, as the number of their rows is not known before."""
    config = PPOConfig(hidden_sizes=(6,), core="gru", core_size=4, epochs=3, minibatch_size=12)
    side = update_rows.bench(config)
    prepared = []
    for step in range(2):
        side.fill(step, seed=4)
        batch = side.algorithm.prepare(side.learner.feed.take(step, Timings()).batch)
        prepared += list(side.algorithm.minibatches(batch, stream(0, "learn", step)))
        side.weights.open(step + 1)
        side.weights.commit(step + 1, 0.0)
    algorithm = type(side.algorithm)(config, side.spec, seed=3, corrected=False, device=device)
    return algorithm, (moved(minibatch, device) for minibatch in prepared)


def actor_critic(
    kind: Callable[..., Any],
    config: sac.Config,
    action: str,
    *,
    fast: bool,
    perturb: Callable[[Any], None] | None = None,
) -> Case:
    def make(device: str) -> tuple[Algorithm, Iterator[Minibatch]]:
        algorithm = kind(config, sac.bounded_spec(action, config), seed=1, device=device)
        if fast:
            assert algorithm.stages[0].gradients is not None
        else:
            sac.by_autograd(algorithm)
        if device == "cpu":
            (perturb or partial(sac.perturb, scale=0.3))(algorithm)
        return algorithm, sampled(algorithm, device, weighted=config.prioritized)

    return make


def soft_actor_critic(action: str, *, fast: bool = False, **settings: Any) -> Case:
    config = SACConfig(hidden_sizes=(6, 5), learning_rate=1e-2, ema_rate=0.1, **settings)
    return actor_critic(SAC, config, action, fast=fast)


def twin_delayed(action: str, *, fast: bool = False, **settings: Any) -> Case:
    config = TD3Config(hidden_sizes=(6, 5), learning_rate=1e-2, ema_rate=0.1, **settings)
    return actor_critic(TD3, config, action, fast=fast)


def cross_normalized(*, fast: bool = False, **settings: Any) -> Case:
    config = CrossQConfig(hidden_sizes=(6, 5), learning_rate=1e-2, **settings)
    perturb = partial(crossq.set_moments, seed=1, renormalized=True)
    return actor_critic(CrossQ, config, "box", fast=fast, perturb=perturb)


def deep_q_network(**settings: Any) -> Case:
    config = DQNConfig(hidden_sizes=(6, 5), learning_rate=1e-2, ema_rate=0.1, **settings)

    def make(device: str) -> tuple[Algorithm, Iterator[Minibatch]]:
        env = EnvSpec("Test-v0", OBSERVATIONS["vector"], ACTIONS["discrete"], 4)
        algorithm = DQN(config, config.policy_spec(env), seed=1, device=device)
        if device == "cpu":
            dqn.perturb(algorithm, 0.3)
        return algorithm, sampled(algorithm, device, weighted=config.prioritized)

    return make


def sampled(algorithm: SAC | TD3 | CrossQ | DQN, device: str, *, weighted: bool) -> Iterator[Minibatch]:
    for seed in range(100):
        samples = sac.random_samples(algorithm.spec, ROWS, seed, weighted=weighted)
        yield algorithm.minibatch(moved(samples, device), stream(seed, "learn", 0))


CLIPPED: dict[str, Any] = {"max_grad_norm": 0.05}
CASES: dict[str, Case] = {
    "ppo": on_policy(PPOConfig(kl_target=0.1), "discrete"),
    "ppo, clipped, squashed": on_policy(PPOConfig(action_distribution="squashed", value_clip=0.1, **CLIPPED), "box"),
    "ppo, matrix": on_policy(PPOConfig(), "matrix"),
    "ppo, gru": recurrent_ppo,
    "a2c": on_policy(A2CConfig(exploration="symmetric_kl"), "discrete"),
    "impala": on_policy(IMPALAConfig(), "multidiscrete"),
    "sac, box": soft_actor_critic("box"),
    "sac, box, clipped, delayed": soft_actor_critic("box", policy_delay=2, **CLIPPED),
    "sac, box, fixed temperature": soft_actor_critic("box", temperature=0.1),
    "sac, choices, prioritized": soft_actor_critic("discrete", prioritized=True),
    "sac, masks": soft_actor_critic("masked"),
    "td3, prioritized": twin_delayed("matrix", prioritized=True),
    "td3, clipped": twin_delayed("box", policy_delay=1, **CLIPPED),
    "crossq, prioritized": cross_normalized(policy_delay=1, prioritized=True),
    "dqn": deep_q_network(),
    "dqn, prioritized": deep_q_network(prioritized=True, ema_every=2, double=False, **CLIPPED),
}
FAST_CASES: dict[str, Case] = {
    "ppo, fast path": on_policy(PPOConfig(), "discrete", fast=True),
    "sac, fast path": soft_actor_critic("box", prioritized=True, fast=True),
    "td3, fast path": twin_delayed("box", prioritized=True, fast=True),
    "crossq, fast path": cross_normalized(policy_delay=1, fast=True),
}
"""With analytic gradients, which are for the CPU."""
