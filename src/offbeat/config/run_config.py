"""The table [run]: the algorithm and the env, the length of the run, evaluation, checkpoints and logging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from offbeat.core.checks import Bound, Example, Flag
from offbeat.core.errors import ConfigError
from offbeat.core.fields import Count, Episodes, Name, Natural, Seconds, Share
from offbeat.core.tasks import Trials

EVALUATION_EPISODES = 20
"""Episodes of an evaluation if their number is not given."""
STARTS_FROM = ("algorithm", "env", "preset")
"""Keys of what a run starts from. They are given by name, never with `--set`, and a resume cannot change them."""
LIMITS = ("stop_at", "stop_at_return", "time")
"""Keys of the limits of one part of a run. A resumed run does not have them, unless they are given again."""
REPORTING = (
    *("eval_every", "eval_episodes", "eval_time_share", "evaluator", "eval_max_episode_steps", "eval_max_steps"),
    *("checkpoint_every", "checkpoint_every_s", "checkpoints_kept", "log_every", "log_every_s", "episodes_window"),
    "tracker",
)
"""Keys of evaluation, checkpoints and logging. The weights of a run do not depend on them."""
LINES_PER_RUN = 200
"""Metrics lines over `steps`, at least, if `log_every` is not given."""


def default_episodes(trials: Trials | None) -> int:
    """Return the number of episodes of an evaluation if none is given; with tasks, of trials: one in each test task."""
    return EVALUATION_EPISODES if trials is None else trials.tasks.test


@dataclass(frozen=True)
class RunConfig:
    """The algorithm and the env, the length of the run, evaluation, checkpoints and logging."""

    algorithm: Annotated[Name, Example("ppo")]
    """Name of the algorithm, as `offbeat list algorithms` shows it, or its path: my_module:MyAlgorithm."""
    env: Annotated[Name, Example("CartPole-v1")]
    """Gymnasium id, an id with an adapter's prefix (envpool:), or the path of the env: my_module:MyEnv."""
    steps: Annotated[Count, Flag()] = 1_000_000
    """Env steps to learn from, rounded up to whole batches; schedules run over them."""
    stop_at: Annotated[Count | None, Flag(), Example("100000")] = None
    """Env steps after which to stop, with a checkpoint; schedules still run over `steps`."""
    stop_at_return: Annotated[float | None, Flag("RETURN"), Example("475")] = None
    """Mean return of an evaluation at which to stop, with a checkpoint. After a resume, only new evaluations count."""
    time: Annotated[Seconds | None, Flag("SECONDS"), Example("600")] = None
    """Seconds of training, of all parts of the run together, after which to stop, with a checkpoint."""
    seed: Annotated[Natural, Flag()] = 0
    """Seed of every random stream."""
    eval_every: Annotated[Natural | None, Flag("STEPS"), Example("10000")] = None
    """Env steps between evaluations; none: a tenth of `steps`; 0: never."""
    eval_episodes: Annotated[Episodes | None, Example("20")] = None
    """Episodes of an evaluation during training; the mean return defines the best checkpoint. With tasks, trials of
    an evaluation."""
    eval_time_share: Share = 0.1
    """An evaluation is skipped if all evaluations together would then take more than this fraction of the time so far,
    and more than 5 seconds; beside a learner that continues, waiting for a core does not count. The last one is never
    skipped. With 1, and with lag exact, none is skipped."""
    evaluator: Literal["process", "inline"] = "process"
    """Where evaluations during training run. process: in a supervised process, at the same time as the learner if there
    are cores for it; inline: in the process of the learner, for debugging."""
    eval_max_episode_steps: Annotated[Count | None, Example("1000")] = None
    """Env steps after which an evaluation during training cuts an episode. Its return up to there counts. None: 27,000,
    and in Atari games 18,000 frames."""
    eval_max_steps: Count = 1_000_000
    """Env steps, over all envs, after which an evaluation during training ends."""
    checkpoint_every: Annotated[Natural | None, Example("100000")] = None
    """Env steps between checkpoints; none: a tenth of `steps`; 0: only the first, the last, and those of
    `checkpoint_every_s`."""
    checkpoint_every_s: Annotated[float, Bound(0, unit="seconds")] = 600.0
    """Longest time between checkpoints in seconds, if the run can pause that often; 0: no limit."""
    checkpoints_kept: Count = 3
    """Number of newest resumable checkpoints that are stored, the latest included. The best one is stored too."""
    log_every: Annotated[Count | None, Example("5000")] = None
    """A metrics line is written when the env steps pass a multiple of this number; none: a 200th of `steps`."""
    log_every_s: Annotated[Seconds | None, Example("10")] = None
    """Seconds after which a metrics line is written at the end of the learning step, whatever `log_every` is. With
    `lag = "exact"` there is no such time by default, so that equal runs have their lines at the same env steps."""
    episodes_window: Count = 100
    """Number of last training episodes over which the returns and lengths in metrics lines are computed."""
    imports: Annotated[tuple[str, ...], Example("my_envs,my_models")] = ()
    """Python modules to import first. They can register envs, algorithms and encoders."""
    tracker: Literal["wandb", "trackio"] | None = None
    """Also send each metrics line, and the config, to Weights & Biases or Trackio. None: to neither."""
    preset: Annotated[str | None, Example("ppo-cartpole-v1")] = None
    """Name of the preset that the values are based on."""
    policies: Annotated[Literal["shared", "separate", "tables"], Flag("shared|separate|FILE.toml")] = "shared"
    """The policies of a world with several agents. shared: one policy for all agents; separate: one policy per agent,
    with its name; a file, also the config.toml of a run: as its tables [policies.NAME] say. The config of the run has
    these tables, and here `tables`."""
    init_from: Annotated[str | None, Flag("RUN"), Example("runs/NAME")] = None
    """Run directory whose weights are the initial weights of the run."""

    default_texts: ClassVar[Mapping[str, str]] = {
        "eval_episodes": "20; with tasks, one trial in each test task",
        "log_every_s": "10; with lag = exact, none",
    }
    """As in `AlgorithmSettings`."""

    def __post_init__(self) -> None:
        if self.stop_at_return is not None and not self.evaluation_interval:
            raise ConfigError(
                "stop_at_return is the mean return of an evaluation, and eval_every is 0, so there are none: pass "
                "--eval-every STEPS, or leave stop_at_return out"
            )

    @property
    def last_step(self) -> int:
        """Env steps after which training ends: `steps`, or `stop_at` if that is less."""
        return min(self.steps, self.stop_at or self.steps)

    @property
    def evaluation_interval(self) -> int:
        """Env steps between evaluations, 0 for none."""
        return max(1, self.steps // 10) if self.eval_every is None else self.eval_every

    def evaluation_episodes(self, trials: Trials | None) -> int:
        """Return the number of episodes of an evaluation; of trials, if the algorithm has tasks."""
        return default_episodes(trials) if self.eval_episodes is None else self.eval_episodes

    @property
    def log_interval(self) -> int:
        """Env steps between metrics lines."""
        return max(1, self.steps // LINES_PER_RUN) if self.log_every is None else self.log_every

    @property
    def checkpoint_interval(self) -> int:
        """Env steps between checkpoints, 0 for none."""
        return max(1, self.steps // 10) if self.checkpoint_every is None else self.checkpoint_every
