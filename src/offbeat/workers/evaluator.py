"""Evaluation: whole episodes of fixed policies, in many worlds at once, without a bias towards short episodes.

The number of episodes that each world plays is fixed before the start. Counting the first E episodes that end in any
world would be biased: short episodes end first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from offbeat.core.errors import FAILURES, EnvFailed, NetworkFailed, type_and_text, with_notes_of
from offbeat.core.seeding import derive_seed, stream
from offbeat.core.types import Array, Policy, Tree
from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.envs.contract import Envs, Outcome
from offbeat.models.stacks import Stacks
from offbeat.workers.episodes import Evaluation
from offbeat.workers.evaluation_envs import EvaluationEnvs
from offbeat.workers.mixture import Mixture, SeatedMixture
from offbeat.workers.policy_faults import network_failed, policy_fault

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class PlayOptions:
    """How the episodes of an evaluation, or its trials, are played."""

    sampled: bool = False
    """Whether to sample actions; else the most likely action is taken."""
    max_steps: int | None = None
    """Limit on env steps in total, at least 1: the evaluation then ends, and what has not ended is cut. None: no
    limit."""
    watch: EnvCallWatch = UNWATCHED
    """Is notified of each env call."""
    on_step: Callable[[int], None] | None = None
    """Is called after each vector step with the number of episodes, or trials, that have ended; may raise to stop."""


DEFAULTS = PlayOptions()


def evaluate(
    policies: Mapping[str, Policy | Mixture],
    envs: EvaluationEnvs,
    *,
    episodes: int,
    seed: int,
    options: PlayOptions = DEFAULTS,
) -> Evaluation:
    """Play `episodes` whole episodes with training progress 1, that is, of the task as at the end of training.

    Args:
        policies: the policies by name, with their weights loaded; of a mixture one is drawn for each episode.
        envs: the columns of these policies in W worlds, from `evaluation_envs`; they are reset first. Episodes that
            `cut_at` of their specs truncates count as cut, with their return so far.
        episodes: number of episodes; world w plays the episodes w, w + W, w + 2 W, ...
        seed: seed of the action sampling, and of the draws of mixtures.
        options: how they are played.

    Raises:
        EnvFailed: an env failed; the message says after how many env steps of the evaluation.
        NetworkFailed: the network of a policy returned NaN or infinity.
    """
    random = stream(seed, "evaluate") if options.sampled else None
    acting = {
        name: EvaluatedColumns(policies[name], columns, derive_seed(seed, "mixture", index))
        for index, (name, columns) in enumerate(envs.columns.items())
    }
    return EvaluationLoop(acting, envs, episodes, random, options).play()


class EvaluationLoop:
    """Steps the envs of one evaluation with its policies."""

    def __init__(
        self,
        acting: Mapping[str, EvaluatedColumns],
        envs: EvaluationEnvs,
        episodes: int,
        random: np.random.Generator | None,
        options: PlayOptions,
    ) -> None:
        self._envs, self._random, self._options = envs, random, options
        self._acting = acting
        self._episodes, self._counter = episodes, envs.counter(episodes)
        self._resets = True
        """Whether an episode may start in the next env call."""

    def play(self) -> Evaluation:
        """Play until all episodes have ended, or `max_steps` env steps have been taken."""
        max_steps, on_step = self._options.max_steps, self._options.on_step
        counter, first = self._counter, next(iter(self._envs.columns.values()))
        self._call_envs(partial(first.set_progress, 1.0))
        for acting in self._acting.values():
            self._call_envs(acting.start)
        while counter.ended < self._episodes and (max_steps is None or counter.env_steps < max_steps):
            self._step()
            if on_step is not None:
                on_step(counter.ended)
        return counter.evaluation()

    def _step(self) -> None:
        """Act in the columns of all policies. The first `recv` steps the worlds, so all policies act before it."""
        for acting in self._acting.values():
            self._call_envs(partial(acting.envs.send, self._action(acting)))
        row = self._envs.row({name: self._call_envs(acting.envs.recv) for name, acting in self._acting.items()})
        self._counter.add(row)
        self._resets = bool(row.over.any())
        for name, acting in self._acting.items():
            acting.receive(row.outcomes[name], row.over)

    def _action(self, acting: EvaluatedColumns) -> Array:
        """Return the next actions of a policy."""
        try:
            return acting.action(self._random)
        except NetworkFailed as error:
            raise network_failed(acting.envs.spec) from error

    def _call_envs(self, call: Callable[[], Returned]) -> Returned:
        """Call the envs, with the watch notified before and after."""
        self._options.watch.enter(resets=self._resets)
        try:
            returned = call()
        except FAILURES as error:
            for acting in self._acting.values():
                acting.explain(error)
            failed = EnvFailed(
                f"an evaluation failed after {self._counter.env_steps} env steps, when {self._counter.ended} of "
                f"{self._episodes} episodes had ended: {_message_of(error)}"
            )
            raise with_notes_of(failed, error) from error
        self._options.watch.leave()
        return returned


class EvaluatedColumns:
    """One policy and its columns: what an action depends on."""

    def __init__(self, policy: Policy | Mixture, envs: Envs, seed: int) -> None:
        """Act in `envs`; `seed`: of the draws of a mixture."""
        self.envs = envs
        agents = len(envs.spec.agents) or 1
        worlds = envs.spec.columns // agents
        self._policy = SeatedMixture(policy, worlds, agents, seed) if isinstance(policy, Mixture) else policy
        self._state = np.zeros((envs.spec.columns, self._policy.state_size), np.float32)
        """Recurrent state of the policy, by column."""
        self._stacks = Stacks(envs.spec.observation, envs.spec.columns)
        self._observation: Tree = {}
        self._actions: Array = np.zeros((0, *envs.spec.action.shape), envs.spec.action.dtype)
        """The last actions, [columns, *shape], in the env's range."""

    def start(self) -> None:
        """Start the first episodes of all columns."""
        self._observation = self._first_observation()
        self._stacks.reset(self._observation)

    def _first_observation(self) -> Tree:
        return self.envs.reset()

    def action(self, random: np.random.Generator | None) -> Array:
        """Return the actions for the env: sampled with this generator; None: the most likely ones."""
        observation, policy = self._stacks.with_stacks(self._observation), self._policy
        if random is None:
            chosen = policy.greedy(observation, self._state)
        else:
            chosen = policy.act(observation, random, self._state).action
        self._actions = policy.to_env(chosen)
        return self._actions

    def explain(self, error: BaseException) -> None:
        """Raise NetworkFailed if an env call failed because the last actions are not finite."""
        if isinstance(error, EnvFailed) and (fault := policy_fault(self._actions, self.envs.spec, 0, error)):
            raise fault from error

    def receive(self, outcome: Outcome, over: Array) -> None:
        """Take the observations of the next row; `over`: the worlds whose episode has ended, [W]."""
        if isinstance(self._policy, SeatedMixture):
            self._policy.end_episodes(over)
        self._state[outcome.resets] = 0
        self._stacks.push(outcome.observation, outcome.resets)
        self._observation = outcome.observation


def _message_of(error: BaseException) -> str:
    return str(error) if isinstance(error, EnvFailed) else type_and_text(error)
