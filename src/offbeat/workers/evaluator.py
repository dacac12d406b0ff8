"""Evaluation: whole episodes of one fixed policy, in many envs at once, without a bias towards short episodes.

The number of episodes that each column plays is fixed before the start. Counting the first E episodes that end in any
column would be biased: short episodes end first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from offbeat.config.env import EVALUATION_STEPS, EnvConfig
from offbeat.core.errors import EnvFailed, with_notes_of
from offbeat.core.seeding import stream
from offbeat.core.types import Array, Policy, Tree
from offbeat.envs.contract import Envs, Outcome
from offbeat.envs.make import make_envs
from offbeat.envs.rows import FAILURES
from offbeat.models.stacks import Stacks
from offbeat.workers.columns import Unwatched, Watch

Returned = TypeVar("Returned")

EVALUATION_ENVS = 32
"""Maximum number of envs that an evaluation steps at once."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation: those that ended, and those that a limit cut, with their return so far.

    There is always at least one episode.
    """

    returns: NDArray[np.float64]
    """[episodes], undiscounted and unclipped."""
    lengths: NDArray[np.int64]
    """[episodes], in env steps."""
    cut: int
    """Number of these episodes that were cut."""
    not_begun: int
    """Requested episodes that were not started, because the limit on env steps in total was reached before."""
    env_steps: int
    """Env steps taken in all columns, also in columns that had already played all their episodes."""

    @property
    def cuts(self) -> str:
        """A message about episodes that did not end; empty if all ended."""
        if not self.cut and not self.not_begun:
            return ""
        played = len(self.returns)
        not_started = f" and {self.not_begun} were not begun" if self.not_begun else ""
        return f"of {played + self.not_begun} episodes {played - self.cut} ended, {self.cut} were cut{not_started}"

    @property
    def return_mean(self) -> float:
        return float(self.returns.mean())

    @property
    def return_std(self) -> float:
        """Standard deviation over the episodes."""
        return float(self.returns.std())

    @property
    def return_min(self) -> float:
        return float(self.returns.min())

    @property
    def return_max(self) -> float:
        return float(self.returns.max())

    @property
    def length_mean(self) -> float:
        return float(self.lengths.mean())


def evaluation_envs(
    env_id: str,
    episodes: int,
    *,
    seed: int,
    role: str,
    settings: EnvConfig,
    max_episode_steps: int = EVALUATION_STEPS,
    info_mask: bool = False,
) -> Envs:
    """Make the envs for an evaluation of this number of episodes; they cut an episode after `max_episode_steps`.

    Some vector envs cannot limit episodes; for these only `max_steps` of `evaluate` is a limit. The other arguments and
    errors are those of `make_envs`.
    """
    columns = min(episodes, EVALUATION_ENVS)
    return make_envs(
        env_id, columns, seed=seed, role=role, settings=settings, info_mask=info_mask, cut_after=max_episode_steps
    )


def evaluate(
    policy: Policy,
    envs: Envs,
    *,
    episodes: int,
    seed: int,
    sampled: bool = False,
    max_steps: int | None = None,
    watch: Watch | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Evaluation:
    """Play `episodes` whole episodes with training progress 1, that is, of the task as at the end of training.

    Args:
        policy: the policy, with its weights loaded.
        envs: N columns in one group, from `evaluation_envs`; they are reset first. Episodes that `envs.spec.cut_at`
            truncates count as cut, with their return so far.
        episodes: number of episodes; column i plays the episodes i, i + N, i + 2 N, ...
        seed: seed of the action sampling.
        sampled: whether to sample actions; else the most likely action is taken.
        max_steps: limit on env steps in total, at least 1: the evaluation then ends, and unfinished episodes are cut.
            None: no limit.
        watch: is notified of each env call.
        on_step: is called after each vector step with the number of episodes that have ended; may raise to stop.

    Raises:
        EnvFailed: an env failed; the message says after how many env steps of the evaluation.
    """
    random = stream(seed, "evaluate") if sampled else None
    return _Evaluator(policy, envs, episodes, random, watch or Unwatched()).play(max_steps, on_step)


class _Evaluator:
    """Steps the envs of one evaluation with its policy."""

    def __init__(
        self,
        policy: Policy,
        envs: Envs,
        episodes: int,
        random: np.random.Generator | None,
        watch: Watch,
    ) -> None:
        columns = envs.spec.columns
        self._policy, self._envs, self._random, self._watch = policy, envs, random, watch
        self._episodes, self._counter = episodes, _EpisodeCounter(episodes, columns, envs.spec.cut_at)
        self._state = np.zeros((columns, policy.state_size), np.float32)
        """Recurrent state of the policy, by column."""
        self._stacks = Stacks(envs.spec.observation, columns)
        self._env_steps, self._resets = 0, True

    def play(self, max_steps: int | None, on_step: Callable[[int], None] | None) -> Evaluation:
        """Play until all episodes have ended, or `max_steps` env steps have been taken."""
        self._call_envs(lambda: self._envs.set_progress(1.0))
        observation = self._call_envs(self._envs.reset)
        self._stacks.reset(observation)
        while self._counter.ended < self._episodes and (max_steps is None or self._env_steps < max_steps):
            observation = self._step(observation)
            if on_step is not None:
                on_step(self._counter.ended)
        return self._counter.evaluation(self._env_steps)

    def _step(self, observation: Tree) -> Tree:
        """Act on an observation in all columns; return the next one."""
        action = self._policy.to_env(self._action(self._stacks.with_stacks(observation)))
        self._call_envs(lambda: self._envs.send(action))
        outcome = self._call_envs(self._envs.recv)
        self._count(outcome)
        self._state[outcome.resets] = 0
        self._stacks.push(outcome.observation, outcome.resets)
        return outcome.observation

    def _action(self, observation: Tree) -> Array:
        if self._random is None:
            return self._policy.greedy(observation, self._state)
        return self._policy.act(observation, self._random, self._state).action

    def _count(self, outcome: Outcome) -> None:
        self._counter.add(outcome)
        self._env_steps += int(np.count_nonzero(~outcome.resets))
        self._resets = bool(outcome.ended.any())

    def _call_envs(self, call: Callable[[], Returned]) -> Returned:
        """Call the envs, with the watch notified before and after."""
        self._watch.enter(resets=self._resets)
        try:
            returned = call()
        except FAILURES as error:
            failed = EnvFailed(
                f"an evaluation failed after {self._env_steps} env steps, when {self._counter.ended} of "
                f"{self._episodes} episodes had ended: {_message_of(error)}"
            )
            raise with_notes_of(failed, error) from error
        self._watch.leave()
        return returned


def _message_of(error: BaseException) -> str:
    return str(error) if isinstance(error, EnvFailed) else f"{type(error).__name__}: {error}"


class _EpisodeCounter:
    """Adds up returns and lengths by episode. Columns that have played all their episodes are not counted."""

    def __init__(self, episodes: int, columns: int, cut_at: int | None) -> None:
        self.ended = 0
        self._returns, self._lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        self._started = np.zeros(episodes, np.bool_)
        """[episodes]: whether an env step has been taken in the episode."""
        self._truncated = 0
        """Number of ended episodes that the step limit `cut_at` truncated."""
        self._cut_at = cut_at
        self._elapsed = np.zeros(columns, np.int64)
        """Rows since the start of each column's episode or game, including the reset rows after a lost life."""
        self._episode = np.arange(columns)
        """Number of the current episode, by column."""

    def add(self, outcome: Outcome) -> None:
        counted = self._episode < len(self._returns)
        episode, ended = self._episode[counted], outcome.ended
        self._elapsed += 1
        self._returns[episode] += outcome.reward[counted]
        self._lengths[episode] += outcome.valid[counted]
        self._started[episode] |= ~outcome.resets[counted]
        if not ended.any():
            return
        self.ended += int((ended & counted).sum())
        if self._cut_at is not None:
            at_limit = self._elapsed >= self._cut_at
            self._truncated += int((at_limit & ended & outcome.truncated & counted).sum())
        self._episode[ended] += len(self._episode)
        self._elapsed[ended] = -1  # the next row is the reset row

    def evaluation(self, env_steps: int) -> Evaluation:
        """Return the evaluation: the episodes that have ended and the unfinished ones, which count as cut."""
        started = self._started
        cut = self._truncated + int(started.sum()) - self.ended
        return Evaluation(self._returns[started], self._lengths[started], cut, int((~started).sum()), env_steps)
