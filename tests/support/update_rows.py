"""Unrolls filled with random rows, and the algorithm and learner that learn from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.support.models import policy_spec, random_action, random_observation

from offbeat.algorithms.a2c import A2C, A2CConfig
from offbeat.algorithms.impala import IMPALA, IMPALAConfig
from offbeat.algorithms.on_policy import OnPolicy
from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.ppo import PPO, PPOConfig
from offbeat.core.fields import SMALLEST_IMAGE
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import EnvSpec, Leaf, Tree, env_fields
from offbeat.memory.arena import private_arena
from offbeat.memory.unrolls import Unrolls, UnrollShape
from offbeat.memory.weights import Weights, weight_slabs
from offbeat.metrics.timings import Timings
from offbeat.models.acting import ActingPolicy, make_policy
from offbeat.models.published import published_layout
from offbeat.models.spec import PolicySpec
from offbeat.workers.learner import UnrollLearner
from offbeat.workers.staging import Staging
from offbeat.workers.unroll_feed import UnrollFeed

UNROLL_LENGTH = 6
COLUMNS = 3
UNROLLS = 2
WITH_IMAGES = (
    Leaf("observation/image", (SMALLEST_IMAGE, SMALLEST_IMAGE, 1), "uint8"),
    Leaf("observation/place", (3,), "float32"),
)
ALGORITHMS: dict[type[OnPolicyConfig], type[OnPolicy[Any]]] = {PPOConfig: PPO, A2CConfig: A2C, IMPALAConfig: IMPALA}


@dataclass
class Bench:
    """A learner with its memory, and nobody who acts."""

    algorithm: OnPolicy[Any]
    spec: PolicySpec
    unrolls: Unrolls
    weights: Weights
    learner: UnrollLearner
    pace: OnPolicyPace

    def fill(self, step: int, seed: int) -> Tree:
        """Write random rows into a batch, acted with the version that the pace names; return its arrays."""
        version = self.pace.learned_before_act(self.pace.tickets_of(step).start)
        policy = make_policy(self.spec)
        policy.load(self.weights.read(version))
        for ticket in self.pace.tickets_of(step):
            fill_slot(self.unrolls.open(ticket), policy, version, np.random.default_rng([seed, ticket]))
        return self.unrolls.arrays_of(step)

    @property
    def parameters(self) -> NDArray[np.float32]:
        """A copy of all that is trained."""
        return self.algorithm.groups["actor_critic"].parameters.values.numpy().copy()


def bench(
    config: OnPolicyConfig,
    action: str = "discrete",
    *,
    max_lag: int = 0,
    no_decision: bool = False,
    images: bool = False,
    **spec: Any,
) -> Bench:
    policy = policy_spec(
        action,
        hidden_sizes=(64, 64) if config.hidden_sizes is None else config.hidden_sizes,
        activation=config.activation,
        squashed=config.action_distribution == "squashed",
        normalize=config.normalize_observations,
        **spec,
    )
    core_size = 0 if config.core == "none" else config.core_size
    policy = replace(policy, core=config.core, core_size=core_size, no_decision=no_decision)
    if images:
        policy = replace(policy, observation=WITH_IMAGES, encoder="impala_resnet")
    pace = OnPolicyPace(UNROLLS, max_lag, config.resident_batches, config.passes)
    algorithm = ALGORITHMS[type(config)](config, policy, seed=3, corrected=config.corrects(max_lag))
    env = EnvSpec("test", policy.observation, policy.action, COLUMNS, no_decision=no_decision)
    fields = [*env_fields(env), *algorithm.fields()]
    slabs = [
        *UnrollShape(pace, UNROLL_LENGTH, COLUMNS).slabs(fields),
        *weight_slabs(published_layout(policy).size, pace.versions),
    ]
    arrays = private_arena(slabs)
    unrolls, weights = Unrolls(fields, pace, arrays), Weights(arrays)
    learner = UnrollLearner(algorithm, UnrollFeed(unrolls, Staging("cpu")), weights, seed=5, timings=Timings())
    perturb(algorithm, 0.3)
    learner.publish(0)
    return Bench(algorithm, policy, unrolls, weights, learner, pace)


def perturb(algorithm: OnPolicy[Any], scale: float, seed: int = 0) -> None:
    """Move every parameter: no bias is zero any more, and no policy uniform."""
    generator = torch.Generator().manual_seed(seed)
    for view in algorithm.groups["actor_critic"].parameters.arrays().values():
        view.add_(torch.randn(view.shape, generator=generator), alpha=scale)


def fill_slot(slot: Tree, policy: ActingPolicy, version: int, random: np.random.Generator) -> None:
    """Write an unroll of rows in NEXT_STEP order: a reset row follows each end."""
    spec, rows = policy.spec, UNROLL_LENGTH + 1
    for name, leaf in random_observation(spec, rows * COLUMNS, random).items():
        slot[name][...] = leaf.reshape(slot[name].shape)
    slot["behavior_version"][...] = version
    terminated, truncated = random.random((2, rows, COLUMNS)) < 0.2
    truncated &= ~terminated
    valid = np.ones((rows, COLUMNS), np.bool_)
    for row in range(1, rows):
        valid[row] = ~(terminated | truncated)[row - 1]
        terminated[row] &= valid[row]
        truncated[row] &= valid[row]
    slot["terminated"][...], slot["truncated"][...], slot["valid"][...] = terminated, truncated, valid
    slot["reward"][...] = np.where(valid, random.normal(2, 3, valid.shape), 0)
    state = random.normal(size=(COLUMNS, policy.state_size)).astype(np.float32)
    if policy.state_size:
        slot["initial_state"][...] = state
    for row in range(rows):
        acted = policy.act({leaf.name: slot[leaf.name][row] for leaf in spec.observation}, random, state)
        state[~valid[row]] = 0
        slot["action"][row], slot["behavior_log_prob"][row] = acted.action, acted.recorded["behavior_log_prob"]


def random_minibatch(
    algorithm: OnPolicy[Any], spec: PolicySpec, rows: int, seed: int, drift: float = 0.3
) -> dict[str, Any]:
    """Return a minibatch whose proximal policy and values are some way from the current ones."""
    random = np.random.default_rng(seed)
    observation = torch.from_numpy(random.normal(size=(rows, spec.inputs)).astype(np.float32))
    action = torch.from_numpy(random_action(spec, rows, random))
    with torch.no_grad():
        distribution, values = algorithm.network.distribution_and_values(observation)
        log_prob = distribution.log_prob(action)
    noise = torch.from_numpy(random.normal(scale=drift, size=(2, rows)).astype(np.float32))
    drawn = torch.from_numpy(random.normal(size=(2, rows)).astype(np.float32))
    return {
        "observation": observation,
        "action": action,
        "reference_log_prob": log_prob + noise[0],
        "advantage": 3 * drawn[0] + 1,
        "value_target": values + drawn[1],
        "proximal_value": values + noise[1],
        "rows": None,
    }
