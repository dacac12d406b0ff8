"""Episodes that are rendered after each env step: of a policy in an env, or of several policies in a world.

A policy that infers its task plays the episodes of a trial in a test task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from offbeat.api.playing.env_fit import INSTALL_TRAINED, policies_missing
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.policies_to_play import trained_of
from offbeat.core.errors import FAILURES, ConfigError, OffbeatError, type_and_text, with_traceback_of
from offbeat.core.seeding import stream
from offbeat.core.types import INFO_MASK, NO_DECISION
from offbeat.envs.adapters.gymnasium.tasks import TaskSetter
from offbeat.envs.contract import EPISODE_START
from offbeat.envs.failures import failed
from offbeat.envs.space_generators import seed_spaces
from offbeat.envs.worlds.contract import ReportsLater, World, WorldStep
from offbeat.league.drawn_policies import policy_of_agents, rotate_policies, sides_of_policies


class EnvEpisode:
    """One episode of a policy in an env with one agent."""

    def __init__(
        self, env: Any, policies: Mapping[str, LoadedPolicy], seed: int, max_steps: int, *, in_window: bool = False
    ) -> None:
        ((self._name, given),) = policies.items()
        self._policy = LoadedPolicy(given.acting_policy, given.trained)  # the caller's one keeps its memory
        self._seed, self._max_steps = seed, max_steps
        self._call = _Calls(env, self._policy.trained.env, "env", in_window)
        self.returns, self.length, self.ended = {self._name: 0.0}, 0, False
        self.earlier_returns: list[float] = []
        """The returns of the episodes of a trial before the last one that was started."""

    def frames(self) -> Iterator[Any]:
        """Play the episode and yield the rendered frame of each env step."""
        self._policy.reset()
        yield from self._episode(self._seed)

    def _episode(self, seed: int | None) -> Iterator[Any]:
        """Play an episode up to its end, or to the limit of all env steps; yield the frames."""
        if seed is not None and isinstance(self._call.env, gym.Env):
            seed_spaces(self._call.env, seed)
        observation, info = self._call("reset", seed=seed)
        reward: Any = 0.0
        yield self._call("render")
        while not self.ended and self.length < self._max_steps:
            before, no_decision = observation, bool(info.get(NO_DECISION))
            action = act(self._policy, observation, reward, info.get(INFO_MASK), no_decision=no_decision)
            observation, reward, terminated, truncated, info = self._call("step", action)
            self._take(before, action, float(reward), observation)
            self.ended = bool(terminated or truncated)
            if info.get(EPISODE_START):
                self._policy.reset()
            yield self._call("render")

    def _take(self, before: Any, action: Any, reward: float, observation: Any) -> None:  # noqa: ARG002
        """Add the result of an env step."""
        self.returns[self._name] += reward
        self.length += 1


class TrialEpisodes(EnvEpisode):
    """The episodes of a trial in one test task; its number is the seed, counted from the first task."""

    def __init__(
        self, env: Any, policies: Mapping[str, LoadedPolicy], seed: int, max_steps: int, *, in_window: bool = False
    ) -> None:
        super().__init__(env, policies, seed, max_steps, in_window=in_window)
        trials = self._policy.trained.trials
        assert trials is not None
        self._trials = trials
        tasks = TaskSetter([env], trials.tasks, self._policy.trained.env)
        tasks.set(np.array([trials.tasks.train + seed % trials.tasks.test]))

    def frames(self) -> Iterator[Any]:
        """Play the episodes and yield the rendered frame of each env step."""
        self._policy.reset_task(stream(self._seed, "trials", 0))
        for episode in range(self._trials.episodes):
            if episode:
                self.earlier_returns.append(self.returns[self._name])
                self.returns[self._name], self.ended = 0.0, False
            self._policy.reset(prior=episode < self._trials.prior_episodes)
            yield from self._episode(None if episode else self._seed)
            if not self.ended:
                return

    def _take(self, before: Any, action: Any, reward: float, observation: Any) -> None:
        super()._take(before, action, reward, observation)
        self._policy.observe(before, action, reward, observation)


class WorldEpisode:
    """One episode of all policies of a run in a world with several agents."""

    def __init__(
        self, world: World, policies: Mapping[str, LoadedPolicy], seed: int, max_steps: int, *, in_window: bool = False
    ) -> None:
        """Prepare the episode.

        Raises:
            ConfigError: no policy is given for an agent of the world.
        """
        self._seed, self._max_steps = seed, max_steps
        trained = trained_of(policies)
        self._id, self._limit = trained.env, trained.env_config.max_episode_steps
        self._call = _Calls(world, self._id, "world", in_window)
        self._policies = {  # agents of one policy have a memory each
            agent: LoadedPolicy(policies[name].acting_policy, policies[name].trained)
            for agent, name in _policy_of_agents(policies, seed).items()
        }
        if missing := [agent for agent in world.agents if agent not in self._policies]:
            raise policies_missing(self._id, missing)
        self._over: set[str] = set()
        """Agents whose episodes have ended."""
        self.returns, self.length, self.ended = dict.fromkeys(world.agents, 0.0), 0, False
        self.earlier_returns: list[float] = []

    def frames(self) -> Iterator[Any]:
        """Play the episode and yield the rendered frame of each step of the world."""
        step = self._call("reset", self._seed)
        yield self._call("render")
        while not self.ended and self.length < self._max_steps:
            step = self._call("step", self._actions(step))
            self._add(step.rewards)
            ends = {**step.terminations, **{agent: True for agent, cut in step.truncations.items() if cut}}
            self._over |= {agent for agent, ended in ends.items() if ended}
            self.length += 1
            self.ended = step.over or self.length == self._limit
            yield self._call("render")
        if not step.over and isinstance(self._call.env, ReportsLater):
            self._add(self._call("unreported_rewards"))

    def _add(self, rewards: Mapping[str, float]) -> None:
        """Add rewards of a step to the returns."""
        for agent, reward in rewards.items():
            self.returns[agent] += float(reward)

    def _actions(self, step: WorldStep) -> dict[str, Any]:
        """Return the actions of the agents that choose one.

        The memory of a policy also gets the observations of an agent while it waits for its turn, as in training.
        """
        actions = {}
        for agent, observation in step.observations.items():
            policy, decides = self._policies[agent], agent in step.deciding
            if agent in self._over or not (decides or policy.remembers):
                continue
            mask = step.infos.get(agent, {}).get(INFO_MASK)
            if mask is None and not decides:
                mask = np.ones(sum(policy.acting_policy.spec.action.nvec), np.bool_)
            action = act(policy, observation, step.rewards.get(agent, 0.0), mask, no_decision=not decides)
            if decides:
                actions[agent] = action
        return actions


def _policy_of_agents(policies: Mapping[str, LoadedPolicy], seed: int) -> dict[str, str]:
    """Return the policy of each agent in the episode with this seed."""
    if sides := sides_of_policies({name: policy.trained.sides for name, policy in policies.items()}):
        return policy_of_agents(sides, rotate_policies(sides, seed))
    return {agent: name for name, policy in policies.items() for agent in policy.trained.agents}


def act(policy: LoadedPolicy, observation: Any, reward: Any, mask: Any, *, no_decision: bool = False) -> Any:
    """Return the most likely action; `mask` is ignored if the policy was trained without masks in infos.

    Raises:
        ConfigError: the observation does not have the shape of the training.
    """
    mask = mask if policy.acting_policy.spec.info_mask else None
    try:
        return policy(observation, reward=reward, action_mask=mask, no_decision=no_decision)
    except ValueError as error:
        raise ConfigError(
            f"the policy does not fit the installed version of {policy.trained.env} ({error}): {INSTALL_TRAINED}"
        ) from error


@dataclass(frozen=True)
class _Calls:
    """Calls the methods of an env, or of a world, that is shown."""

    env: Any
    env_id: str
    unit: Literal["env", "world"]
    in_window: bool
    """Whether a window is open. Then each method may render, so each may fail because it cannot."""

    def __call__(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method.

        Raises:
            ConfigError: the env cannot be rendered.
            EnvFailed: its reset() or step() raised an exception.
        """
        try:
            return getattr(self.env, method)(*arguments, **named)
        except OffbeatError:
            raise
        except FAILURES as error:
            if self.in_window or method == "render":
                raise cannot_render(self.env_id, error) from error
            what = f"{method}() raised {type_and_text(error)}"
            raise failed(self.env_id, 0, what, error, unit=self.unit) from error


def cannot_render(env_id: str, error: BaseException) -> ConfigError:
    """Return the error for an env that cannot be rendered."""
    refused = ConfigError(
        f"{env_id} cannot be rendered here ({type_and_text(error)}). An env of your own needs a render_mode "
        'argument and render(). Missing packages may be in pip install "offbeat[video]". MuJoCo without a screen needs '
        "MUJOCO_GL=egl or MUJOCO_GL=osmesa"
    )
    return with_traceback_of(refused, error)
