"""`offbeat.evaluate`: plays whole episodes with the policies of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.api.hub.download import is_published
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.policies_to_play import GivenEnv, GivenPolicies, policies_to_play, trained_of
from offbeat.api.playing.scoring import score, score_on_node
from offbeat.api.playing.snapshots import mixtures_of
from offbeat.config.arguments import checked
from offbeat.config.env import MAX_EPISODE_STEPS, MAX_STEPS
from offbeat.core.errors import ConfigError, require_at_least
from offbeat.core.fields import Episodes, read
from offbeat.core.files import user_path
from offbeat.core.info_names import INFO
from offbeat.core.process.caller_state import caller_state
from offbeat.metrics.text import in_repr
from offbeat.run_directory.directory import RunDirectory
from offbeat.run_directory.store import LATEST

if TYPE_CHECKING:
    from offbeat.runtime.ray.tasks import TaskPool


@dataclass(frozen=True, kw_only=True)
class Returns:
    """The returns and lengths of episodes of some agents. None: no agent took part in an episode."""

    episodes: int
    return_mean: float | None
    return_std: float | None
    return_min: float | None
    return_max: float | None
    """Of one agent, if the env has several."""
    length_mean: float | None
    """In env steps; with several agents, in decisions."""
    returns: tuple[float, ...] = field(repr=False)
    """Of each episode, in an order that is always the same. With several agents: of each that took part in the first
    episode, then in the second, and so on. The numbers above are computed from these, cut episodes included."""
    lengths: tuple[int, ...] = field(repr=False)
    """Of the same episodes, in env steps; with several agents, in decisions."""
    team_return_mean: float | None = None
    """With several agents: the mean sum over all of them."""
    info: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    """Means of the numbers in the env's infos that `info_metrics` names: of x under x, of x:last under x_last."""


@dataclass(frozen=True, kw_only=True, repr=False)
class EvaluationResult(Returns):
    """The result of `offbeat.evaluate`. With tasks, the returns are those of the last episode of each trial."""

    env: str
    cut: int
    """Episodes that were cut by a limit; with tasks, last episodes of trials. Their returns up to there count."""
    not_begun: int
    """Episodes that were not started, because of `max_steps`; with tasks, trials whose last episode was not."""
    env_steps: int
    """Env steps that the policies have learned from, as `learning_step` and `updates`."""
    learning_step: int
    updates: int | None
    return_mean_by_episode: tuple[float, ...] = ()
    """With tasks: by episode of a trial, over the trials in which it ended, as `return_std_by_episode`; one that ended
    in none is left out."""
    return_std_by_episode: tuple[float, ...] = ()
    policies: Mapping[str, Returns] = field(default_factory=dict, hash=False)
    """Of several policies: the returns of the agents of each, by name."""
    scores: Mapping[str, Any] = field(compare=False)
    """All of it as one object, as `offbeat eval --json` prints it."""

    def __repr__(self) -> str:
        """Return one line: the env, the returns and the lengths."""
        names = ("return_mean", "return_std", "length_mean")
        numbers = ", ".join(f"{name}={in_repr(getattr(self, name))}" for name in names)
        return f"EvaluationResult({self.env!r}, episodes={self.episodes}, {numbers})"

    @classmethod
    def of(cls, env: str, scores: Mapping[str, Any]) -> EvaluationResult:
        """Return the result with the scores that `score` returns."""
        own = {each.name for each in fields(cls)} - {"policies"}
        returns = {each.name for each in fields(Returns)}
        policies = {
            name: Returns(info=_info(each), **_chosen(each, returns))
            for name, each in scores.get("policies", {}).items()
        }
        return cls(env=env, info=_info(scores), policies=policies, scores=scores, **_chosen(scores, own))


def _info(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of the infos in some scores, by name."""
    return {key.removeprefix(INFO): value for key, value in scores.items() if key.startswith(INFO)}


def _chosen(scores: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the scores with these names, with tuples in place of lists."""
    chosen = ((key, value) for key, value in scores.items() if key in names)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in chosen}


@checked
def evaluate(
    run: GivenPolicies,
    env: GivenEnv | None = None,
    episodes: int | None = None,
    *,
    seed: int = 0,
    sampled: bool = False,
    checkpoint: str = LATEST,
    average: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | type[Any]] | None = None,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    max_steps: int = MAX_STEPS,
    trust_code: bool = False,
    on_step: Callable[[int, int], None] = lambda _ended, _episodes: None,
    nodes: AbstractContextManager[TaskPool] | None = None,
) -> EvaluationResult:
    """Play whole episodes in new envs with the policies of a run, as `offbeat eval` does.

    Args:
        run: as for `load`; or its loaded policy, or all of them by name, as `load_all` returns.
        env: the env, as for `train`; None: that of the run's evaluations, with its settings.
        episodes: number of whole episodes; None: 20. Each env gets a fixed share of them, so short episodes are not
            preferred. For a policy that infers its task: number of trials; None: one in each test task.
        seed: seed of the envs and of the action sampling.
        sampled: sample the actions instead of taking the most likely ones.
        checkpoint: latest, best or step-<12 digits>, of a run.
        average: evaluate the average of the league's snapshots on disk: for each episode, one of them is drawn.
        env_kwargs: arguments of the env's constructor that replace those of the run's evaluations.
        wrappers: wrappers of the env, as for `train`; None: those of the training.
        max_episode_steps: env steps after which an episode is cut. Its return up to there counts.
        max_steps: env steps, over all envs, after which the evaluation ends.
        trust_code: as for `load`.
        on_step: for the command line: is called with the number of episodes that have ended, and of all episodes.
        nodes: for the command line: connects to a cluster, one node of which plays the episodes. None: here.

    Raises:
        ConfigError: the run or its env cannot be loaded, is code that was not accepted, or does not fit the policy.
        EnvFailed: the env failed during a step.
    """
    if episodes is not None:
        episodes = read("episodes", episodes, Episodes, "pass, for example, --episodes 20")
    limits = {"max_episode_steps": max_episode_steps, "max_steps": max_steps}
    for name, value in limits.items():
        require_at_least(name, value, 1)
    require_at_least("seed", seed, 0)
    if average and checkpoint != LATEST:
        raise ConfigError("both --average and --checkpoint are given: choose one")
    with caller_state() as caller:
        policies = policies_to_play(
            run, env, checkpoint=checkpoint, env_kwargs=env_kwargs, wrappers=wrappers, trust_code=trust_code
        )
        mixtures = mixtures_of(_directory(run, "--average"), policies, trust_code=trust_code) if average else {}
        settings: dict[str, Any] = {
            "episodes": episodes, "seed": seed, "sampled": sampled, "mixtures": mixtures, **limits,
        }  # fmt: skip
        caller.save_library_settings()
        if nodes is None:
            scores = score(policies, on_step=on_step, **settings)
        else:
            directory = RunDirectory(_directory(run, "--on ray"))
            with nodes as pool:
                scores = score_on_node(pool, directory, policies, **settings)
    return EvaluationResult.of(trained_of(policies).env, scores)


def _directory(run: GivenPolicies, flag: str) -> Path:
    """Return the directory of a run; `flag`: what needs it.

    Raises:
        ConfigError: a loaded policy or a published one is given.
    """
    if isinstance(run, LoadedPolicy | Mapping) or is_published(run):
        raise ConfigError(f"{flag} is given, which needs a run, but a policy is given: pass the run directory")
    return user_path(run)
