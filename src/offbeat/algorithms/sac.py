"""Soft actor-critic (arXiv:1801.01290, arXiv:1812.05905), config and algorithm; for choices arXiv:1910.07207.

An update has three stages, in the order of the data: the critics learn the soft value of the sampled transitions, the
policy learns to please the critics and to keep its entropy, and the temperature learns to weigh the two such that the
entropy meets its target. The value that follows a transition is that of the ema critics, which follow the critics
after each of their steps.

Until the first update of the policy, actions are uniform over all there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from offbeat.algorithms.analytic import analytic_gradients, has_analytic_gradients
from offbeat.algorithms.base import Batch, LossResult, Minibatch, ParameterGroup, Stage
from offbeat.algorithms.off_policy import OffPolicy, ReplayConfig
from offbeat.algorithms.sac_gradients import SACGradients
from offbeat.algorithms.sequences import Network
from offbeat.config.tables import Config
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, NonNegative, Positive
from offbeat.core.types import Array, EnvSpec
from offbeat.losses import sac as losses
from offbeat.models.critics import Critics
from offbeat.models.distributions import TanhGaussian, masked
from offbeat.models.flat import FlatParameters, frozen
from offbeat.models.policy_network import Body, Uniform
from offbeat.models.soft_policy import SoftPolicy
from offbeat.models.spec import Activation, PolicySpec
from offbeat.models.storage import Storage
from offbeat.models.two_threads import TwoThreadExecutor

HIDDEN_SIZES = (256, 256)
"""Units of each hidden layer, of the policy and of each critic, unless the settings say otherwise."""
CRITIC, POLICY, TEMPERATURE = "critic", "policy", "temperature"
SHARE_OF_ENTROPY = 0.7
"""Of the uniform policy's entropy: the default target over choices. arXiv:1910.07207 has 0.98, which a policy of two
choices that is any good cannot keep; its author and github.com/toshikwa/sac-discrete.pytorch/issues/10 went lower."""


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    """The settings of SAC; the defaults are those of arXiv:1812.05905, appendix D, unless noted."""

    policy_learning_rate: Positive | None = None
    """Adam's step size for the policy; none: learning_rate."""
    critic_learning_rate: Positive | None = None
    """Adam's step size for the critics; none: learning_rate."""
    temperature_learning_rate: Positive | None = None
    """Adam's step size for the logarithm of the temperature; none: learning_rate."""
    ema_rate: Annotated[float, Bound(above=0, high=1)] = 0.005
    """Share of the way that the ema critics go to the critics after each of their steps."""
    critics: Count = 2
    """Critics in the ensemble, of which the least value counts."""
    policy_delay: Count = 1
    """Policy and temperature are changed in each so many-th update only."""
    temperature: NonNegative | None = None
    """Weight of the entropy, in units of reward; none: learned, such that the entropy meets its target."""
    initial_temperature: Positive = 1.0
    """What a learned temperature begins at."""
    target_entropy: float | None = None
    """In nats, of actions in [-1, 1]; none: -1 for each number in an action, or 0.7 of what the choices, those allowed
    in a state if there are masks, have at most."""
    activation: Activation = "relu"
    """Between the hidden layers; encoders have ReLU."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics."""
    max_grad_norm: Positive | None = None
    """Gradients of policy, critics and temperature are scaled down to this norm, each by itself; none: never."""
    adam_eps: Positive = 1e-8
    """Adam's epsilon."""

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: the env's actions do not suit these settings.
        """
        _require_actions(env)
        self._require_use_of_temperature()
        for key, given in (("layer_norm", self.layer_norm), ("precision", self.precision != "fp32")):
            if given:
                raise ConfigError(f"{key} is {getattr(self, key)}, which SAC's critics do not have: leave it out")
        spec = PolicySpec(
            **self.network(env, HIDDEN_SIZES),
            distribution="tanh_gaussian" if env.action.kind == "box" else "categorical",
            normalize=self.normalize_observations,
            uniform_start=True,
        )
        self._require_target(env, spec)
        return spec

    def _require_use_of_temperature(self) -> None:
        """Refuse settings of a temperature that is learned, where it is fixed.

        Raises:
            ConfigError: with the one that has no effect.
        """
        for key in ("initial_temperature", "target_entropy", "temperature_learning_rate"):
            if self.temperature is not None and getattr(self, key) != getattr(SACConfig, key):
                raise ConfigError(
                    f"{key} is {getattr(self, key):g}, which has no effect while temperature is fixed at "
                    f"{self.temperature:g}: leave it out, or pass --set temperature=none, so that it is learned"
                )

    def entropy_sought(self, spec: PolicySpec) -> float:
        """Return the entropy that a learned temperature keeps the policy at, in nats."""
        return self._default_target(spec) if self.target_entropy is None else self.target_entropy

    def _require_target(self, env: EnvSpec, spec: PolicySpec) -> None:
        """Refuse a target that no policy can meet: the temperature would grow for ever.

        Raises:
            ConfigError: with the most that there can be.
        """
        most, target = _most_entropy(spec), self.target_entropy
        if self.temperature is None and target is not None and target >= most:
            raise ConfigError(
                f"target_entropy is {target:g}, but it must be less than the {most:.4g} nats of the policy that draws "
                f"uniformly among the actions of {env.id}: pass --set target_entropy={self._default_target(spec):.4g}"
            )

    def _default_target(self, spec: PolicySpec) -> float:
        if spec.action.kind == "discrete":
            return SHARE_OF_ENTROPY * _most_entropy(spec)
        return -float(spec.action_size)  # arXiv:1812.05905, appendix D


def _require_actions(env: EnvSpec) -> None:
    """Refuse an env whose actions SAC cannot choose.

    Raises:
        ConfigError: with the actions that there are.
    """
    action = env.action
    if action.kind in ("multidiscrete", "mixed"):
        boxes = f" and {len(action.low)} numbers" if action.low else ""
        raise ConfigError(
            f"{env.id} has {action.kind} actions of {list(action.nvec)} choices{boxes}, but SAC expects a bounded box "
            f"or one discrete action: run `offbeat train ppo {env.id}`"
        )
    if action.kind == "box" and not np.isfinite([*action.low, *action.high]).all():
        raise ConfigError(
            f"{env.id} has actions from {list(action.low)} to {list(action.high)}, but SAC expects a box with finite "
            f"bounds: wrap the env so that it has them, or run `offbeat train ppo {env.id}`"
        )


def _most_entropy(spec: PolicySpec) -> float:
    """Return the entropy of the uniform policy, in nats: a box is [-1, 1] in each number here."""
    return spec.action_size * math.log(spec.action.nvec[0] if spec.action.kind == "discrete" else 2)


class _Forward(Protocol):
    """`OffPolicy._forward`."""

    def __call__(self, network: Network, minibatch: Minibatch, name: str, *, stored: bool = True) -> Tensor: ...


class _Networks(NamedTuple):
    policy: SoftPolicy
    critics: Critics
    frozen: Critics
    """The critics on the same values, but without gradients: through them, the policy alone is differentiated."""
    ema: Critics
    forward_of: _Forward

    def parameters(self, minibatch: Minibatch, name: str) -> Tensor:
        """Return those of the action distributions at 'observation' or 'next_observation', [M, outputs]."""
        return self.forward_of(self.policy.moved_on, minibatch, name)

    def features(self, critics: Critics, minibatch: Minibatch, name: str) -> Tensor:
        """Return what critics see there, [M, F]. Nobody acted with their own memory: it begins with nothing."""
        return self.forward_of(critics.body, minibatch, name, stored=False)


class _Heads(Protocol):
    """What differs with the kind of action."""

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        """Return what the actions of an update are drawn with, [M, ...] by name."""
        ...

    def values(self, minibatch: Minibatch) -> Tensor:
        """Return the critics' values of the recorded actions, [E, M]."""
        ...

    def targets(self, minibatch: Minibatch, temperature: Tensor) -> Tensor:
        """Return what the critics learn towards, [M], without gradients."""
        ...

    def policy_loss(self, minibatch: Minibatch, temperature: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's loss, [M], and its entropy, [M]: exact, or estimated by the action drawn."""
        ...


class _BoxHeads:
    """One action is drawn from the policy in each state; critics are given it after the observation."""

    def __init__(self, networks: _Networks, action_size: int) -> None:
        self._networks, self._action_size = networks, action_size

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:
        shape = (2, rows, self._action_size)
        noise, following = torch.from_numpy(random.standard_normal(shape, dtype=np.float32))
        return {"noise": noise, "next_noise": following}

    def values(self, minibatch: Minibatch) -> Tensor:
        critics = self._networks.critics
        values: Tensor = critics(self._networks.features(critics, minibatch, "observation"), minibatch["action"])
        return values

    @torch.no_grad()
    def targets(self, minibatch: Minibatch, temperature: Tensor) -> Tensor:
        networks = self._networks
        parameters = networks.parameters(minibatch, "next_observation")
        action, log_prob = TanhGaussian(parameters).sample(minibatch["next_noise"])
        following = networks.ema(networks.features(networks.ema, minibatch, "next_observation"), action)
        return losses.soft_targets(minibatch["reward"], minibatch["discount"], following, log_prob, temperature)

    def policy_loss(self, minibatch: Minibatch, temperature: Tensor) -> tuple[Tensor, Tensor]:
        networks = self._networks
        action, log_prob = TanhGaussian(networks.parameters(minibatch, "observation")).sample(minibatch["noise"])
        values = networks.frozen(networks.features(networks.frozen, minibatch, "observation"), action)
        return losses.policy_loss(log_prob, values, temperature), -log_prob.detach()


class _ChoiceHeads:
    """All actions are valued in each state, and weighed with their probabilities: nothing is drawn."""

    def __init__(self, networks: _Networks) -> None:
        self._networks = networks

    def noise(self, rows: int, random: np.random.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        return {}

    def values(self, minibatch: Minibatch) -> Tensor:
        values = self._values(self._networks.critics, minibatch, "observation")
        chosen = minibatch["action"][:, None].expand(*values.shape[:2], 1)
        return values.gather(2, chosen).squeeze(2)

    @torch.no_grad()
    def targets(self, minibatch: Minibatch, temperature: Tensor) -> Tensor:
        log_probs = self._log_probs(minibatch, "next_observation", minibatch.get("next_mask"))
        following = self._values(self._networks.ema, minibatch, "next_observation")
        return losses.discrete_soft_targets(
            minibatch["reward"], minibatch["discount"], following, log_probs, temperature
        )

    def policy_loss(self, minibatch: Minibatch, temperature: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._log_probs(minibatch, "observation", minibatch.get("mask"))
        with torch.no_grad():
            values = self._values(self._networks.frozen, minibatch, "observation")
            entropy = losses.entropy_of(log_probs)
        return losses.discrete_policy_loss(log_probs, values, temperature), entropy

    def _values(self, critics: Critics, minibatch: Minibatch, name: str) -> Tensor:
        values: Tensor = critics(self._networks.features(critics, minibatch, name))
        return values

    def _log_probs(self, minibatch: Minibatch, name: str, mask: Tensor | None) -> Tensor:
        logits = self._networks.parameters(minibatch, name)
        return functional.log_softmax(logits if mask is None else masked(logits, mask), dim=1)


class _Temperature(nn.Module):
    """The logarithm of a learned temperature, as the one parameter of its group."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial)))


@analytic_gradients
class SAC(OffPolicy[SACConfig]):
    """See the module's docstring. Up to three parameter groups, each with its stage."""

    config_class = SACConfig

    def __init__(
        self,
        config: SACConfig,
        spec: PolicySpec,
        *,
        seed: int,
        threads: int = 1,
        device: str = "cpu",
        storage: Storage | None = None,
    ) -> None:
        """Make new networks: as `OffPolicy`, with the number of threads that share an update.

        They do where it has analytic gradients; the bits are the same with 1.
        """
        analytic = has_analytic_gradients(type(self)) and spec.plain and spec.action.kind == "box" and device == "cpu"
        self._executor = TwoThreadExecutor(2 if threads > 1 else 1) if analytic else None
        self.threads = self._executor.threads if self._executor else 1
        super().__init__(config, spec, seed=seed, device=device, storage=storage)

    @classmethod
    def for_run(cls, config: Config, spec: PolicySpec, device: str, storage: Storage | None = None) -> Self:
        """Make the algorithm of a run."""
        threads = config.threads
        algorithm = cls(config.settings, spec, seed=config.run.seed, threads=threads, device=device, storage=storage)
        if config.runtime.learner_threads not in (None, algorithm.threads):
            raise ConfigError(
                f"learner_threads is {config.runtime.learner_threads}, but an update of SAC is shared out on a CPU and "
                "for the actions of a box alone, between 2 threads at most: leave it out"
            )
        return algorithm

    def _make(self, generator: torch.Generator, storage: Storage) -> None:
        self._uniform = storage.register("uniform", torch.ones(1))
        """1 until the policy has learned."""
        self._flags = {"uniform": self._uniform}
        self._make_networks(generator, storage)
        self._make_temperature(storage)
        self._analytic = self._analytic_gradients(self._executor) if self._executor else None
        self.groups = self._make_groups()
        self.stages = self._make_stages()
        # What a stage leaves for those after it.
        self._errors = torch.zeros(0)
        """[M]: by how much the critics missed their targets in the last update, the mean over the critics."""
        self._entropy: Tensor | float = 0.0
        """The mean entropy of the policy in the states of the last update."""

    def _make_networks(self, generator: torch.Generator, storage: Storage) -> None:
        config, spec = self._config, self._spec
        box = spec.action.kind == "box"
        policy = SoftPolicy(spec, generator=generator).to(self._device)
        critics = Critics(
            Body(replace(spec, hidden_sizes=()), Uniform(generator)),
            spec.hidden_sizes,
            spec.activation,
            critics=config.critics,
            choices=None if box else spec.action.nvec[0],
            action_size=spec.action_size if box else 0,
            generator=generator,
        ).to(self._device)
        self._policy = FlatParameters(policy, POLICY, storage)
        self._critics = FlatParameters(critics, CRITIC, storage)
        self._ema = storage.register("ema_critics", self._critics.values.clone())
        frozen_critics = frozen(critics, self._critics.arrays())
        ema = frozen(critics, self._critics.layout.views(self._ema))
        networks = _Networks(policy, critics, frozen_critics, ema, self._forward)
        self._heads: _Heads = _BoxHeads(networks, spec.action_size) if box else _ChoiceHeads(networks)

    def _make_temperature(self, storage: Storage) -> None:
        """Make a parameter of it, unless it is fixed."""
        config = self._config
        self._log_alpha: nn.Parameter | None = None
        if config.temperature is not None:
            self._fixed_alpha = torch.tensor(config.temperature, device=self._device)
            return
        module = _Temperature(config.initial_temperature).to(self._device)
        self._log_alpha, self._flat_log_alpha = module.log_alpha, FlatParameters(module, TEMPERATURE, storage)
        self._target_entropy = config.entropy_sought(self._spec)

    def _make_groups(self) -> dict[str, ParameterGroup]:
        flats = {CRITIC: self._critics, POLICY: self._policy}
        if self._log_alpha is not None:
            flats[TEMPERATURE] = self._flat_log_alpha
        most = math.inf if self._config.max_grad_norm is None else self._config.max_grad_norm
        return {name: ParameterGroup(flat, most, self._config.adam_eps) for name, flat in flats.items()}

    def _analytic_gradients(self, executor: TwoThreadExecutor) -> SACGradients:
        """Return the quicker path through the losses of critics and policy."""
        return SACGradients(
            self._spec,
            self._policy,
            self._critics,
            self._ema,
            temperature=lambda: float(self._temperature()),
            executor=executor,
            draw_ahead=self._config.policy_delay == 1,
        )

    def _make_stages(self) -> tuple[Stage, ...]:
        delay = self._config.policy_delay
        critic, policy = (self._analytic.critic, self._analytic_policy) if self._analytic else (None, None)
        temperature = self._analytic_temperature if self._analytic else None
        stages = (
            Stage(CRITIC, CRITIC, self._critic_loss, critic, after=self._follow),
            Stage(POLICY, POLICY, self._policy_loss, policy, after=self._end_uniform_start, every=delay),
            Stage(TEMPERATURE, TEMPERATURE, self._temperature_loss, temperature, every=delay),
        )
        return tuple(stage for stage in stages if stage.group in self.groups)

    def start(self, progress: float) -> dict[str, float]:  # noqa: ARG002
        config = self._config
        rates = {
            CRITIC: config.critic_learning_rate,
            POLICY: config.policy_learning_rate,
            TEMPERATURE: config.temperature_learning_rate,
        }
        return {group: rates[group] or config.learning_rate for group in self.groups}

    def minibatch(self, sampled: Batch, random: np.random.Generator) -> Minibatch:
        """Flatten and normalise observations to [M, inputs] and actions to [M, action_size]; draw the noise."""
        rows = super().minibatch(sampled, random)
        action = rows["action"]
        if self._spec.action.kind == "box":
            action = action.reshape(-1, self._spec.action_size)
        noise = self._heads.noise(len(rows["reward"]), random)
        return {**rows, "action": action, **{name: drawn.to(self._device) for name, drawn in noise.items()}}

    # --- the stages -----------------------------------------------------------------------------------------

    def _temperature(self) -> Tensor:
        """Return alpha, a scalar without a gradient."""
        return self._fixed_alpha if self._log_alpha is None else self._log_alpha.detach().exp()

    def _critic_loss(self, minibatch: Minibatch) -> LossResult:
        targets = self._heads.targets(minibatch, self._temperature())
        values = self._heads.values(minibatch)
        loss = losses.critic_loss(values, targets, minibatch.get("weight")).mean()
        values = values.detach()
        self._errors = (values - targets).abs().mean(dim=0)
        return LossResult(loss, {"critic_loss": loss.detach(), "q_mean": values.mean()})

    def _follow(self, _result: LossResult) -> None:
        self._ema.lerp_(self._critics.values, self._config.ema_rate)

    def _policy_loss(self, minibatch: Minibatch) -> LossResult:
        rows, entropy = self._heads.policy_loss(minibatch, self._temperature())
        loss, self._entropy = rows.mean(), entropy.mean()
        return LossResult(loss, {"policy_loss": loss.detach(), "entropy": self._entropy})

    def _analytic_policy(self, minibatch: Minibatch) -> LossResult:
        assert self._analytic is not None
        result = self._analytic.policy(minibatch)
        self._entropy = result.metrics["entropy"]
        return result

    def _end_uniform_start(self, _result: LossResult) -> None:
        self._uniform.zero_()

    def _temperature_loss(self, minibatch: Minibatch) -> LossResult:
        """Return the loss for the entropy that the policy stage has found: it is linear in it, so the mean will do."""
        assert self._log_alpha is not None
        loss = losses.temperature_loss(self._log_alpha, self._entropy, self._entropy_target(minibatch))
        return LossResult(loss, {"temperature_loss": loss.detach(), "temperature": self._temperature()})

    def _entropy_target(self, minibatch: Minibatch) -> float:
        """Return the entropy to keep to. By default it is a share of what the choices allowed in each state can have:
        where few are, that of all choices would be out of reach, and the temperature would grow for ever.
        """
        if "mask" not in minibatch or self._config.target_entropy is not None:
            return self._target_entropy
        return SHARE_OF_ENTROPY * float(minibatch["mask"].sum(dim=1).log().mean())

    def _analytic_temperature(self, minibatch: Minibatch) -> LossResult:  # noqa: ARG002
        gap = float(self._entropy) - self._target_entropy
        self._flat_log_alpha.gradients[0] = gap
        loss = float(self._flat_log_alpha.values[0]) * gap
        return LossResult(loss, {"temperature_loss": loss, "temperature": float(self._temperature())})

    # --- after the stages -----------------------------------------------------------------------------------

    def priorities(self, minibatch: Minibatch) -> Array:
        """Return by how much the critics missed their targets, [M], before they learned from them."""
        if self._analytic:
            return self._analytic.errors()
        return self._told(self._errors, minibatch)

    # --- what is kept -----------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Tensor]:
        ema = self._critics.layout.views(self._ema)
        return {
            **self._policy.arrays(),
            **{f"critics.{name}": view for name, view in self._critics.arrays().items()},
            **{f"ema_critics.{name}": view for name, view in ema.items()},
            **({} if self._log_alpha is None else self._flat_log_alpha.arrays()),
            **self._flags,
        }

    def close(self) -> None:
        if self._executor:
            self._executor.close()
