"""The settings of PEARL, with the checks of its tasks, visits and contexts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from offbeat.algorithms.sac_config import SACConfig
from offbeat.config.env import EnvConfig
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.checks import Example
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, NonNegative, build
from offbeat.core.tasks import TaskCount, TaskSample, Trials
from offbeat.core.types import EnvSpec
from offbeat.core.visits import Visits
from offbeat.memory.replay.base import Replay
from offbeat.memory.replay.rings import Rings
from offbeat.memory.replay.tasks import MetaBatch, TaskReplay
from offbeat.models.spec import ContextEncoderSpec, PolicySpec


@dataclass(frozen=True)
class PEARLConfig(SACConfig):
    """The settings of PEARL.

    From the code of arXiv:1903.08254, for HalfCheetah with random velocities: `train_tasks`, `test_tasks`,
    `meta_batch`, `batch_size`, `context_size`, `prior_steps`, `extra_steps`, `latent_size`, `context_hidden_sizes`,
    `learning_rate`, `gamma` and `ema_rate`. All other defaults, and those of the table [runtime], are offbeat's.
    """

    train_tasks: TaskCount = 100
    """Tasks that are trained on. They are sampled from the env with the seed of the run."""
    test_tasks: TaskCount = 30
    """Tasks that only evaluations use. They are sampled after those of training."""
    eval_prior_episodes: TaskCount = 5
    """Episodes of an evaluation in a test task with the task variable from the prior. One more episode follows, with
    the task variable from the posterior. Its return is the score."""
    meta_batch: Count = 16
    """Tasks of an update, drawn without replacement."""
    batch_size: Count = 4096
    """Transitions per update, of all its tasks together: a multiple of meta_batch."""
    context_size: Count = 100
    """Context rows of each task in an update: at most those that a visit brings, (prior_steps - 1) x envs_per_actor."""
    prior_steps: Annotated[int, Bound(2, 2**31 - 1)] = 400
    """Rows of a column at the start of a visit, in which the task variable is drawn from the prior. They are the
    context of the task. Rows in which an episode is reset count too, also the first row of a visit."""
    extra_steps: Annotated[int, Bound(0, 2**31 - 1)] = 600
    """Rows of a column in a visit after the prior steps, with the task variable from the posterior."""
    latent_size: Count = 5
    """Size of the task variable."""
    context_hidden_sizes: tuple[Count, ...] = (200, 200, 200)
    """Units of each hidden layer of the context encoder."""
    context_next_observation: bool = False
    """Whether the context encoder gets the next observation too. Then it can infer tasks with other dynamics."""
    kl_weight: NonNegative = 0.002
    """Weight of the KL divergence of the posteriors from the prior, summed over the tasks of an update, in the loss of
    the critics. The authors multiply rewards by 5, and have no 1/2 in this loss: their 0.1 is 0.1 / (2 x 5^2) here."""
    temperature: NonNegative | None = 0.2
    """Fixed weight of the entropy, in units of reward; none: learned, so that the entropy reaches its target. The
    authors have 1 with rewards that are multiplied by 5."""
    warmup: Count = 100_000
    """Env steps for which no update is made: at least meta_batch visits. Default: about one visit to each train task,
    because rows in which an episode is reset are no env steps."""
    chunk_length: Annotated[Count | None, Example("100")] = None
    """Rows of one column in a ticket: a divisor of a visit, prior_steps + extra_steps. After each ticket the
    updates that are due are made. None: a whole visit."""

    title: ClassVar[str] = "PEARL"
    topology_keys: ClassVar[tuple[str, ...]] = (
        *SACConfig.topology_keys,
        *("train_tasks", "test_tasks", "prior_steps", "extra_steps"),
    )
    network_keys: ClassVar[tuple[str, ...]] = (
        *SACConfig.network_keys,
        *("latent_size", "context_hidden_sizes", "context_next_observation"),
    )
    unsupported_own_keys: ClassVar[Mapping[str, str]] = {
        **SACConfig.unsupported_own_keys,
        **dict.fromkeys(("core", "n_step", "prioritized", "normalize_observations"), ""),
        **dict.fromkeys(("core_size", "burn_in"), "there is no core"),
        **dict.fromkeys(("priority_exponent", "importance_exponent", "priority_delay"), "nothing is prioritized"),
        **dict.fromkeys(("encoder", "encoder_kwargs"), "there are no images"),
    }
    default_texts: ClassVar[Mapping[str, str]] = {
        **SACConfig.default_texts,
        "warmup": "train_tasks x (prior_steps + extra_steps) x envs_per_actor",
        "capacity": "2 x (train_tasks + actors) visits; at least 1000000",
    }
    splits_updates: ClassVar[bool] = False
    supports_shards: ClassVar[bool] = False
    no_hogwild: ClassVar[str] = "each worker would have to visit all tasks to fill a replay of its own"

    @classmethod
    def with_defaults(
        cls, table: Mapping[str, object], given: Collection[str], runtime: RuntimeConfig
    ) -> dict[str, object]:
        """Return the table with a `warmup` of about one visit to each task, and with the capacity that they need."""
        values = super().with_defaults(table, given, runtime)
        settings = build(cls, values, "the table [pearl]")
        visit = settings.visit_steps * runtime.envs_per_actor
        values.setdefault("warmup", settings.train_tasks * visit)
        values.setdefault("capacity", max(cls.capacity, settings.kept_visits(runtime) * visit))
        return values

    def kept_visits(self, runtime: RuntimeConfig) -> int:
        """Return how many visits the replay must keep so that it always has the newest context of each task.

        Two visits to a task are less than 2 x train_tasks visits apart, and each actor may be in one.
        """
        return 2 * (self.train_tasks + runtime.actors)

    @property
    def visit_steps(self) -> int:
        """Rows of a column in a visit."""
        return self.prior_steps + self.extra_steps

    @property
    def ticket_length(self) -> int:
        """Rows of one column in a ticket: by default, those of a whole visit."""
        return self.chunk_length or self.visit_steps

    def trials(self, seed: int) -> Trials:
        return Trials(TaskSample(seed, self.train_tasks, self.test_tasks), self.eval_prior_episodes)

    def visits(self, actors: int) -> Visits:
        return Visits(actors, self.visit_steps // self.ticket_length, self.ticket_length, self.prior_steps)

    def replay(self, rings: Rings, buffers: int = 2) -> Replay:
        rows = self.batch_size // self.meta_batch
        return TaskReplay(
            rings,
            visited_tasks=self.train_tasks,
            meta_batch=MetaBatch(self.meta_batch, rows, self.context_size),
            gamma=self.gamma,
            visits=self.visits(rings.shape.actors),
            buffers=buffers,
        )

    def policy_spec(self, env: EnvSpec) -> PolicySpec:
        """Return the policy that these settings make for an env.

        A new policy acts with its random weights: each task variable makes it go another way for a whole episode, so it
        sees more of an env than with uniform actions.

        Raises:
            ConfigError: these settings do not support the observations or actions of the env.
        """
        spec = super().policy_spec(env)
        if spec.encoded or any(leaf.stack > 1 for leaf in env.observation):
            raise ConfigError(
                f"{env.id} has images, but PEARL infers tasks from vectors only: wrap the env so that it returns them"
            )
        if env.agents or env.no_decision:
            kind = "several agents" if env.agents else "rows without a decision"
            raise ConfigError(f"{env.id} has {kind}, which PEARL does not support: run `{env.train_command('sac')}`")
        encoder = ContextEncoderSpec(self.latent_size, self.context_hidden_sizes, self.context_next_observation)
        return replace(spec, context_encoder=encoder, uniform_start=False)

    # --- checks ---------------------------------------------------------------------------------------------

    def check(self, runtime: RuntimeConfig) -> None:
        if runtime.uses_inference:
            raise ConfigError(
                "inference is worker, but an actor of PEARL infers the task itself: pass --set inference=actor"
            )
        self._check_tasks()
        self._check_visits(runtime)
        super().check(runtime)

    def check_env(self, env: EnvConfig) -> None:
        if env.previous_action or env.previous_reward:
            raise ConfigError(
                "previous_action and previous_reward are not supported by PEARL, whose context has actions and rewards "
                "already: leave them out"
            )
        if env.reward_scale != 1 or env.clip_rewards:
            raise ConfigError(
                f"reward_scale is {env.reward_scale:g} and clip_rewards is {str(bool(env.clip_rewards)).lower()}, but "
                "PEARL infers tasks from the rewards of the env: leave both out. Rewards times N with temperature 1 "
                "are the same as --set temperature=1/N and kl_weight / N^2"
            )

    def _check_tasks(self) -> None:
        """Refuse a meta-batch that the tasks or the rows of an update do not suit."""
        if self.train_tasks < self.meta_batch:
            raise ConfigError(
                f"meta_batch is {self.meta_batch} tasks, but there are only train_tasks = {self.train_tasks}: pass "
                f"--set train_tasks={self.meta_batch} or more, or --set meta_batch={self.train_tasks} or less"
            )
        if self.batch_size % self.meta_batch:
            rows = -(-self.batch_size // self.meta_batch)
            raise ConfigError(
                f"batch_size is {self.batch_size} transitions, but each of meta_batch = {self.meta_batch} tasks has "
                f"equally many of them: pass --set batch_size={rows * self.meta_batch}, {rows} of each task"
            )

    def _check_visits(self, runtime: RuntimeConfig) -> None:
        """Refuse visits that tickets do not divide, that bring too little context, or that the capacity cannot keep."""
        length, columns = self.ticket_length, runtime.envs_per_actor
        if self.visit_steps % length:
            raise ConfigError(
                f"chunk_length is {length} env steps, which does not divide a visit of prior_steps + extra_steps = "
                f"{self.prior_steps} + {self.extra_steps} = {self.visit_steps}: pass a divisor, or leave it out"
            )
        largest = (self.prior_steps - 1) * columns
        if self.context_size > largest:
            needed = -(-self.context_size // columns) + 1
            raise ConfigError(
                f"context_size is {self.context_size} rows, but a visit brings at most (prior_steps - 1) x "
                f"envs_per_actor = {self.prior_steps - 1} x {columns} = {largest}: pass --set "
                f"context_size={largest} or less, or --set prior_steps={needed} or more"
            )
        visits = self.kept_visits(runtime)
        rows = visits * self.visit_steps * columns
        if self.capacity < rows:
            raise ConfigError(
                f"capacity is {self.capacity} transitions, but the newest visit of each task is only kept with 2 x "
                f"(train_tasks + actors) = {visits} visits of {self.visit_steps} x {columns} rows: pass --set "
                f"capacity={rows} or more, or fewer tasks or shorter visits"
            )

    def sample_needs(self, runtime: RuntimeConfig) -> int:
        """Return how many transitions the first sample needs: the visits of a meta-batch, and those that have begun.

        A run that is resumed without its replay also lacks the first tickets of the visits that had begun.
        """
        incomplete = runtime.actors * (1 if self.save_replay else 2) if self.visit_steps > self.ticket_length else 0
        return (self.meta_batch + incomplete) * self.visit_steps * runtime.envs_per_actor
