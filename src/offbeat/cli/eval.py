"""`offbeat eval`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional, arg

from offbeat.cli.flags import CheckpointName, EnvKwargs, OtherEnv, RunImports, TrustCode, Wrappers, changed_env
from offbeat.cli.on_ray import Cpus, Gpus, On, OnRay, RayAddress, Resources
from offbeat.cli.output import progress_bar, stdout_to_stderr
from offbeat.config.env import MAX_EPISODE_STEPS, MAX_STEPS
from offbeat.core.info_names import INFO
from offbeat.core.printing import print_text
from offbeat.metrics.text import counted, precise


@dataclass(frozen=True)
class Eval:
    """Play whole episodes with the policies of a run: offbeat eval runs/NAME."""

    run_directory: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory, hf://USER/NAME for a policy on the Hugging Face hub, or a folder with its files."""
    episodes: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """Number of whole episodes, by default 20. Each env gets a fixed share of them, so short episodes are not
    preferred. For a policy that infers its task: number of trials, by default one in each test task."""
    seed: int = 0
    """Seed of the envs and of the action sampling."""
    sampled: bool = False
    """Sample the actions instead of taking the most likely ones."""
    checkpoint: CheckpointName = "latest"
    """latest, best or step-<12 digits>."""
    average: bool = False
    """Evaluate the average of the league's snapshots on disk: for each episode, one of them is drawn."""
    max_episode_steps: int = MAX_EPISODE_STEPS
    """Env steps after which an episode is cut. Its return up to there counts."""
    max_steps: int = MAX_STEPS
    """Env steps, over all envs, after which the evaluation ends."""
    json: bool = False
    """Print one JSON object and nothing else."""
    on: On = "local"
    ray_address: RayAddress = None
    cpus: Cpus = None
    gpus: Gpus = None
    resources: Resources = None
    env: OtherEnv = None
    env_kwargs: EnvKwargs = ()
    wrappers: Wrappers = ()
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.evaluate import evaluate
        from offbeat.config.importing import import_modules

        on_ray = OnRay.read(self.on, self.ray_address, self.cpus, self.gpus, self.resources)
        with stdout_to_stderr(), progress_bar("episodes", shown=not self.json) as on_step:
            import_modules(self.imports)
            result = evaluate(
                self.run_directory,
                **changed_env(self.env, self.env_kwargs, self.wrappers),
                episodes=self.episodes,
                seed=self.seed,
                sampled=self.sampled,
                checkpoint=self.checkpoint,
                average=self.average,
                max_episode_steps=self.max_episode_steps,
                max_steps=self.max_steps,
                trust_code=self.trust_code,
                on_step=on_step,
                nodes=None if on_ray is None else on_ray.task_pool("an evaluation"),
            )
        if self.json:
            print(json.dumps(result.scores))
        else:
            print_text(self._summary(result.env, result.scores))
        return 0

    def _summary(self, env: str, scores: Mapping[str, Any]) -> str:
        """Return a line about all agents, then one for each of several policies."""
        how = "sampled" if self.sampled else "greedy"
        which = "average of the snapshots" if self.average else f"{self.checkpoint} checkpoint"
        by_episode = scores.get("return_mean_by_episode")
        what = counted(scores["episodes"], "episode" if by_episode is None else "trial")
        if by_episode is not None:
            what += " in test tasks, last episode"
        all_agents = (
            f"{env}, {how}, {what}: {scores_text(scores)}; {which}, after "
            f"{scores['env_steps']} env steps{self._cuts(scores)}"
        )
        if by_episode:
            all_agents += f"\n  mean return by episode: {', '.join(map(precise, by_episode))}"
        policies = (f"  {name}: {scores_text(own)}" for name, own in scores.get("policies", {}).items())
        return "\n".join([all_agents, *policies])

    def _cuts(self, scores: Mapping[str, Any]) -> str:
        """Return a note on the episodes, or trials, that were cut or not started; '' if there are none."""
        cut, missing = scores["cut"], scores["not_begun"]
        if not cut and not missing:
            return ""
        if "return_mean_by_episode" in scores:
            what, where, unplayed = "trials", " in the last episode", "did not reach it"
        else:
            what, where, unplayed = "episodes", "", "were not started"
        ended = scores["episodes"] - cut
        return (
            f"; of {scores['episodes'] + missing} {what}, {ended} ended, {cut} were cut{where} (their return up to "
            f"there counts) and {missing} {unplayed} (--max-episode-steps {self.max_episode_steps}, "
            f"--max-steps {self.max_steps})"
        )


def scores_text(scores: Mapping[str, Any]) -> str:
    """Return the returns and lengths of some agents in words, and the means of the numbers in the infos."""
    if scores["return_mean"] is None:
        return "no agent took part in an episode"
    team = scores.get("team_return_mean")
    lowest, highest = scores["return_min"], scores["return_max"]
    infos = "".join(f", {name} {precise(mean)}" for name, mean in scores.items() if name.startswith(INFO))
    return (
        f"return {'' if team is None else 'per agent '}{precise(scores['return_mean'])} +- "
        f"{precise(scores['return_std'], max(-lowest, highest))} (from {precise(lowest)} to {precise(highest)})"
        f"{'' if team is None else f', sum over agents {precise(team)}'}, length {scores['length_mean']:.1f}{infos}"
    )
