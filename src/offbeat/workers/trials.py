"""Evaluation in new tasks: a trial of several episodes in each, in which the policy infers the task.

    episode      1 ... prior_episodes                     | the last one
    z            from the prior, anew in each episode     | from the posterior given all transitions before

All columns play their trials side by side, each in its own task. If there are more trials than columns, they play in
rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.seeding import stream
from offbeat.core.tasks import Trials
from offbeat.core.types import Array, Tree
from offbeat.envs.contract import Outcome, TaskEnvs
from offbeat.envs.episode_infos import EpisodeInfos
from offbeat.envs.make import task_envs
from offbeat.models.acting import ActingPolicy
from offbeat.models.task_inference import TaskInference
from offbeat.workers.episodes import Episodes, Evaluation, info_means, sums_and_counts, sums_by_name
from offbeat.workers.evaluation_envs import EvaluationEnvs
from offbeat.workers.evaluator import EvaluatedColumns, EvaluationLoop, PlayOptions, evaluate
from offbeat.workers.mixture import Mixture


def evaluate_policies(
    policies: Mapping[str, ActingPolicy | Mixture],
    envs: EvaluationEnvs,
    trials: Trials | None,
    *,
    episodes: int,
    seed: int,
    options: PlayOptions,
) -> Evaluation:
    """Play whole episodes or, with tasks, trials.

    Args:
        policies: the policies by name, with their weights loaded; of a mixture one is drawn for each episode.
        envs: the columns of these policies, from `evaluation_envs` with the same `episodes` and `trials`.
        trials: the trials, for a policy that infers its task; None: the env has one task.
        episodes: number of episodes, or of trials.
        seed: see `evaluate`.
        options: how they are played.

    Raises:
        EnvFailed: an env failed.
    """
    if trials is None:
        return evaluate(policies, envs, episodes=episodes, seed=seed, options=options)
    ((name, policy),) = policies.items()
    assert isinstance(policy, ActingPolicy)
    return _evaluate_trials(policy, task_envs(envs.columns[name]), trials, episodes, seed, options)


def _evaluate_trials(
    policy: ActingPolicy, envs: TaskEnvs, trials: Trials, count: int, seed: int, options: PlayOptions
) -> Evaluation:
    """Play `count` trials in the test tasks, in turn, with training progress 1.

    Args:
        policy: a policy with a context encoder, with its weights loaded.
        envs: `columns_for(count)` columns with the tasks of `trials`.
        trials: the tasks, and the episodes of a trial.
        count: number of trials; trial i is in test task i, counted from the first one again after the last one.
        seed: seed of the task variables and of the action sampling.
        options: how they are played.
    """
    rounds: list[_Round] = []
    for first in range(0, count, envs.spec.columns):
        left = None if options.max_steps is None else options.max_steps - sum(each.played.env_steps for each in rounds)
        if left is not None and left <= 0:
            break
        numbers = np.arange(first, first + envs.spec.columns) % trials.tasks.test
        columns = TrialColumns(policy, envs, trials, trials.tasks.train + numbers, stream(seed, "trials", len(rounds)))
        episodes = envs.spec.columns * trials.episodes
        random = stream(seed, "evaluate", len(rounds)) if options.sampled else None
        report = options.on_step and partial(_report_ended, options.on_step, columns, first, count)
        own = replace(options, max_steps=left, on_step=report)
        loop = EvaluationLoop({DEFAULT_POLICY: columns}, EvaluationEnvs.of_one(envs), episodes, random, own)
        rounds.append(_Round(columns, loop.play()))
    return _joined(rounds, count)


class TrialColumns(EvaluatedColumns):
    """A policy that infers the task of each of its columns, over the episodes of a trial."""

    def __init__(
        self,
        policy: ActingPolicy,
        envs: TaskEnvs,
        trials: Trials,
        tasks: NDArray[np.int64],
        random: np.random.Generator,
    ) -> None:
        """Act in `envs`, set to these `tasks`, [N]; `random` draws the task variables."""
        super().__init__(policy, envs, seed=0)
        self._task_envs, self._tasks, self._random, self._trials = envs, tasks, random, trials
        self._inference = TaskInference(policy, len(tasks))
        self._episode = np.zeros(len(tasks), np.int64)
        """[N]: number of the present episode of each trial."""
        self._starts = np.ones(len(tasks), np.bool_)
        """[N]: whether the next row is the first one of an episode."""
        self._acted: tuple[Tree, Array] = {}, np.empty(0)
        """The observation of the present row, and the recorded actions."""
        shape = len(tasks), trials.episodes
        self.returns, self.lengths, self.cut = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        """[N, episodes]: return, length, and whether the step limit of evaluations has cut the episode."""
        self.ended = np.zeros(shape, np.bool_)
        self.info_of_rows = np.zeros((2, len(tasks), len(envs.spec.info)))
        """[2, N, K]: sums and counts of the numbers in the infos of all rows."""
        self.infos = EpisodeInfos(envs.spec.info, *shape)

    def _first_observation(self) -> Tree:
        return self._task_envs.start_tasks(self._tasks)

    def action(self, random: np.random.Generator | None) -> Array:
        self._draw()
        observation = {name: leaf.copy() for name, leaf in self._observation.items()}
        inputs = self._inference.with_task(observation)
        recorded = self._policy.greedy(inputs) if random is None else self._policy.act(inputs, random).action
        self._acted = observation, recorded.copy()
        return self._policy.to_env(recorded)

    def _draw(self) -> None:
        """Draw the task variable of the columns in which an episode starts."""
        prior = self._episode < self._trials.prior_episodes
        self._inference.sample_prior(self._random, self._starts & prior)
        self._inference.sample_posterior(self._random, self._starts & ~prior)

    def receive(self, outcome: Outcome, over: Array) -> None:
        prior = outcome.valid & (self._episode < self._trials.prior_episodes)
        self._inference.observe(*self._acted, outcome.reward, outcome.observation, prior)
        self._count(outcome)
        self._starts = outcome.resets.copy()
        super().receive(outcome, over)

    def _count(self, outcome: Outcome) -> None:
        """Add the row to the return and length of the present episodes."""
        columns = np.flatnonzero(self._episode < self._trials.episodes)
        cells = columns, self._episode[columns]
        self.returns[cells] += outcome.reward[columns]
        self.lengths[cells] += outcome.valid[columns]
        ended = outcome.ended[columns]
        self.ended[cells] |= ended
        if (limit := self.envs.spec.cut_at) is not None:
            self.cut[cells] |= outcome.truncated[columns] & (self.lengths[cells] >= limit)
        if self.envs.spec.info:
            self.info_of_rows[:, columns] += sums_and_counts(outcome.info[columns])
            self.infos.add(outcome.info[columns], cells)
        self._episode[columns[ended]] += 1


# --- the result -----------------------------------------------------------------------------------------------


class _Round(NamedTuple):
    columns: TrialColumns
    played: Evaluation


def _report_ended(
    on_step: Callable[[int], None], columns: TrialColumns, first: int, count: int, _episodes: int
) -> None:
    """Call `on_step` with the number of trials that have ended: those before the round, and those of the round.

    Args:
        on_step: what to call.
        columns: those of the round.
        first: number of trials before the round, which have all ended.
        count: number of all trials. Columns beyond it play a trial that does not count.
    """
    on_step(first + int(columns.ended[: count - first, -1].sum()))


def _joined(rounds: list[_Round], count: int) -> Evaluation:
    """Return the evaluation of the first `count` trials of all rounds."""
    returns, lengths, cut, ended = (
        np.concatenate([getattr(each.columns, name) for each in rounds])[:count]
        for name in ("returns", "lengths", "cut", "ended")
    )
    info_names = rounds[0].columns.envs.spec.info
    info_of_rows = np.concatenate([each.columns.info_of_rows for each in rounds], axis=1)[:, :count].sum(axis=1)
    info_of_last = np.concatenate([each.columns.infos.numbers for each in rounds])[:count, -1]
    scored = lengths[:, -1] > 0
    counts = ended.copy()
    counts[:, -1] = scored  # as in the scores
    alone = np.ones(int(scored.sum()), np.int64)
    last = Episodes(returns[scored, -1], lengths[scored, -1], returns[scored, -1], alone)
    return Evaluation(
        last.returns,
        last.lengths,
        last.team_returns,
        last.team_sizes,
        {DEFAULT_POLICY: last},
        cut=int((cut | ~ended)[scored, -1].sum()),
        not_begun=count - int(scored.sum()),
        env_steps=sum(each.played.env_steps for each in rounds),
        info=info_means(info_names, sums_by_name(info_names, info_of_rows, info_of_last)),
        adaptation=np.where(counts, returns, np.nan),
    )
