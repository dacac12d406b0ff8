"""Samples of sequences from a replay with random rows, and the settings of networks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.reference.sac import BOUNDED
from tests.support.models import leaves, random_observation

from offbeat.algorithms.base import Minibatch
from offbeat.algorithms.dqn import DQN
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.td3 import TD3
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.choices import sample_choices
from offbeat.core.seeding import stream
from offbeat.core.types import EnvSpec, Tree, env_fields
from offbeat.memory.arena import private_arena
from offbeat.memory.replay.base import Samples
from offbeat.models.spec import PolicySpec

COLUMNS, LENGTH = 3, 5
SEQUENCES: dict[str, Any] = {
    "hidden_sizes": (6,),
    "core": "gru",
    "core_size": 4,
    "chunk_length": LENGTH,
    "batch_size": 7 * LENGTH,
    "warmup": 60,
    "capacity": 300,
    "n_step": 2,
}


def env_of(action: str) -> EnvSpec:
    observation = "masked choices" if action == "masked" else "vector"
    return EnvSpec("Test-v0", leaves(observation, BOUNDED[action]), BOUNDED[action], COLUMNS)


def sampled(algorithm: DQN | SAC | TD3, env: EnvSpec, seed: int = 0) -> Samples:
    """Return a sample of a replay with ends of episodes, resets and other rows without a decision."""
    config, spec, random = algorithm.config, algorithm.spec, np.random.default_rng(seed)
    shape = config.memory(RuntimeConfig(actors=2, envs_per_actor=COLUMNS))
    fields = (*env_fields(env), *algorithm.fields())
    rings = shape.slots(fields, private_arena(shape.slabs(fields)))
    replay = config.replay(rings)
    for ticket in range(shape.tickets + 3):
        _fill(rings.open(ticket), spec, random)
        replay.take_in(ticket, 0)
    samples = replay.sample(random)
    if replay.prioritized:
        for _ in range(9):
            replay.update_priorities(samples, random.uniform(0.1, 3, len(samples.cells)))
            samples = replay.sample(random)
        assert len(set(samples.arrays["weight"].tolist())) > 2
    arrays = samples.arrays
    before = config.rows_before
    assert (arrays["resets"][before:-1] == ~arrays["valid"]).all(), "a row that is no transition ends the memory"
    assert arrays["resets"][:before].any() or not before
    assert len(np.unique(arrays["next"] - np.arange(LENGTH)[:, None])) == config.n_step
    return samples


def _fill(slot: Tree, spec: PolicySpec, random: np.random.Generator) -> None:
    rows, size = slot["reward"].shape, slot["reward"].size
    observation = random_observation(spec, size, random)
    for name, leaf in observation.items():
        slot[name][...] = leaf.reshape(*rows, *leaf.shape[1:])
    if spec.action.kind == "box":
        slot["action"][...] = random.uniform(-1, 1, slot["action"].shape)
    else:
        mask = observation[spec.mask] if spec.mask else None
        slot["action"][...] = sample_choices(spec.action.nvec, size, random, mask)[:, 0].reshape(rows)
    slot["reward"][...] = random.normal(size=rows)
    slot["terminated"][...] = random.random(rows) < 0.1
    slot["truncated"][...] = random.random(rows) < 0.1
    slot["valid"][...] = random.random(rows) < 0.8
    slot["valid"][1:] &= ~(slot["terminated"] | slot["truncated"])[:-1]
    slot["initial_state"][...] = random.normal(size=slot["initial_state"].shape)


def minibatch_of(algorithm: DQN | SAC | TD3, samples: Samples) -> Minibatch:
    tensors = {name: torch.from_numpy(array) for name, array in samples.arrays.items()}
    return algorithm.minibatch(tensors, stream(0, "learn", 0))
