"""The table [run]: what is trained, for how long, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from offbeat.config.env import EVALUATION_STEPS
from offbeat.core.fields import Count, Flag, Name, Natural, NonNegative, Positive, Share

LINES_PER_RUN = 200
"""Metrics lines over `steps`, at least, unless `log_every` says otherwise."""


@dataclass(frozen=True)
class RunConfig:
    """What is trained, for how long, and what is kept of it."""

    algorithm: Name
    """Name of the algorithm, as `offbeat list algorithms` shows it, or where it is: my_module:MyAlgorithm."""
    env: Name
    """Gymnasium id, an id with an adapter's prefix (envpool:), or where the env is: my_module:MyEnv."""
    steps: Annotated[Count, Flag()] = 1_000_000
    """Env steps to learn from; schedules run over them."""
    stop_at: Annotated[Count | None, Flag()] = None
    """Env steps after which to stop, with a checkpoint; schedules still run over `steps`."""
    time: Annotated[Positive | None, Flag("SECONDS")] = None
    """Seconds after which to stop, with a checkpoint."""
    seed: Annotated[Natural, Flag()] = 0
    """Keys every random stream."""
    eval_every: Annotated[Natural | None, Flag("STEPS")] = None
    """Env steps between evaluations; none: a tenth of `steps`; 0: never."""
    eval_episodes: Count = 20
    """Episodes of an evaluation during training; the mean return defines the best checkpoint."""
    eval_time_share: Share = 0.1
    """Fraction of the time that evaluations during training may take: some are left out where they would take more, but
    not that of the end, and none with lag exact. 1: none is left out."""
    evaluator: Literal["process", "inline"] = "process"
    """Who evaluates during training. process: a supervised process, beside the learner where cores allow; inline: the
    process of the learner, to debug."""
    eval_max_episode_steps: Count = EVALUATION_STEPS
    """Env steps after which an evaluation during training cuts an episode; it counts with what it has earned."""
    eval_max_steps: Count = 1_000_000
    """Env steps after which an evaluation during training ends, all its envs together."""
    checkpoint_every: Natural | None = None
    """Env steps between checkpoints; none: a tenth of `steps`; 0: only the first, the last, and those by the clock."""
    checkpoint_every_s: NonNegative = 600.0
    """Seconds between checkpoints, at most, as far as the run pauses that often; 0: none by the clock."""
    checkpoints_kept: Count = 3
    """Newest checkpoints to resume from that are kept, the latest included; the best is kept besides."""
    log_every: Count | None = None
    """Env steps between metrics lines; none: a 200th of `steps`."""
    log_every_s: Positive | None = None
    """Seconds after which a metrics line is written in any case, once a learning step ends; none: 10, and never with
    `lag = "exact"`, so that the lines of equal runs are at the same env steps."""
    episodes_window: Count = 100
    """Training episodes, the last ones, that returns and lengths of metrics lines are of."""
    imports: tuple[str, ...] = ()
    """Python modules to import first: they may register envs, algorithms and encoders."""
    tracker: Literal["wandb", "trackio"] | None = None
    """Also send each metrics line, and the config, to Weights & Biases or Trackio; none: to neither."""
    preset: str | None = None
    """Name of the preset that the values began from."""
    init_from: Annotated[str | None, Flag("RUN")] = None
    """Run directory whose weights the run begins with."""

    @property
    def evaluation_interval(self) -> int:
        """Env steps between evaluations, 0 for none."""
        return max(1, self.steps // 10) if self.eval_every is None else self.eval_every

    @property
    def log_interval(self) -> int:
        """Env steps between metrics lines."""
        return max(1, self.steps // LINES_PER_RUN) if self.log_every is None else self.log_every

    @property
    def checkpoint_interval(self) -> int:
        """Env steps between checkpoints, 0 for none."""
        return max(1, self.steps // 10) if self.checkpoint_every is None else self.checkpoint_every
