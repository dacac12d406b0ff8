"""`offbeat eval` and `offbeat watch`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from offbeat.cli.flags import RunImports, TrustCode, require_at_least
from offbeat.cli.on_ray import Cpus, Gpus, On, OnRay, RayAddress, Resources
from offbeat.cli.output import progress_bar, spinner, stdout_to_stderr
from offbeat.core.errors import ConfigError

if TYPE_CHECKING:
    from offbeat.api.loaded_policy import LoadedPolicy
    from offbeat.workers.mixture import Mixture


@dataclass(frozen=True)
class Eval:
    """Play whole episodes with the policies of a run: offbeat eval runs/NAME."""

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    episodes: Annotated[int | None, arg(help_behavior_hint="")] = None
    """Number of whole episodes, by default 20. Each env gets a fixed share of them, so short episodes are not
    preferred. For a policy that infers its task: number of trials, by default one in each test task."""
    seed: int = 0
    """Seed of the envs and of the action sampling."""
    sampled: bool = False
    """Sample the actions instead of taking the most likely ones."""
    checkpoint: str = "latest"
    """latest, best or step-<12 digits>."""
    average: bool = False
    """Evaluate the average of the league's snapshots on disk: for each episode, one of them is drawn."""
    max_episode_steps: int = 27_000
    """Env steps after which an episode is cut. Its return up to there counts."""
    max_steps: int = 10_000_000
    """Env steps, over all envs, after which the evaluation ends."""
    json: bool = False
    """Print one JSON object and nothing else."""
    on: On = "local"
    ray_address: RayAddress = None
    cpus: Cpus = None
    gpus: Gpus = None
    resources: Resources = None
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.load import load_for_env
        from offbeat.api.snapshots import mixtures_of
        from offbeat.config.registry import import_modules

        if self.episodes is not None:
            require_at_least("episodes", self.episodes, 1)
        require_at_least("seed", self.seed, 0)
        require_at_least("max-episode-steps", self.max_episode_steps, 1)
        require_at_least("max-steps", self.max_steps, 1)
        if self.average and self.checkpoint != "latest":
            raise ConfigError(f"both --average and --checkpoint {self.checkpoint} are given: choose one")
        on_ray = OnRay.read(self.on, self.ray_address, self.cpus, self.gpus, self.resources)
        with stdout_to_stderr(), progress_bar("episodes", shown=not self.json) as on_step:
            import_modules(self.imports)
            _, policies = load_for_env(self.run_directory, self.checkpoint, trust_code=self.trust_code)
            mixtures = mixtures_of(self.run_directory, trust_code=self.trust_code) if self.average else {}
            scores = self._scores(on_ray, policies, mixtures, on_step)
        env = next(iter(policies.values())).trained.env
        print(json.dumps(scores) if self.json else self._summary(env, scores))
        return 0

    def _scores(
        self,
        on_ray: OnRay | None,
        policies: Mapping[str, LoadedPolicy],
        mixtures: Mapping[str, Mixture],
        on_step: Callable[[int, int], None],
    ) -> dict[str, Any]:
        """Return the scores of the policies, from this machine or from a node of a cluster."""
        from offbeat.api.evaluate import score, score_on_node
        from offbeat.run_directory.directory import RunDirectory

        settings: dict[str, Any] = {
            "episodes": self.episodes, "seed": self.seed, "sampled": self.sampled, "mixtures": mixtures,
            "max_episode_steps": self.max_episode_steps, "max_steps": self.max_steps,
        }  # fmt: skip
        if on_ray is None:
            return score(policies, on_step=on_step, **settings)
        imports = RunDirectory(self.run_directory).read_run().imports
        with on_ray.task_pool("an evaluation") as pool:
            return score_on_node(pool, imports, policies, **settings)

    def _summary(self, env: str, scores: dict[str, Any]) -> str:
        """Return a line about all agents, then one for each of several policies."""
        how = "sampled" if self.sampled else "greedy"
        which = "average of the snapshots" if self.average else f"{self.checkpoint} checkpoint"
        by_episode = scores.get("return_mean_by_episode")
        what = "episodes" if by_episode is None else "trials in test tasks, last episode"
        all_agents = (
            f"{env}, {how}, {scores['episodes']} {what}: {_returns(scores)}; {which}, after "
            f"{scores['env_steps']} env steps{self._cuts(scores)}"
        )
        if by_episode is not None:
            all_agents += f"\n  mean return by episode: {', '.join(f'{mean:.1f}' for mean in by_episode)}"
        policies = (f"  {name}: {_returns(own)}" for name, own in scores.get("policies", {}).items())
        return "\n".join([all_agents, *policies])

    def _cuts(self, scores: dict[str, Any]) -> str:
        """Return a note on the episodes that were cut or not started; '' if there are none."""
        cut, missing = scores["cut"], scores["not_begun"]
        if not cut and not missing:
            return ""
        ended = scores["episodes"] - cut
        return (
            f"; of {scores['episodes'] + missing} episodes, {ended} ended, {cut} were cut (their return up to there "
            f"counts) and {missing} were not started (--max-episode-steps {self.max_episode_steps}, "
            f"--max-steps {self.max_steps})"
        )


def _returns(scores: dict[str, Any]) -> str:
    """Return the returns and lengths of some agents in words."""
    if scores["return_mean"] is None:
        return "no agent took part in an episode"
    team = scores.get("team_return_mean")
    return (
        f"return {'' if team is None else 'per agent '}{scores['return_mean']:.1f} +- {scores['return_std']:.1f} "
        f"(from {scores['return_min']:.1f} to {scores['return_max']:.1f})"
        f"{'' if team is None else f', sum over agents {team:.1f}'}, length {scores['length_mean']:.1f}"
    )


@dataclass(frozen=True)
class Watch:
    """Show one episode in a window, or write it as a video: offbeat watch runs/NAME --video episode.mp4.

    A policy that infers its task plays a trial: all episodes of an evaluation in one test task.
    """

    run_directory: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run directory."""
    video: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write an .mp4 or .gif file instead of opening a window."""
    seed: int = 0
    """Seed of the episode; with tasks, also the number of the test task."""
    checkpoint: str = "latest"
    """latest, best or step-<12 digits>."""
    max_steps: int = 27_000
    """Env steps after which the episode is cut."""
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.load import load_for_env
        from offbeat.api.watch import watch
        from offbeat.config.registry import import_modules

        require_at_least("max-steps", self.max_steps, 1)
        import_modules(self.imports)
        _, policies = load_for_env(self.run_directory, self.checkpoint, trust_code=self.trust_code)
        with spinner("playing an episode", shown=self.video is not None):
            played = watch(policies, seed=self.seed, video=self.video, max_steps=self.max_steps)
        cut = f", cut by --max-steps {self.max_steps}" if played.cut else ""
        written = f", written to {self.video}" if self.video else ""
        earlier = "".join(f"{each:.1f}, " for each in played.earlier_returns)
        of_trial = f"{len(played.earlier_returns) + 1} episodes in a new task, " if earlier else ""
        print(f"{of_trial}return {earlier}{_by_agent(played.returns)} in {played.length} env steps{cut}{written}")
        return 0


def _by_agent(returns: Mapping[str, float]) -> str:
    """Return the returns of all agents as text; a single agent is not named."""
    return ", ".join(f"{agent} {each:.1f}" if len(returns) > 1 else f"{each:.1f}" for agent, each in returns.items())
