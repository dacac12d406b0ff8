"""A trained policy as a function from observations to actions. Normalisation is included."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any

import numpy as np

from offbeat.api.playing.critic import Critic
from offbeat.api.playing.episode_memory import EpisodeMemory
from offbeat.api.playing.inputs import (
    as_recorded,
    flattened,
    per_env,
    require_choice,
    require_same_columns,
    rewards_of,
    single_action,
    stored_leaves,
    with_choices,
)
from offbeat.api.playing.policy_distribution import PolicyDistribution, distribution_of
from offbeat.api.playing.task_memory import TaskMemory
from offbeat.api.playing.trained import Trained
from offbeat.config.arguments import no_attribute
from offbeat.config.other_libraries import other_calls
from offbeat.core.process.threads import one_torch_thread
from offbeat.core.types import F32, INFO_MASK, Array, Tree
from offbeat.envs.actions import action_encoder, split_columns
from offbeat.models.acting import ActingPolicy, require_finite

FEW_ROWS = 16
"""Observations up to which torch computes an action with one thread. Several gain little, and wait for each other when
other programs use the cores: then an action takes a hundred times as long."""


class LoadedPolicy:
    """A function from an observation, or a batch of observations, to the action for the env.

    With a recurrent core, frame stacks, or the previous action or reward as inputs, an action depends on the calls
    before: call `reset` at the start of each episode. A policy that infers its task has a task variable, which is drawn
    at the start of each episode, given all transitions that were passed to `observe` since `reset_task`.

    Several threads may call one policy at once if an action does not depend on the calls before (`remembers` is False).
    A policy that remembers has one memory: give each thread its own policy, `copy.deepcopy(policy)`, and call `reset`.
    """

    def __init__(self, acting_policy: ActingPolicy, trained: Trained, critic: Critic | None = None) -> None:
        # Internal: the network with its weights, and how it chooses actions; without a memory of the calls before.
        self.acting_policy = acting_policy
        self.trained = trained
        """The env and the algorithm that the policy was trained with, and the progress of the training."""
        self._critic = critic
        self._encode = action_encoder(acting_policy.spec.action)
        self._tasks = None if acting_policy.spec.context_encoder is None else TaskMemory(acting_policy)
        self.reset()

    def reset(self, ended: Any = None, *, prior: bool = False) -> None:
        """Start a new episode: in every env, or in those where `ended`, [N] bool, is true.

        Args:
            ended: None means every env.
            prior: for a policy that infers its task: whether to draw the task variable from the prior, as in the first
                episodes of an evaluation, whatever was observed.

        Raises:
            ValueError: `ended` has another number of envs than the calls before.
        """
        if ended is None:
            self._memory: EpisodeMemory | None = None
        elif self._memory is not None:
            self._memory.reset(per_env("ended", ended, len(self._memory.state)))
        if self._tasks is not None:
            self._tasks.start_episodes(ended, prior=prior)

    def reset_task(self, random: np.random.Generator | None = None) -> None:
        """Forget the task in all envs, and start new episodes.

        Args:
            random: draws the task variables from now on; None: a new generator with the seed 0.

        Raises:
            TypeError: the policy does not infer its task.
        """
        self._task_memory().forget(random)
        self.reset()

    def observe(self, observation: Any, action: Any, reward: Any, next_observation: Any, *, where: Any = None) -> None:
        """Add a transition of each env to what is known about its task. It counts from the next `reset` on.

        Args:
            observation: as returned by the env, for one env or for N.
            action: the action for the env, as this policy has returned it.
            reward: the reward of the env; for N envs, [N].
            next_observation: the observation after the action.
            where: the envs whose transition counts, [N] bool; None: all.

        Raises:
            TypeError: the policy does not infer its task.
            ValueError: a shape is not that of the training, the numbers of envs differ, the action is not one of the
                env's choices, or a number is not finite.
        """
        memory = self._task_memory()
        leaves, single = self._observed_leaves(observation)
        following, is_one = self._observed_leaves(next_observation)
        recorded = as_recorded(self.acting_policy, [action] if single else action)
        require_same_columns(
            {
                "observation": None if single else _envs_of(leaves),
                "action": len(recorded) if recorded.ndim and not single else None,
                "next_observation": None if is_one else _envs_of(following),
            }
        )
        rewards = rewards_of(reward, _envs_of(leaves))
        memory.observe(leaves, recorded, rewards, following, where)

    def _task_memory(self) -> TaskMemory:
        if self._tasks is None:
            raise TypeError(f"this policy of {self.trained.algorithm} does not infer its task: leave this call out")
        return self._tasks

    def __repr__(self) -> str:
        """Return one line: the algorithm, the env, and how long it was trained."""
        trained = self.trained
        return f"LoadedPolicy({trained.algorithm} on {trained.env}, env_steps={trained.env_steps})"

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that does not exist."""
        raise no_attribute(self, name)

    @property
    def remembers(self) -> bool:
        """Whether an action depends on previous calls."""
        spec = self.acting_policy.spec
        of_rows_before = any(leaf.stack > 1 or leaf.is_previous for leaf in spec.observation)
        return spec.recurrent or of_rows_before or spec.context_encoder is not None

    def __call__(
        self,
        observation: Any,
        *,
        reward: Any = None,
        action_mask: Any = None,
        no_decision: bool = False,
        random: np.random.Generator | None = None,
        **others: object,
    ) -> Any:
        """Select an action.

        Args:
            observation: as returned by the env, for one env or for N: an array, or dicts and tuples of arrays.
            reward: the reward, or [N], since the last call. Needed if the policy was trained with `previous_reward`,
                except in the first call of an episode; else ignored.
            action_mask: the value of this key in the env's info, if the policy was trained with it; else None.
            no_decision: whether the agents have nothing to decide, so that their actions are ignored. Only the memory
                of the policy needs such a call.
            random: sample with this generator; None takes the most likely action.
            others: refused, in words if another library has arguments of these names.

        Returns:
            The action for one env (an int for Discrete), or for N envs: [N, *shape], in the dicts and tuples of the
            env.

        Raises:
            ValueError: the observation has NaN or infinity, or does not have the shape, the dtype or the choices of the
                training; the mask allows nothing, or is not one that the policy has; or a reward is missing.
            NetworkFailed: the network returned NaN or infinity.
            TypeError: an argument is unknown, or `random` is no generator.
        """
        if others or not (random is None or isinstance(random, np.random.Generator)):
            raise _wrong_argument(others, random)
        leaves, single = self._with_allowed(observation, action_mask, no_decision=no_decision)
        memory = self._memory = self._memory_of(_envs_of(leaves))
        inputs, state, policy = memory.inputs(leaves, reward), memory.state, self.acting_policy
        if self._tasks is not None:
            inputs = self._tasks.with_task(inputs)
        with self._threads(state):
            action = policy.greedy(inputs, state) if random is None else policy.act(inputs, random, state).action
        sent = policy.to_env(action)
        memory.add_actions(sent, decided=not no_decision)
        chosen = self._encode(sent)
        return single_action(next(iter(split_columns(policy.spec.action, chosen)))) if single else chosen

    def value(self, observation: Any, *, reward: Any = None, action_mask: Any = None, no_decision: bool = False) -> Any:
        """Return the value of an observation: the discounted return that the training estimated from there on.

        It is in units of the reward that was learned from, with `reward_scale` and `clip_rewards`. PPO, A2C and IMPALA
        have a critic for it; with DQN it is the value of the best allowed choice. With a memory, the value is that of
        the observation as the next one of the episode, and the memory does not change: call the policy afterwards.

        Args:
            observation: as in a call, for one env or for N.
            reward: as in a call.
            action_mask: as in a call.
            no_decision: as in a call.

        Returns:
            A float for one env, or [N] for N envs.

        Raises:
            TypeError: the policy has no values of observations.
            ValueError: as a call.
            NetworkFailed: the network returned NaN or infinity.
        """
        policy, critic = self.acting_policy, self._critic
        takes_best = policy.spec.distribution == "epsilon_greedy"
        if not takes_best and (critic is None or critic.network is None):
            raise _no_values(self.trained.algorithm, learns_from_replay=not policy.spec.records_log_prob)
        inputs, state, single = self._next_inputs(observation, reward, action_mask, no_decision=no_decision)
        with self._threads(state):
            if takes_best or critic is None:
                values = policy.parameters(inputs, state).max(axis=1)
            else:
                values = critic.values(inputs, state, no_decision=no_decision)
        require_finite(values)
        return float(values[0]) if single else values

    def distribution(self, observation: Any, *, reward: Any = None, action_mask: Any = None) -> PolicyDistribution:
        """Return how the policy samples its action: the probabilities of choices, and Gaussians of continuous numbers.

        As with `value`, the memory does not change. In the warm-up of a replay, sampled actions are uniform instead.

        Args:
            observation: as in a call, for one env or for N.
            reward: as in a call.
            action_mask: as in a call.

        Raises:
            TypeError: the policy has no probabilities: that of DQN and of TD3.
            ValueError: as a call.
            NetworkFailed: the network returned NaN or infinity.
        """
        policy = self.acting_policy
        if policy.spec.distribution in ("epsilon_greedy", "deterministic"):
            raise TypeError(
                f"this policy of {self.trained.algorithm} has no probabilities: it takes the best action, and explores "
                "at random while it is trained"
            )
        inputs, state, single = self._next_inputs(observation, reward, action_mask)
        with self._threads(state):
            parameters = policy.parameters(inputs, state)
        require_finite(parameters)
        found = distribution_of(policy, parameters)
        return found.of_one() if single else found

    def _next_inputs(
        self, observation: Any, reward: Any, action_mask: Any, *, no_decision: bool = False
    ) -> tuple[Tree, F32, bool]:
        """Return the inputs of the network and its state for the next observation, without a change of the memory.

        Also return whether the observation was that of one env. Arguments and errors are as in `__call__`.
        """
        leaves, single = self._with_allowed(observation, action_mask, no_decision=no_decision)
        # The copy of a memory also draws the same task variable as the next call.
        memory, tasks = deepcopy(
            (self._memory_of(_envs_of(leaves)), self._tasks), {id(self.acting_policy): self.acting_policy}
        )
        inputs = memory.inputs(leaves, reward)
        return inputs if tasks is None else tasks.with_task(inputs), memory.state, single

    def _with_allowed(self, observation: Any, action_mask: Any, *, no_decision: bool) -> tuple[Tree, bool]:
        """Return the result of `leaves`, with a mask that allows a choice; arguments and errors as in `__call__`."""
        leaves, single = self.leaves(observation, action_mask)
        if (mask := self.acting_policy.spec.mask) is not None:
            if no_decision:
                leaves[mask] = with_choices(leaves[mask], self.acting_policy.spec.action.nvec)
            require_choice(leaves[mask], self.acting_policy.spec.action.nvec)
        return leaves, single

    def _threads(self, state: F32) -> AbstractContextManager[None]:
        """Return the context in which the network of these columns is computed."""
        in_numpy = self.acting_policy.spec.plain
        return nullcontext() if in_numpy or len(state) > FEW_ROWS else one_torch_thread()

    def leaves(self, observation: Any, action_mask: Any = None) -> tuple[Tree, bool]:
        """Return the env's leaves, [N, *shape] by name, and whether the observation was that of one env.

        The policy's other leaves, the previous action and reward, are not among them. Arguments and errors are as in
        `__call__`.
        """
        own = [leaf for leaf in self.acting_policy.spec.observation if not leaf.is_previous]
        if action_mask is not None and not self.acting_policy.spec.info_mask:
            where = "with masks in its observations" if self.acting_policy.spec.mask else "without masks"
            raise ValueError(f"an action_mask is given, but this policy was trained {where}: leave action_mask out")
        return stored_leaves({**self._leaves_of(observation), INFO_MASK: action_mask}, own)

    def _observed_leaves(self, observation: Any) -> tuple[Tree, bool]:
        """Return the leaves from which the task is inferred, as `leaves` does. A mask is not one of them."""
        return stored_leaves(self._leaves_of(observation), self.acting_policy.spec.observed_vectors)

    def encode(self, action: Array) -> Any:
        """Return the env's actions, [N, *shape] in its dicts and tuples, for N actions of the policy."""
        return self._encode(self.acting_policy.to_env(action))

    def _memory_of(self, envs: int) -> EpisodeMemory:
        """Return the memory of N envs: that of the calls before, or a new one."""
        memory = self._memory
        if memory is None or not (self.remembers or len(memory.state) == envs):
            memory = EpisodeMemory(self.acting_policy.spec, envs)
        if len(memory.state) != envs:
            raise ValueError(
                f"{envs} observations are given, but the policy has the memory of {len(memory.state)} envs: "
                "call reset() before a call with another number of envs"
            )
        return memory

    def _leaves_of(self, observation: Any) -> Tree:
        """Return the arrays of an observation by leaf."""
        return dict(flattened("observation", observation, {leaf.name for leaf in self.acting_policy.spec.observation}))


def _envs_of(leaves: Tree) -> int:
    """Return N of leaves [N, *shape] by name."""
    return len(next(iter(leaves.values())))


def _no_values(algorithm: str, *, learns_from_replay: bool) -> TypeError:
    """Return the error for a policy that has no values of observations."""
    if learns_from_replay:
        why = "its critics give values of actions, which only its training needs"
    else:
        why = (
            "its weights have no critic of offbeat's. Those of a checkpoint of a run have one; a snapshot of a league, "
            "and a policy of the hub, are without it"
        )
    return TypeError(f"this policy of {algorithm} has no values of observations, because {why}")


def _wrong_argument(others: Mapping[str, object], random: object) -> TypeError:
    """Return the error for unknown arguments of a call, or for a `random` that is no generator."""
    for name in others:
        hint = f": {other_calls()[name]}" if name in other_calls() else ""
        known = "observation, reward, action_mask, no_decision and random"
        return TypeError(f"unknown argument {name!r}{hint}. A policy is called with {known}")
    return TypeError(
        f"random is {random!r}, but a generator is expected: pass random=np.random.default_rng(1) to sample, or leave "
        "it out for the most likely action"
    )
