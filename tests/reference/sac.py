"""Slow twins of SAC: its losses one transition at a time, and its update on separate modules with torch's Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import exp, log
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st
from tests.reference.actor_critic_twin import ActorCriticTwin, Rows, mean, rows_of
from tests.support.models import leaves, random_observation
from torch import Tensor, distributions, nn

from offbeat.algorithms.replay_actor_critic import ReplayActorCritic
from offbeat.algorithms.sac import SAC
from offbeat.algorithms.sac_config import SACConfig, SoftActorCriticConfig
from offbeat.algorithms.td3_config import TD3Config
from offbeat.core.choices import sample_choices
from offbeat.core.types import ActionSpec, Array, EnvSpec
from offbeat.models.spec import PolicySpec

Config = SoftActorCriticConfig | TD3Config
BOUNDED = {
    "discrete": ActionSpec("discrete", (), nvec=(3,)),
    "masked": ActionSpec("discrete", (), nvec=(4,)),
    "box": ActionSpec("box", (2,), low=(-1.0, 0.0), high=(1.0, 10.0)),
    "matrix": ActionSpec("box", (2, 2), low=(-2.0,) * 4, high=(1.0, 2.0, 3.0, 4.0)),
}


def bounded_spec(action: str, config: Config, observation: str = "vector") -> PolicySpec:
    observation = "masked choices" if action == "masked" else observation
    return config.policy_spec(EnvSpec("Test-v0", leaves(observation, BOUNDED[action]), BOUNDED[action], 4))


def sac_specs(*actions: str) -> st.SearchStrategy[PolicySpec]:
    """Any policy of SAC; of these actions only, if some are named."""
    configs = st.builds(
        SACConfig,
        hidden_sizes=st.lists(st.integers(1, 20), max_size=3).map(tuple),
        activation=st.sampled_from(["tanh", "relu"]),
        normalize_observations=st.booleans(),
    )
    return st.builds(
        bounded_spec,
        st.sampled_from(actions or ("box", "discrete", "matrix")),
        configs,
        st.sampled_from(["vector", "dict"]),
    )


def new_sac(action: str, config: SACConfig, *, observation: str = "vector", seed: int = 0) -> SAC:
    return SAC(config, bounded_spec(action, config, observation), seed=seed)


Algorithm = TypeVar("Algorithm", bound=ReplayActorCritic[Any, Any])


def by_autograd(algorithm: Algorithm) -> Algorithm:
    """Take the quicker path through the gradients away, where there is one; return the algorithm."""
    algorithm.stages = algorithm.make_stages(None)
    return algorithm


def perturb(algorithm: ReplayActorCritic[Any, Any], scale: float, seed: int = 0) -> None:
    """Move all that is learned, so that the ema critics differ from the critics."""
    generator = torch.Generator().manual_seed(seed)
    for name, view in algorithm.arrays().items():
        if name not in algorithm.published_extras:
            view.add_(torch.randn(view.shape, generator=generator), alpha=scale)


def random_samples(spec: PolicySpec, rows: int, seed: int, *, weighted: bool = False) -> dict[str, Tensor]:
    """Return transitions as a replay gives them; about a third of them end in a termination."""
    random = np.random.default_rng(seed)
    first, following = random_observation(spec, rows, random), random_observation(spec, rows, random)
    arrays: dict[str, Array] = {
        **first,
        **{f"next/{name}": leaf for name, leaf in following.items()},
        "reward": random.normal(size=rows).astype(np.float32),
        "discount": np.where(random.random(rows) < 0.3, 0, random.uniform(0.5, 1, rows)).astype(np.float32),
    }
    if spec.action.kind == "box":
        arrays["action"] = random.uniform(-1, 1, (rows, *spec.action.shape)).astype(np.float32)
    else:
        mask = first[spec.mask] if spec.mask else None
        arrays["action"] = sample_choices(spec.action.nvec, rows, random, mask)[:, 0]
    if weighted:
        arrays["weight"] = random.uniform(0.1, 1, rows).astype(np.float32)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


# --- losses, one transition at a time -----------------------------------------------------------------------


def target(reward: float, discount: float, values: Sequence[float], log_prob: float, alpha: float) -> float:
    return reward + discount * (min(values) - alpha * log_prob)


def critic_row(values: Sequence[float], goal: float, weight: float) -> float:
    return sum(weight * (value - goal) ** 2 / 2 for value in values)


def policy_row(log_prob: float, values: Sequence[float], alpha: float) -> float:
    return alpha * log_prob - min(values)


def expected(log_probs: Sequence[float], worth: Sequence[float]) -> float:
    """Return the expectation over the choices of what each is worth."""
    return sum(exp(log_prob) * worth for log_prob, worth in zip(log_probs, worth, strict=True))


def discrete_target(
    reward: float, discount: float, values: Sequence[Sequence[float]], log_probs: Sequence[float], alpha: float
) -> float:
    """`values` are by critic and then by choice."""
    soft = [min(of_choice) - alpha * lp for of_choice, lp in zip(zip(*values, strict=True), log_probs, strict=True)]
    return reward + discount * expected(log_probs, soft)


def discrete_policy_row(log_probs: Sequence[float], values: Sequence[Sequence[float]], alpha: float) -> float:
    worth = [alpha * lp - min(of_choice) for of_choice, lp in zip(zip(*values, strict=True), log_probs, strict=True)]
    return expected(log_probs, worth)


# --- the update ---------------------------------------------------------------------------------------------


def noiseless(row: Mapping[str, Tensor]) -> bool:
    """Whether the row's actions are choices, of which none is drawn."""
    return "noise" not in row


class Twin(ActorCriticTwin):
    """SAC in float64: a list of critics, each an ordinary module, and an optimizer of torch's for each group."""

    def __init__(self, config: SACConfig, spec: PolicySpec, weights: Mapping[str, Rows]) -> None:
        super().__init__(config, weights)
        self.config, self.spec = config, spec
        start = weights.get("log_alpha", np.zeros(()))
        self.log_alpha = torch.tensor(float(start), dtype=torch.float64, requires_grad=True)
        self.optimizers["temperature"] = torch.optim.Adam([self.log_alpha], eps=config.adam_eps)

    @property
    def alpha(self) -> Tensor:
        fixed = self.config.temperature
        return self.log_alpha.detach().exp() if fixed is None else torch.tensor(fixed).double()

    @property
    def target_entropy(self) -> float:
        if self.config.target_entropy is not None:
            return self.config.target_entropy
        action = self.spec.action
        return 0.7 * self._most if action.kind == "discrete" else -float(np.prod(action.shape))

    def update(self, number: int, minibatch: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """Make an update from a prepared minibatch, one row after the other."""
        rows = rows_of(minibatch)
        self.step("critic", mean([self._critic_loss(row) for row in rows]), rates)
        self.follow(self.ema, self.critics)
        if number % self.config.policy_delay:
            return
        results = [self._policy_loss(row) for row in rows]
        entropy = sum(entropy.item() for _, entropy in results) / len(rows)
        allowed = [
            int(row["mask"].sum()) if "mask" in row else self.spec.action.nvec[0] for row in rows if noiseless(row)
        ]
        self._most = sum(log(count) for count in allowed) / len(rows)
        self.step("policy", mean([loss for loss, _ in results]), rates)
        if self.config.temperature is None:
            self.step("temperature", self.log_alpha * (entropy - self.target_entropy), rates)

    def _critic_loss(self, row: Mapping[str, Tensor]) -> Tensor:
        with torch.no_grad():
            next_row = (row["next_observation"], row.get("next_noise"), row.get("next_mask"))
            following = self._soft_value(*next_row, self.ema)
        goal = row["reward"] + row["discount"] * following
        loss = torch.zeros(())
        for critic in self.critics:
            if self.spec.action.kind == "discrete":
                value = critic(row["observation"])[row["action"]]
            else:
                value = critic(torch.cat([row["observation"], row["action"]]))[0]
            loss = loss + (value - goal) ** 2 / 2
        return loss * row.get("weight", torch.ones(()))

    def _policy_loss(self, row: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        critics = deepcopy(self.critics).requires_grad_(requires_grad=False)
        loss = -self._soft_value(row["observation"], row.get("noise"), row.get("mask"), critics)
        return loss, self._entropy

    def _soft_value(
        self, observation: Tensor, noise: Tensor | None, mask: Tensor | None, critics: nn.ModuleList
    ) -> Tensor:
        """min Q - alpha log pi, of an action or in expectation over them; keeps the entropy."""
        output = self.policy(observation)
        if noise is None:
            allowed = torch.ones(len(output), dtype=torch.bool) if mask is None else mask
            choices = distributions.Categorical(logits=output[allowed])
            least = torch.stack([critic(observation)[allowed] for critic in critics]).min(dim=0).values
            self._entropy = choices.entropy()
            return (choices.probs * least).sum() + self.alpha * self._entropy
        mean, log_std = output[: len(noise)], output[len(noise) :].clamp(-20, 2)
        action, log_prob = tanh_gaussian(mean, log_std, noise)
        self._entropy = -log_prob
        values = [critic(torch.cat([observation, action]))[0] for critic in critics]
        return torch.stack(values).min() - self.alpha * log_prob

    def arrays(self) -> dict[str, Rows]:
        """Return all that is learned, by the names of a checkpoint."""
        learned = {"log_alpha": self.log_alpha.detach().numpy()} if self.config.temperature is None else {}
        return {**super().arrays(), **learned}


def tanh_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the action that the noise gives, and its log-probability by torch's own distributions."""
    tanh = distributions.TanhTransform(cache_size=1)
    squashed = distributions.TransformedDistribution(distributions.Normal(mean, log_std.exp()), tanh)
    action = tanh(mean + log_std.exp() * noise)
    return action, squashed.log_prob(action).sum(-1)
