"""The episodes of an evaluation: returns and lengths by agent, and the counter that adds them up.

An episode is one of a world: it starts with the world's reset and ends when no agent is left. An env with one agent is
a world with one column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from offbeat.core.info_names import reduction_of, score_of
from offbeat.envs.contract import Outcome
from offbeat.envs.episode_infos import EpisodeInfos

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Episodes:
    """Returns and lengths of some agents: those of one policy, or all. Returns are undiscounted and unclipped."""

    returns: NDArray[np.float64]
    """[n]: of each agent in each episode that it took part in, episode by episode. With one agent, n = episodes."""
    lengths: NDArray[np.int64]
    """[n]: decisions of these agents in these episodes. With one agent, env steps."""
    team_returns: NDArray[np.float64]
    """[episodes]: sum over the agents."""
    team_sizes: NDArray[np.int64]
    """[episodes]: number of agents that took part."""
    infos: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), kw_only=True)
    """[n, K]: the number of each agent in each episode, for names in the infos with a reduction; NaN for the others,
    and where there is none. Of joined agents there are none."""
    info: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """The scores of the numbers in the infos, by name (see `core/info_names.py`): their means over all rows of these
    episodes that had one or, of names with a reduction, over the episodes. A number that no row had is missing."""

    @classmethod
    def joined(cls, parts: Sequence[Episodes]) -> Episodes:
        """Join different agents in the same episodes, without the numbers in their infos."""
        episodes = [np.repeat(np.arange(len(part.team_sizes)), part.team_sizes) for part in parts]
        order = np.argsort(np.concatenate(episodes), kind="stable")
        return cls(
            np.concatenate([part.returns for part in parts])[order],
            np.concatenate([part.lengths for part in parts])[order],
            np.sum([part.team_returns for part in parts], axis=0),
            np.sum([part.team_sizes for part in parts], axis=0),
        )

    @property
    def return_mean(self) -> float | None:
        """Mean return of an agent in an episode; None if no agent took part in any, as the next four."""
        return float(self.returns.mean()) if self.returns.size else None

    @property
    def return_std(self) -> float | None:
        """Standard deviation of the returns."""
        return float(self.returns.std()) if self.returns.size else None

    @property
    def return_min(self) -> float | None:
        return float(self.returns.min()) if self.returns.size else None

    @property
    def return_max(self) -> float | None:
        return float(self.returns.max()) if self.returns.size else None

    @property
    def length_mean(self) -> float | None:
        return float(self.lengths.mean()) if self.lengths.size else None

    @property
    def team_return_mean(self) -> float:
        """Mean over the episodes of the sum over the agents."""
        return float(self.team_returns.mean())


@dataclass(frozen=True)
class Evaluation(Episodes):
    """The episodes of all agents: those that ended, and those that a limit cut, with their return so far.

    There is at least one; of trials there may be none, if a limit came before the last episode of each.
    """

    policies: Mapping[str, Episodes]
    """The same episodes by policy: those of its agents."""
    cut: int
    """Number of these episodes that were cut."""
    not_begun: int
    """Requested episodes that were not started, because the limit on env steps in total was reached before; with tasks,
    trials whose last episode was not started."""
    env_steps: int
    """Env steps taken in all worlds, also in worlds that had already played all their episodes."""
    adaptation: NDArray[np.float64] | None = field(default=None, kw_only=True)
    """[trials, episodes]: the returns of all episodes of each trial in a test task, NaN where one was not started, or
    ended with the evaluation before the last episode. The scores above are then those of the last episodes. None: the
    env has no tasks."""

    @property
    def episodes(self) -> int:
        """Number of episodes; with tasks, of trials whose last episode was started."""
        return len(self.team_returns)

    @property
    def returns_by_episode(self) -> list[tuple[float, float]]:
        """Mean and standard deviation over the trials of the return of each episode; empty if the env has no tasks.

        An episode that counts in no trial is left out.
        """
        columns = () if self.adaptation is None else self.adaptation.T
        counted = (column[np.isfinite(column)] for column in columns)
        return [(float(column.mean()), float(column.std())) for column in counted if column.size]

    @property
    def cuts(self) -> str:
        """A message about episodes, or trials, that did not end; empty if all ended."""
        if not self.cut and not self.not_begun:
            return ""
        if self.adaptation is None:
            what, where, missing = "episodes", "", "were not started"
        else:
            what, where, missing = "trials", " in the last episode", "did not reach it"
        played = self.episodes
        rest = f" and {self.not_begun} {missing}" if self.not_begun else ""
        return f"of {played + self.not_begun} {what} {played - self.cut} ended, {self.cut} were cut{where}{rest}"

    def of(self, policies: Sequence[str]) -> Episodes:
        """Return the episodes of the agents of some policies."""
        return Episodes.joined([self.policies[policy] for policy in policies])


class WorldsRow(NamedTuple):
    """What the last step of W worlds returned."""

    outcomes: Mapping[str, Outcome]
    """The columns of each policy, those of one world next to each other."""
    stepped: NDArray[np.bool_]
    """[W]: whether the world was stepped, and not reset."""
    over: NDArray[np.bool_]
    """[W]: whether the episode of the world ended in this row."""


class EpisodeCounter:
    """Adds up returns and lengths by episode. Worlds that have played all their episodes are not counted."""

    def __init__(
        self,
        episodes: int,
        worlds: int,
        agents: Mapping[str, int],
        cut_at: int | None,
        info: Sequence[str] = (),
        *,
        cuts_itself: bool = False,
    ) -> None:
        """Make a counter.

        Args:
            episodes: number of episodes; world w of W plays the episodes w, w + W, w + 2 W, ...
            worlds: number of worlds.
            agents: number of columns that each policy has in a world.
            cut_at: step of an episode at which a limit of the evaluation truncates it; None: there is none.
            info: names of the numbers in the infos: `EnvSpec.info`.
            cuts_itself: whether the envs cannot truncate an episode at `cut_at`: the counter then cuts it there, and
                the rest of it does not count.
        """
        self.ended = 0
        """Number of episodes that have ended, or were cut."""
        self.env_steps = 0
        """Number of env steps of all worlds."""
        self._sums = {policy: _Sums(episodes, count, info) for policy, count in agents.items()}
        self._info_names = info
        self._started = np.zeros(episodes, np.bool_)
        """[episodes]: whether an env step has been taken in the episode."""
        self._truncated = 0
        """Number of ended episodes that the step limit `cut_at` truncated."""
        self._truncates_at = None if cuts_itself else cut_at
        self._cuts_at = cut_at if cuts_itself else None
        self._is_rest = np.zeros(worlds, np.bool_)
        """Whether a world plays the rest of an episode that this counter has cut."""
        self._elapsed = np.zeros(worlds, np.int64)
        """Rows since the start of each world's episode or game, including the reset rows after a lost life."""
        self._episode = np.arange(worlds)
        """Number of the current episode, by world."""
        self._set_counted()

    def _set_counted(self) -> None:
        """Set which worlds play an episode that counts."""
        self._counted = (self._episode < len(self._started)) & ~self._is_rest
        self._current = self._episode[self._counted]
        for sums in self._sums.values():
            sums.set_counted(self._current, self._counted)

    def add(self, row: WorldsRow) -> None:
        """Add a row of all worlds."""
        counted, over = self._counted, row.over
        self._elapsed += 1
        self.env_steps += int(np.count_nonzero(row.stepped))
        for policy, sums in self._sums.items():
            sums.add(row.outcomes[policy])
        self._started[self._current] |= row.stepped[counted]
        if self._cuts_at is not None:
            self._cut(counted & ~over & (self._elapsed >= self._cuts_at))
        if not over.any():
            return
        self.ended += int((over & counted).sum())
        if self._truncates_at is not None:
            at_limit = self._elapsed >= self._truncates_at
            self._truncated += int((at_limit & over & self._truncates(row) & counted).sum())
        self._episode[over] += len(self._episode)
        self._elapsed[over] = -1  # the next row is the reset row
        self._is_rest[over] = False
        self._set_counted()

    def _cut(self, worlds: NDArray[np.bool_]) -> None:
        """Cut the episodes of some worlds, [W]: the following rows of these do not count."""
        if worlds.any():
            self.ended += int(worlds.sum())
            self._truncated += int(worlds.sum())
            self._is_rest |= worlds
            self._set_counted()

    def _truncates(self, row: WorldsRow) -> NDArray[np.bool_]:
        """Return the worlds that the row truncates, [W]: it truncates an agent there, or terminates none.

        A row that ends a world and does neither is a reset row after a lost life, in which the game was truncated.
        """
        truncates = np.zeros(len(row.over), np.bool_)
        terminates = np.zeros_like(truncates)
        for policy, sums in self._sums.items():
            outcome = row.outcomes[policy]
            truncates |= sums.by_world(outcome.truncated).any(axis=1)
            terminates |= sums.by_world(outcome.terminated).any(axis=1)
        return truncates | ~terminates

    def evaluation(self) -> Evaluation:
        """Return the evaluation: the episodes that have ended and the unfinished ones, which count as cut."""
        started = self._started
        policies = {policy: sums.episodes(started) for policy, sums in self._sums.items()}
        total = Episodes.joined(list(policies.values()))
        return Evaluation(
            total.returns,
            total.lengths,
            total.team_returns,
            total.team_sizes,
            policies,
            cut=self._truncated + int(started.sum()) - self.ended,
            not_begun=int((~started).sum()),
            env_steps=self.env_steps,
            info=info_means(self._info_names, np.sum([sums.info for sums in self._sums.values()], axis=0)),
        )


class _Sums:
    """Returns and lengths of the agents of one policy, by episode."""

    def __init__(self, episodes: int, agents: int, info: Sequence[str]) -> None:
        self._agents, self._info_names = agents, info
        size = episodes * agents
        self._returns, self._lengths = np.zeros(size), np.zeros(size, np.int64)
        self._of_rows = np.zeros((2, len(info)))
        """[2, K]: sums and counts of the numbers in the infos of all rows."""
        self._of_episodes = EpisodeInfos(info, size)
        self._took_part = np.zeros(size, np.bool_)
        """[episodes * agents], as the two above: whether the agent was there in at least one row."""
        self._numbers = np.arange(agents)
        self._columns, self._cells = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        """[W * agents]: the columns that count; and the element of the arrays above that each of them adds to."""

    def by_world(self, columns: NDArray[Number]) -> NDArray[Number]:
        """Return the part of a row, [W * agents], as [W, agents]; likewise of episodes."""
        return columns.reshape(-1, self._agents)

    def set_counted(self, episode: NDArray[np.int64], counted: NDArray[np.bool_]) -> None:
        """Set which worlds count, [W], and the number of the current episode of each of these."""
        self._columns = counted.repeat(self._agents)
        self._cells = (self._agents * episode[:, None] + self._numbers).ravel()

    def add(self, outcome: Outcome) -> None:
        """Add a row of all columns."""
        columns, cells = self._columns, self._cells
        self._returns[cells] += outcome.reward[columns]
        self._lengths[cells] += outcome.valid[columns]
        self._took_part[cells] |= ~outcome.resets[columns]
        if self._info_names:
            self._of_rows += sums_and_counts(outcome.info[columns]).sum(axis=1)
            self._of_episodes.add(outcome.info[columns], cells)

    @property
    def info(self) -> NDArray[np.float64]:
        """[2, K]: sums and counts of the numbers in the infos, of rows or of episodes."""
        return sums_by_name(self._info_names, self._of_rows, self._of_episodes.numbers)

    def episodes(self, started: NDArray[np.bool_]) -> Episodes:
        """Return the episodes that were started."""
        took_part, returns = self._took_part, self._returns
        return Episodes(
            returns[took_part],
            self._lengths[took_part],
            self.by_world(returns)[started].sum(axis=1),
            self.by_world(took_part)[started].sum(axis=1),
            infos=self._of_episodes.numbers[took_part],
            info=info_means(self._info_names, self.info),
        )


# --- the numbers in the infos ---------------------------------------------------------------------------------


def sums_and_counts(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what each info adds to the sums and counts of its numbers, [2, ..., K].

    `numbers`: [..., K]; NaN where an info had none.
    """
    present = np.isfinite(numbers)
    return np.array([np.where(present, numbers, 0.0), present], np.float64)


def sums_by_name(
    names: Sequence[str], of_rows: NDArray[np.float64], numbers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sums and counts of the numbers in the infos, [2, K]: for names with a reduction those of episodes.

    Args:
        names: K names of `info_metrics`.
        of_rows: sums and counts over rows, [2, K].
        numbers: the numbers of episodes, [n, K], as in `EpisodeInfos`.
    """
    is_reduced = [bool(reduction_of(name)) for name in names]
    return np.where(is_reduced, sums_and_counts(numbers).sum(axis=1), of_rows)


def info_means(names: Sequence[str], sums: NDArray[np.float64]) -> dict[str, float]:
    """Return the scores of the numbers in the infos, by name; `sums`: their sums and counts, [2, K]."""
    return {score_of(name): float(total / count) for name, total, count in zip(names, *sums, strict=True) if count}
