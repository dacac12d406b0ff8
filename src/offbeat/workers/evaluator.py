"""Evaluation: whole episodes of one fixed policy, many envs at once, without a bias to short episodes.

Each column is told beforehand how many episodes it plays. Taking instead the first E episodes to end, of all
columns together, would prefer the short ones.
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
"""Envs that an evaluation steps at once, at most."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation: those that ended, and those that a bound cut, with what they had earned by then.

    There is always one at least.
    """

    returns: NDArray[np.float64]
    """[episodes], undiscounted and unclipped."""
    lengths: NDArray[np.int64]
    """[episodes], in env steps."""
    cut: int
    """How many of these episodes were cut."""
    not_begun: int
    """Episodes that were asked for and are missing here: the bound in total was reached before they had begun."""
    env_steps: int
    """Env steps that were taken, in all columns, also in those that had played their share."""

    @property
    def cuts(self) -> str:
        """What there is to say of episodes that did not end; empty where all did."""
        if not self.cut and not self.not_begun:
            return ""
        played = len(self.returns)
        begun = f" and {self.not_begun} were not begun" if self.not_begun else ""
        return f"of {played + self.not_begun} episodes {played - self.cut} ended, {self.cut} were cut{begun}"

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
    """Make the envs of an evaluation of so many episodes, which cut an episode after `max_episode_steps`.

    Vector envs that cannot be limited do without; there `max_steps` of `evaluate` alone is a bound. The other arguments
    and errors are those of `make_envs`.
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
    """Play `episodes` whole episodes, of the task as it is at the end of training.

    Args:
        policy: with its weights loaded.
        envs: N columns in one group, as `evaluation_envs` makes them; a new episode is begun in each. Those that
            `envs.spec.cut_at` truncates count as cut, with what they had earned.
        episodes: column i plays episodes i, i + N, i + 2 N, ... of them.
        seed: keys the sampling.
        sampled: sample actions, instead of taking the most likely one.
        max_steps: env steps in total, at least 1, after which the evaluation ends and cuts the episodes under way;
            None: no bound.
        watch: over each call of the envs.
        on_step: called after each vector step with the episodes that have ended so far; may raise to stop.

    Raises:
        EnvFailed: an env failed; the message says that it was in an evaluation, and after how many env steps.
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
        self._episodes, self._ended = episodes, _EpisodeCounter(episodes, columns, envs.spec.cut_at)
        self._state = np.zeros((columns, policy.state_size), np.float32)
        """What the policy remembers of each column's episode."""
        self._stacks = Stacks(envs.spec.observation, columns)
        self._env_steps, self._resets = 0, True

    def play(self, max_steps: int | None, on_step: Callable[[int], None] | None) -> Evaluation:
        """Play until all episodes have ended, or `max_steps` env steps have been taken."""
        self._called(lambda: self._envs.set_progress(1.0))
        observation = self._called(self._envs.reset)
        self._stacks.reset(observation)
        while self._ended.ended < self._episodes and (max_steps is None or self._env_steps < max_steps):
            observation = self._step(observation)
            if on_step is not None:
                on_step(self._ended.ended)
        return self._ended.evaluation(self._env_steps)

    def _step(self, observation: Tree) -> Tree:
        """Act on an observation in all columns; return the next one."""
        action = self._policy.to_env(self._action(self._stacks.with_stacks(observation)))
        self._called(lambda: self._envs.send(action))
        outcome = self._called(self._envs.recv)
        self._count(outcome)
        self._state[outcome.resets] = 0
        self._stacks.push(outcome.observation, outcome.resets)
        return outcome.observation

    def _action(self, seen: Tree) -> Array:
        if self._random is None:
            return self._policy.greedy(seen, self._state)
        return self._policy.act(seen, self._random, self._state).action

    def _count(self, outcome: Outcome) -> None:
        self._ended.add(outcome)
        self._env_steps += int(np.count_nonzero(~outcome.resets))
        self._resets = bool(outcome.ended.any())

    def _called(self, call: Callable[[], Returned]) -> Returned:
        """Call the envs under watch."""
        self._watch.enter(resets=self._resets)
        try:
            returned = call()
        except FAILURES as error:
            failed = EnvFailed(
                f"an evaluation failed after {self._env_steps} env steps, when {self._ended.ended} of "
                f"{self._episodes} episodes had ended: {_words(error)}"
            )
            raise with_notes_of(failed, error) from error
        self._watch.leave()
        return returned


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, EnvFailed) else f"{type(error).__name__}: {error}"


class _EpisodeCounter:
    """Returns and lengths by episode; columns that have played their share are no longer counted."""

    def __init__(self, episodes: int, columns: int, cut_at: int | None) -> None:
        self.ended = 0
        self._returns, self._lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        self._begun = np.zeros(episodes, np.bool_)
        """[episodes]: whether an env step has been taken in it."""
        self._truncated = 0
        """How many of those that ended were cut."""
        self._cut_at = cut_at
        self._elapsed = np.zeros(columns, np.int64)
        """Rows since each column's episode, or game, began: lives that were lost within it have reset rows too."""
        self._episode = np.arange(columns)
        """The number of the episode that each column is playing."""

    def add(self, outcome: Outcome) -> None:
        counted = self._episode < len(self._returns)
        episode, ended = self._episode[counted], outcome.ended
        self._elapsed += 1
        self._returns[episode] += outcome.reward[counted]
        self._lengths[episode] += outcome.valid[counted]
        self._begun[episode] |= ~outcome.resets[counted]
        if not ended.any():
            return
        self.ended += int((ended & counted).sum())
        if self._cut_at is not None:
            long = self._elapsed >= self._cut_at
            self._truncated += int((long & ended & outcome.truncated & counted).sum())
        self._episode[ended] += len(self._episode)
        self._elapsed[ended] = -1  # the next row is the reset row

    def evaluation(self, env_steps: int) -> Evaluation:
        """Return what has been played: episodes that have ended and those under way."""
        begun = self._begun
        cut = self._truncated + int(begun.sum()) - self.ended
        return Evaluation(self._returns[begun], self._lengths[begun], cut, int((~begun).sum()), env_steps)
