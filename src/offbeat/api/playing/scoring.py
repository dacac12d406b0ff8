"""Plays whole episodes with loaded policies and returns the scores by name, here or on a node of a cluster.

`offbeat.evaluate`, `offbeat eval` and the model card of `offbeat push` have these scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from offbeat.api.playing.env_fit import require_env_fit, world_for
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.policies_to_play import trained_of
from offbeat.api.playing.trained import Trained
from offbeat.config.env import MAX_EPISODE_STEPS, MAX_STEPS
from offbeat.config.run_config import default_episodes
from offbeat.config.trust import require
from offbeat.core.process.threads import set_blas_thread_count
from offbeat.envs import sending
from offbeat.workers.episodes import Episodes, Evaluation
from offbeat.workers.evaluation_envs import evaluation_envs
from offbeat.workers.evaluator import PlayOptions
from offbeat.workers.mixture import Mixture
from offbeat.workers.trials import evaluate_policies

if TYPE_CHECKING:
    from offbeat.run_directory.directory import RunDirectory
    from offbeat.runtime.ray.tasks import TaskPool


def score(
    policies: Mapping[str, LoadedPolicy],
    *,
    episodes: int | None = None,
    seed: int,
    sampled: bool = False,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    max_steps: int = MAX_STEPS,
    mixtures: Mapping[str, Mixture] = MappingProxyType({}),
    on_step: Callable[[int, int], None] = lambda _ended, _episodes: None,
) -> dict[str, Any]:
    """Play whole episodes in new envs, and return the scores by name.

    Args:
        policies: all policies of a checkpoint, by name.
        episodes: number of episodes, by default 20; with tasks, of trials, by default one in each test task.
        seed: seed of the envs and of the action sampling.
        sampled: sample the actions instead of taking the most likely ones.
        max_episode_steps: env steps after which an episode is cut. Its return up to there counts.
        max_steps: env steps, over all envs, after which the evaluation ends.
        mixtures: by name of a policy, what plays instead of it: its versions, one of which is drawn for each episode.
        on_step: called after each step of the envs with the numbers of ended episodes, or trials, and of all.

    Returns:
        The scores by name. `episodes` is the number of episodes in the scores, `cut` the number of those that were cut,
        `not_begun` the number of requested episodes that were not started; with tasks, of trials whose last episode was
        not. In an env with several agents, returns and lengths are per agent, and `team_return_mean` is the mean sum
        over all agents. Several policies have the same scores, of their own agents, under `policies` by name. A score
        is None if no agent took part in an episode. `returns` and `lengths` are lists: of each episode, as `Episodes`.
        With tasks, the scores are those of the last episode of each trial; `first_return_mean` is the mean return of
        the first one, None if it ended in no trial, and `return_mean_by_episode` and `return_std_by_episode` are lists.
        `info/<name>`, for each name in `info_metrics`, is the mean of the number in the infos of the episodes' steps;
        `info/<name>_last`, for `<name>:last`, is the mean over the episodes of the last number in the infos of each,
        and likewise `_max` and `_sum`.

    Raises:
        ConfigError: the env cannot be created, is code that was not accepted, or does not fit the policies.
        EnvFailed: the env failed during a step.
    """
    trained = trained_of(policies)
    require(trained.env_code, "the policy")
    set_blas_thread_count(1)
    owners = {name: loaded.trained.agents for name, loaded in policies.items()}
    trials = trained.trials
    total = default_episodes(trials) if episodes is None else episodes
    envs = evaluation_envs(
        trained.env,
        total,
        seed=seed,
        role="eval",
        settings=trained.env_config,
        max_episode_steps=max_episode_steps,
        info_mask=next(iter(policies.values())).acting_policy.spec.info_mask,
        trials=trials,
        world=world_for(trained, owners) if any(owners.values()) else None,
        owners=owners,
        sides={name: loaded.trained.sides for name, loaded in policies.items()},
    )
    acting = {name: mixtures.get(name, loaded.acting_policy) for name, loaded in policies.items()}
    try:
        for name, columns in envs.columns.items():
            require_env_fit(policies[name], columns.spec)
        options = PlayOptions(sampled, max_steps, on_step=lambda ended: on_step(ended, total))
        result = evaluate_policies(acting, envs, trials, episodes=total, seed=seed, options=options)
    finally:
        envs.close()
    return _scores(result, trained)


def score_on_node(
    pool: TaskPool, directory: RunDirectory, policies: Mapping[str, LoadedPolicy], **settings: Any
) -> dict[str, Any]:
    """Call `score` on a node of a cluster, with the same result.

    Args:
        pool: runs it as a task.
        directory: the directory of the training run, whose imports and time limits the task has.
        policies: as for `score`.
        **settings: the other arguments of `score`, without `on_step`.

    Raises:
        ConfigError, EnvFailed: as `score`; or the env cannot be sent to the node.
        RunFailed: there is no node with the resources any more, or the evaluation hangs.
    """
    from offbeat.runtime.ray.tasks import note_progress, stall_limit

    trained = trained_of(policies)
    env = sending.package(trained.env, directory.read_run().imports, trained.env_config.wrappers)
    function, limit = partial(score, on_step=note_progress, **settings), stall_limit([directory.read_runtime()])
    ((_, scores),) = pool.results(env, function, [[policies]], limit)
    return scores


def _scores(result: Evaluation, trained: Trained) -> dict[str, Any]:
    """Return the scores of an evaluation and the progress of the training run, by name."""
    progress = {
        "env_steps": trained.env_steps,
        "learning_step": trained.learning_step,
        "updates": trained.updates,
    }
    several_agents = bool(trained.agents)
    scores: dict[str, Any] = {
        "episodes": result.episodes,
        "cut": result.cut,
        "not_begun": result.not_begun,
        **_returns(result, several_agents=several_agents),
        **_adaptation(result),
        **result.info,
        **progress,
    }
    if len(result.policies) > 1:
        scores["policies"] = {
            name: {"episodes": result.episodes, **_returns(own, several_agents=several_agents), **own.info, **progress}
            for name, own in result.policies.items()
        }
    return scores


def _adaptation(result: Evaluation) -> dict[str, Any]:
    """Return the scores by episode of a trial; none if the env has no tasks."""
    if result.adaptation is None:
        return {}
    means, deviations = ([each[index] for each in result.returns_by_episode] for index in range(2))
    return {
        "first_return_mean": means[0] if means else None,
        "return_mean_by_episode": means,
        "return_std_by_episode": deviations,
    }


def _returns(episodes: Episodes, *, several_agents: bool) -> dict[str, Any]:
    """Return the returns and the lengths of some agents, by name."""
    return {
        "return_mean": episodes.return_mean,
        "return_std": episodes.return_std,
        "return_min": episodes.return_min,
        "return_max": episodes.return_max,
        **({"team_return_mean": episodes.team_return_mean} if several_agents else {}),
        "length_mean": episodes.length_mean,
        "returns": episodes.returns.tolist(),
        "lengths": episodes.lengths.tolist(),
    }
