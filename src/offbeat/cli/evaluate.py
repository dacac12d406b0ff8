"""`offbeat eval` and `offbeat watch`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from offbeat.cli.aside import stdout_aside
from offbeat.cli.busy import busy
from offbeat.cli.trusting import RunImports, TrustCode
from offbeat.core.errors import ConfigError

if TYPE_CHECKING:
    from offbeat.api.load import LoadedPolicy


@dataclass(frozen=True)
class Eval:
    """Play whole episodes with a trained policy: offbeat eval runs/NAME."""

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    episodes: int = 20
    """Whole episodes, shared out beforehand so that short ones are not preferred."""
    seed: int = 0
    """Keys the envs and the sampling."""
    sampled: bool = False
    """Sample actions, instead of taking the most likely one."""
    checkpoint: str = "latest"
    """latest, best or step-<12 digits>."""
    max_episode_steps: int = 27_000
    """Env steps after which an episode is cut; it counts with what it has earned."""
    max_steps: int = 10_000_000
    """Env steps after which the evaluation ends, all its envs together."""
    json: bool = False
    """Print one JSON object and nothing else."""
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.evaluate import score

        at_least("episodes", self.episodes, 1)
        at_least("seed", self.seed, 0)
        at_least("max-episode-steps", self.max_episode_steps, 1)
        at_least("max-steps", self.max_steps, 1)
        with stdout_aside(), _bar(self.episodes, shown=not self.json) as on_step:
            loaded = _load(self)
            scores = score(
                loaded,
                episodes=self.episodes,
                seed=self.seed,
                sampled=self.sampled,
                max_episode_steps=self.max_episode_steps,
                max_steps=self.max_steps,
                on_step=on_step,
            )
        print(json.dumps(scores) if self.json else self._sentence(loaded.trained.env, scores))
        return 0

    def _sentence(self, env: str, scores: dict[str, Any]) -> str:
        how = "sampled" if self.sampled else "greedy"
        return (
            f"{env}, {how}, {scores['episodes']} episodes: return {scores['return_mean']:.1f} "
            f"+- {scores['return_std']:.1f} (from {scores['return_min']:.1f} to {scores['return_max']:.1f}), "
            f"length {scores['length_mean']:.1f}; {self.checkpoint} checkpoint, after "
            f"{scores['env_steps']} env steps{self._cuts(scores)}"
        )

    def _cuts(self, scores: dict[str, Any]) -> str:
        """Say what became of the episodes that did not end."""
        cut, missing = scores["cut"], scores["not_begun"]
        if not cut and not missing:
            return ""
        ended = scores["episodes"] - cut
        return (
            f"; of {scores['episodes'] + missing} episodes {ended} ended, {cut} were cut, with what they had earned, "
            f"and {missing} not begun (--max-episode-steps {self.max_episode_steps}, --max-steps {self.max_steps})"
        )


def _load(command: Eval | Watch) -> LoadedPolicy:
    """Load a run's policy, and import the modules that its env comes from."""
    from offbeat.api.load import load_to_play
    from offbeat.config.registry import import_modules

    import_modules(command.imports)
    return load_to_play(command.run_directory, command.checkpoint, trust_code=command.trust_code)[1]


def at_least(name: str, value: int, least: int) -> None:
    """Refuse a flag's value that is too small."""
    if value < least:
        raise ConfigError(f"{name} is {value}, but at least {least} is expected: pass --{name} {least} or more")


def _bar(episodes: int, *, shown: bool) -> Any:
    """Return a context manager that gives `on_step`; it draws a bar if the work takes more than a moment."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def bar() -> Any:
        with Progress(console=Console(stderr=True), disable=not shown, transient=True) as progress:
            task = progress.add_task("episodes", total=episodes)
            yield lambda ended: progress.update(task, completed=ended)

    return bar()


@dataclass(frozen=True)
class Watch:
    """Watch one episode, in a window or as a video: offbeat watch runs/NAME --video episode.mp4."""

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    video: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write an .mp4 or .gif instead of opening a window."""
    seed: int = 0
    """Keys the episode."""
    checkpoint: str = "latest"
    """latest, best or step-<12 digits>."""
    max_steps: int = 27_000
    """Env steps after which the episode is cut."""
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.watch import watch

        at_least("max-steps", self.max_steps, 1)
        loaded = _load(self)
        with busy("playing an episode", shown=self.video is not None):
            played = watch(loaded, seed=self.seed, video=self.video, max_steps=self.max_steps)
        cut = f", cut by --max-steps {self.max_steps}" if played.cut else ""
        written = f", written to {self.video}" if self.video else ""
        print(f"return {played.total:.1f} in {played.length} env steps{cut}{written}")
        return 0
