"""The env contract: what every adapter provides, and in which order envs produce their rows.

A row is (observation, action, reward, terminated, truncated, valid). Rows come in NEXT_STEP order: the observation of
the next row *is* the true next observation, also where an episode ends, so no observation is stored twice.

    row t      observation o_t       action a_t   reward r_t   terminated or truncated   valid
    row t + 1  the final observation  (ignored)    0            neither                   not valid: a reset row
    row t + 2  the first observation of the next episode                                  valid

A reset row is neither a decision nor a transition: it enters no loss and no count. A row is never both terminated and
truncated: `terminated` has priority.

In a *row without a decision* the agent has nothing to decide. Such a row is not valid and its action is ignored, but
it belongs to an episode: its reward is credited to the last decision, and it may end the episode. If a reset takes
several rows, all of them are reset rows.

Each library of envs has an `Adapter`, which makes `Envs` from an `EnvRequest`. The table `ADAPTERS` in
`offbeat.config.env` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from offbeat.config.env import EnvConfig, adapter_prefix
from offbeat.core.errors import ConfigError
from offbeat.core.frozen_table import thawed
from offbeat.core.tasks import TaskSample
from offbeat.core.types import ActionSpec, Array, EnvSpec, Leaf, Tree
from offbeat.envs.reproduce import env_flags

State = dict[str, Any]
"""A snapshot: nested dicts and lists of arrays, numbers, strings, booleans and None. Never a pickle."""

EPISODE_START = "episode_start"
"""Key in the infos of a renderable env: whether the next observation starts an episode although the game continues."""

# --- rows ---------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The result of the actions that were sent: the rest of their row, and the observation of the next row.

    The arrays belong to the envs, and the next `recv` of the same group may overwrite them. Copy what you need later.
    """

    observation: Tree
    """name -> [n, *shape], of the next row. A mask, if there is one, allows at least one choice in every row."""
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    """[n]: False in reset rows and in rows without a decision. The env ignored their actions."""
    info: NDArray[np.float64]
    """[n, K]: the values that the env's infos had under the keys of the names in `EnvSpec.info`. NaN where an info had
    none, and in reset rows."""
    over: NDArray[np.bool_] | None = None
    """[n]: where a game ended; None if each episode is a whole game. With `episodic_life`, a lost life ends an episode
    and the game continues. Returns and lengths are those of games: rewards in reset rows are counted, not learned from.
    """
    no_decision: NDArray[np.bool_] | None = None
    """[n]: where the agent had nothing to decide. None: nowhere."""
    env_step: NDArray[np.bool_] | None = None
    """[n]: True in one column of each world that was stepped. None: each env has one agent."""

    @property
    def resets(self) -> NDArray[np.bool_]:
        """[n]: where the row was a reset row, which the first row of an episode follows."""
        return ~self.valid if self.no_decision is None else ~(self.valid | self.no_decision)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """[n]: where the episode or game ended whose return and length are reported."""
        return self.terminated | self.truncated if self.over is None else self.over


class Advanced(NamedTuple):
    """The state of the columns after `Envs.advance`."""

    observation: Tree
    """name -> [N, *shape], the observation for the next actions. It belongs to the envs, as in an `Outcome`."""
    returns: NDArray[np.float64]
    lengths: NDArray[np.int32]
    """[N]: return and env steps so far of the current episode; 0 where the last step ended one."""
    infos: NDArray[np.float64]
    """[N, K]: the numbers so far of the current episode, as in `EpisodeInfos`."""


# --- the envs of one actor ----------------------------------------------------------------------------------


class Envs(Protocol):
    """The columns of one actor, in one or more groups that can be stepped in turn."""

    spec: EnvSpec
    groups: tuple[slice, ...]
    """The columns of each group, in order and without a gap."""

    @property
    def offers_mask(self) -> bool:
        """Whether an info has had an action mask so far, and the spec has none.

        Before a run, `preflight` reads this and `reports_no_decision`. Actors refuse what appears later.
        """
        ...

    @property
    def reports_no_decision(self) -> bool:
        """Whether the infos have marked rows without a decision so far, or rows with one."""
        ...

    @property
    def next_no_decision(self) -> NDArray[np.bool_]:
        """[N]: whether the next row of each column is without a decision."""
        ...

    def set_progress(self, progress: float) -> None:
        """Pass the training progress, from 0 to 1, to the envs that use it. May be called between any two steps.

        Raises:
            EnvFailed: an env raised an exception.
        """
        ...

    def reset(self) -> Tree:
        """Start a new episode in every column; return the first observations, [N, *shape]."""
        ...

    def advance(
        self, steps: NDArray[np.int64], random: np.random.Generator, before_step: Callable[[], None] = lambda: None
    ) -> Advanced:
        """Take `steps[c]` uniform random, allowed actions in column c. Call it directly after `reset`.

        Without it, columns whose episodes have equal lengths would all end in the same rows. These steps are not
        counted and not learned from. If the last one ends an episode, the next row is the reset row.

        The columns of a vector env cannot be stepped separately: all take the largest of their `steps`, and only their
        random actions make their episodes differ.

        Args:
            steps: Number of steps of each column, [N].
            random: Generator of the actions.
            before_step: Called before each step, so that a supervisor sees the progress.

        Raises:
            EnvFailed: as `recv`.
        """
        ...

    def send(self, actions: Array, group: int = 0) -> None:
        """Send recorded actions, [n, *shape], to a group. May return before the group has stepped."""
        ...

    def recv(self, group: int = 0) -> Outcome:
        """Wait for the outcome of the group's last `send`.

        Raises:
            EnvFailed: an env raised an exception, or returned NaN or a wrong shape.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class Snapshots(Protocol):
    """Envs whose complete state, running episodes included, can be saved and restored bit for bit."""

    def snapshot(self) -> State: ...

    def restore(self, state: State) -> None: ...


@runtime_checkable
class TaskEnvs(Envs, Protocol):
    """Envs with tasks, for meta-learning. Adapters make them for a request with `tasks`."""

    def start_tasks(self, tasks: NDArray[np.int64]) -> Tree:
        """Set the task of each column, and start a new episode in every column.

        A column keeps its task until the next call, over all its episodes. Before the first call it has task 0.

        Args:
            tasks: Number of the task of each column, [N], in the order of the `TaskSample` of the request.

        Returns:
            The first observations, as `reset` does.

        Raises:
            EnvFailed: an env raised an exception.
        """
        ...


# --- how adapters make them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """Limits of episodes that are requested in addition to the env's own, in env steps."""

    run: int | None = None
    """`max_episode_steps` of [env]. It is part of the task, so an env that cannot be truncated there is refused."""
    evaluation: int | None = None
    """Where an evaluation cuts an episode. Ignored by an env that cannot be truncated there: the evaluation does it."""

    def shorter_than(self, own: int | None) -> int | None:
        """Return the limit to request from an env whose own limit is `own`; None if its own is short enough."""
        requested = shortest(self.run, self.evaluation)
        return requested if requested is not None and (own is None or requested < own) else None

    def spec_with_limits(self, spec: EnvSpec, own: int | None) -> EnvSpec:
        """Return the spec, with `time_limit` and `cut_at`, of envs whose own limit is `own`."""
        limit = shortest(self.run, own)
        cuts = self.evaluation is not None and (limit is None or self.evaluation < limit)
        return replace(spec, time_limit=limit, cut_at=self.evaluation if cuts else None)


NO_LIMITS = Limits()


def shortest(*limits: int | None) -> int | None:
    """Return the shortest limit; None if there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def frame_skip_of(env: Any) -> int:
    """Return the simulated frames per env step of an env without its wrappers; 1 if its `frame_skip` is no number."""
    declared = getattr(env, "frame_skip", 1)
    return int(declared) if isinstance(declared, Integral) and int(declared) > 0 else 1


@dataclass(frozen=True)
class EnvRequest:
    """The envs that one actor needs."""

    env_id: str
    """Id as the user typed it, with the adapter's prefix."""
    groups: tuple[slice, ...]
    """Columns of each group."""
    seeds: tuple[int, ...]
    """One seed per column. A vector env uses the seed of its first column."""
    settings: EnvConfig
    """The table [env], completed with the defaults of the env."""
    limits: Limits = NO_LIMITS
    info_mask: bool = False
    """Whether to read a leaf 'action_mask' from the infos."""
    tasks: TaskSample | None = None
    """The tasks that the envs can be set to: they are then `TaskEnvs`. None: the envs have one task."""

    @property
    def name(self) -> str:
        """The id without the adapter's prefix."""
        return self.env_id.removeprefix(adapter_prefix(self.env_id))

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments of the env's constructor."""
        return thawed(self.settings.kwargs)

    def constructor_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the constructor: those `given` by settings, and `kwargs`.

        Raises:
            ConfigError: `kwargs` has one of the given ones.
        """
        for name, value in self.kwargs.items():
            if name in given:
                raise ConfigError(
                    f"env.kwargs.{name} is {value!r}, but for {self.env_id} the other keys of [env] determine this "
                    f"argument ({given[name]!r}): leave it out, and set these"
                )
        return {**given, **self.kwargs}

    def spec_of(self, observation: tuple[Leaf, ...], action: ActionSpec, frame_skip: int) -> EnvSpec:
        """Return the spec of these envs; `frame_skip`: simulated frames per env step."""
        settings, columns = self.settings, len(self.seeds)
        flags = env_flags(self.env_id, settings)
        return EnvSpec(self.env_id, observation, action, columns, frame_skip, info=settings.info_metrics, flags=flags)

    def refuse_curriculum(self) -> None:
        """Raise ConfigError if a curriculum is given: for libraries whose envs have no parameters to set."""
        if self.settings.curriculum:
            raise ConfigError(f"curriculum is not supported by {self.env_id}, whose parameters cannot be set: omit it")


class Adapter(Protocol):
    """One library of envs. Its module has an instance of it, named `ADAPTER`.

    A library whose ids have a prefix must know its envs in every process. Only ids without a prefix are sent to other
    processes, as entries of Gymnasium's registry.
    """

    def make(self, request: EnvRequest) -> Envs:
        """Make the envs of one actor. They may be `Snapshots` too.

        Raises:
            ConfigError: there is no such env, a package is missing, or the env does not support a space or a setting.
        """
        ...

    def make_single(self, env_id: str, settings: EnvConfig) -> Any:
        """Return one `gymnasium.Env` with the wrappers and frame skip of the settings, for `offbeat check`; None if the
        env can only be made as a vector env.
        """
        ...

    def make_renderable(self, env_id: str, settings: EnvConfig, render_mode: str) -> Any:
        """Return one env with Gymnasium's `reset`, `step`, `render`, `close` and `metadata`.

        Raises:
            ConfigError: the library renders nothing, or not in this mode ('human', 'rgb_array').
        """
        ...

    def ids(self) -> list[str]:
        """Return the ids, prefixes included, of all envs that can be used here."""
        ...
