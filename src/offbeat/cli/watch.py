"""`offbeat watch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from offbeat.cli.flags import CheckpointName, EnvKwargs, OtherEnv, RunImports, TrustCode, Wrappers, changed_env
from offbeat.cli.output import spinner
from offbeat.config.env import MAX_EPISODE_STEPS
from offbeat.core.printing import print_text
from offbeat.metrics.text import precise


@dataclass(frozen=True)
class Watch:
    """Show one episode in a window, or write it as a video: offbeat watch runs/NAME --video episode.mp4.

    A policy that infers its task plays a trial: all episodes of an evaluation in one test task.
    """

    run_directory: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory, hf://USER/NAME for a policy on the Hugging Face hub, or a folder with its files."""
    video: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write an .mp4 or .gif file instead of opening a window."""
    seed: int = 0
    """Seed of the episode; with tasks, also the number of the test task."""
    checkpoint: CheckpointName = "latest"
    """latest, best or step-<12 digits>."""
    max_steps: int = MAX_EPISODE_STEPS
    """Env steps after which the episode is cut."""
    env: OtherEnv = None
    env_kwargs: EnvKwargs = ()
    wrappers: Wrappers = ()
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.watch import watch
        from offbeat.config.importing import import_modules

        import_modules(self.imports)
        with spinner("playing an episode", shown=self.video is not None):
            played = watch(
                self.run_directory,
                **changed_env(self.env, self.env_kwargs, self.wrappers),
                video=self.video,
                seed=self.seed,
                checkpoint=self.checkpoint,
                max_steps=self.max_steps,
                trust_code=self.trust_code,
            )
        cut = f", cut by --max-steps {self.max_steps}" if played.cut else ""
        written = f", written to {self.video}" if self.video else ""
        earlier = "".join(f"{precise(each)}, " for each in played.earlier_returns)
        of_trial = f"{len(played.earlier_returns) + 1} episodes in a new task, " if earlier else ""
        returns = f"{of_trial}return {earlier}{_by_agent(played.returns)}"
        print_text(f"{returns} in {played.length} env steps{cut}{written}")
        return 0


def _by_agent(returns: Mapping[str, float]) -> str:
    """Return the returns of all agents as text; a single agent is not named."""
    return ", ".join(
        f"{agent} {precise(each)}" if len(returns) > 1 else precise(each) for agent, each in returns.items()
    )
