"""The settings that all on-policy actor-critics have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from offbeat.algorithms import fast_paths
from offbeat.algorithms.network_config import NetworkConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, NonNegative, Positive, Schedule, Share
from offbeat.core.pace import OnPolicyPace
from offbeat.core.types import EnvSpec
from offbeat.memory.unrolls import UnrollShape
from offbeat.models.spec import Distribution, PolicySpec


@dataclass(frozen=True)
class OnPolicyConfig(NetworkConfig):
    """The settings that all on-policy actor-critics have."""

    learning_rate: Positive = 3e-4
    """Adam's step size, times the factor of `learning_rate_schedule`."""
    learning_rate_schedule: Schedule = "linear"
    """linear: decreases to 0 over `steps`. Points are factors of `learning_rate` by progress, which goes from 0 to 1
    over `steps`, with straight lines between them."""
    gamma: Share = 0.99
    """Discount per env step; in envs with rows without a decision, per decision."""
    gae_lambda: Share = 0.95
    """Decay of the trace in GAE and V-trace; 1 uses the full return."""
    value_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    entropy_coef: NonNegative = 0.0
    """Weight of the exploration bonus, see `exploration`."""
    entropy_coef_schedule: Schedule = "constant"
    """linear: decreases to 0 over `steps`; points: factors of `entropy_coef`, as in `learning_rate_schedule`."""
    exploration: Literal["entropy", "symmetric_kl"] = "entropy"
    """entropy: maximise the entropy; symmetric_kl: minimise the symmetric KL divergence to the uniform policy (discrete
    actions only)."""
    max_grad_norm: Positive = 0.5
    """Largest norm of all gradients together; larger gradients are scaled down to it."""
    normalize_advantages: bool = False
    """Normalise advantages to mean 0 and standard deviation 1 over each minibatch."""
    rho_clip: Positive = 1.0
    """V-trace's bound on the weight of a TD error; used with max_lag > 0 or passes > 1."""
    c_clip: Positive = 1.0
    """V-trace's bound on the weight of later TD errors; used with max_lag > 0 or passes > 1."""
    shared_trunk: bool | None = None
    """Whether policy and critic share one body, all layers before their heads; none: only with an encoder or a core."""
    action_distribution: Literal["auto", "squashed"] = "auto"
    """auto: categorical for choices, Gaussian for box actions; squashed: tanh of a Gaussian (bounded boxes only)."""
    log_std_init: float = 0.0
    """Logarithm of the Gaussian's initial standard deviation, in units of half the action's range."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics. Choices, images for an encoder, and all that an encoder of
    your own gets, stay as they are."""
    normalize_returns: bool = False
    """Whether the critic learns returns divided by their running standard deviation."""
    return_scale: Positive = 1.0
    """Standard deviation of the returns that the critic learns, with normalize_returns. With a larger one the steps of
    the critic are smaller in relation to its targets: its values are less noisy, and it learns more slowly."""
    adam_eps: Positive = 1e-5
    """Adam's epsilon; 1e-5 as in PPO's first implementation."""
    passes: Count = 1
    """Learning steps that use each batch. With more than 1, more is learned from each env step. At each pass the age of
    the data counts as a lag."""
    resident_batches: Count = 1
    """Batches that stay in memory and are used in turn, `passes` times. With more than 1, the passes of a batch do not
    follow each other directly."""
    kernels: Literal["numpy", "numba"] = "numpy"
    """What computes the analytic gradients of plain MLPs on a CPU. numba: they are compiled, which is faster for small
    networks; needs the extra `compiled`. The results differ by rounding. The first run compiles for some seconds."""

    learns_from: ClassVar[Literal["unrolls", "replay"]] = "unrolls"
    supports_shards: ClassVar[bool] = True
    topology_keys: ClassVar[tuple[str, ...]] = ("passes", "resident_batches")
    default_hidden_sizes: ClassVar[tuple[int, ...]] = (64, 64)
    network_keys: ClassVar[tuple[str, ...]] = (
        *NetworkConfig.network_keys,
        *("shared_trunk", "action_distribution", "log_std_init", "normalize_observations", "normalize_returns"),
        "return_scale",
    )

    def memory(self, runtime: RuntimeConfig, history: int = 0) -> UnrollShape:  # noqa: ARG002
        """Return the shape of a run's unrolls, with their pace. `history` is used only by algorithms on a replay.

        Raises:
            ConfigError: the settings contradict each other.
        """
        pace = OnPolicyPace(runtime.batch_unrolls, runtime.max_lag, self.resident_batches, self.passes)
        return UnrollShape(pace, runtime.unroll_length, runtime.envs_per_actor)

    def check(self, runtime: RuntimeConfig) -> None:
        """Check that the settings do not contradict each other.

        Raises:
            ConfigError: they do; the message has the arithmetic and the remedy.
        """
        if self.kernels == "numba" and self.exploration != "entropy":
            raise ConfigError(
                f"kernels is numba, which supports only exploration=entropy, but exploration is {self.exploration}: "
                "pass --set kernels=numpy, or --set exploration=entropy"
            )
        if self.passes > 1 and runtime.entry.workers_learn:
            raise ConfigError(
                f"passes is {self.passes}, which is not supported with runtime={runtime.runtime}: pass another "
                "--runtime, or leave passes out"
            )
        pace = self.memory(runtime).pace
        if runtime.actors > pace.most_ahead:
            batches = f"(max_lag + 1) x unrolls_per_batch = ({pace.max_lag} + 1)"
            if pace.passes > 1:
                batches = f"with these passes {pace.most_ahead // pace.unrolls_per_batch} batches"
            raise ConfigError(
                f"actors is {runtime.actors}, but at most {batches} x {pace.unrolls_per_batch} = {pace.most_ahead} "
                f"tickets can be acted at one time: pass --actors {pace.most_ahead} or fewer, or raise "
                "unrolls_per_batch or max_lag"
            )

    def check_columns(self, runtime: RuntimeConfig, columns: int) -> None:
        """Refuse minibatches of one row if advantages are normalised over them: each advantage would be 0.

        Raises:
            ConfigError: the largest minibatch has one row.
        """
        rows = runtime.batch_unrolls * runtime.unroll_length * columns
        largest = max(-(-rows // self.updates_of(rows)), 1 if self.core == "none" else runtime.unroll_length)
        if self.normalize_advantages and largest == 1:
            larger = "minibatch_size=2 or more" if rows > 1 else "unroll_length=2 or more"
            raise ConfigError(
                "normalize_advantages is true, but a minibatch has only 1 row, whose advantage would always be 0: pass "
                f"--set {larger}, or --set normalize_advantages=false"
            )

    def without_effect(self, env: EnvSpec, runtime: RuntimeConfig) -> dict[str, str]:
        unused = super().without_effect(env, runtime)
        if not self.entropy_coef:
            unused |= {
                key: f"while {whose} entropy_coef is 0: pass --set entropy_coef=0.01, or leave {key} out"
                for key, whose in (("exploration", "its weight"), ("entropy_coef_schedule", "the weight"))
            }
        if not self.normalize_returns:
            unused["return_scale"] = (
                "while normalize_returns is false: pass --set normalize_returns=true, or leave it out"
            )
        if not env.action.low:
            unused["log_std_init"] = f"in {env.id}, where all actions are discrete: leave it out"
        if not self.corrects(runtime.max_lag):
            fresh = "with max_lag=0 and passes=1, because the acting policy is the one that learns: leave it out"
            unused |= {"rho_clip": fresh, "c_clip": fresh}
        return unused

    def corrects(self, max_lag: int) -> bool:
        """Whether V-trace corrects for the age of the data."""
        return max_lag > 0 or self.passes > 1

    @property
    def compiled_modules(self) -> tuple[str, ...]:
        return (f"{fast_paths.FOLDER}.compiled",) if self.kernels == "numba" else ()

    def scale_of_values(self) -> dict[str, float]:
        return {"return_scale": self.return_scale} if self.normalize_returns else {}

    def updates_of(self, rows: int) -> int:  # noqa: ARG002
        """Return the number of minibatches into which a batch of valid rows is divided."""
        return 1

    def most_shards(self, runtime: RuntimeConfig, columns: int) -> tuple[int, str]:
        unrolls, length = runtime.batch_unrolls, runtime.unroll_length
        parts, updates = unrolls * columns, self.updates_of(unrolls * length * columns)
        one_agent = columns == runtime.envs_per_actor
        of_actor, parts_of = ("envs_per_actor", "envs") if one_agent else ("columns of an actor", "columns")
        if self.core != "none":
            batch = f"unrolls_per_batch x {of_actor} = {unrolls} x {columns} = {parts} {parts_of}"
        else:
            parts *= length
            batch = f"unrolls_per_batch x unroll_length x {of_actor} = {unrolls} x {length} x {columns} = {parts} rows"
        limit = max(1, parts // updates)
        divided = f", {limit} in each of {updates} minibatches" if updates > 1 else ""
        return limit, f"a batch has only {batch}{divided}"

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        Raises:
            ConfigError: these settings do not support the env's actions.
        """
        boxes, choices = bool(env.action.low), bool(env.action.nvec)
        if not boxes and self.action_distribution == "squashed":
            raise ConfigError(
                f"action_distribution is squashed, which supports only box actions, but {env.id} has "
                f"{env.action.space} actions: pass --set action_distribution=auto"
            )
        if boxes and self.exploration == "symmetric_kl":
            kind = f"{env.action.space} actions{' with a Box' if choices else ''}"
            raise ConfigError(
                f"exploration is symmetric_kl, which supports only discrete actions, but {env.id} has {kind}: "
                "pass --set exploration=entropy"
            )
        if self.action_distribution == "squashed" and not env.action.is_bounded:
            raise ConfigError(
                f"action_distribution is squashed, but {env.id} has actions without bounds: "
                "pass --set action_distribution=auto"
            )
        if self.core != "none" and self.shared_trunk is False:
            raise ConfigError(
                f"shared_trunk is false, which is not supported with core={self.core}, because a separate critic would "
                "have no core: leave shared_trunk out"
            )
        gaussian: Distribution = "squashed" if self.action_distribution == "squashed" else "gaussian"
        return PolicySpec(
            **self.spec_fields(env),
            distribution=gaussian if boxes else "categorical",
            normalize=self.normalize_observations,
            no_decision=env.no_decision,
        )

    def shares_trunk(self, spec: PolicySpec) -> bool:
        """Whether policy and critic share one body."""
        return bool(spec.encoded or spec.recurrent) if self.shared_trunk is None else self.shared_trunk
