"""The table [league]: self-play against earlier snapshots of the policies.

`offbeat.league` has the functions that these settings belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from offbeat.core.errors import ConfigError
from offbeat.core.fields import Bound, Count, Name, Natural, Positive, Share, in_short

LEAGUE = "league."
"""Prefix of the keys of this table on the command line and in the settings of a spec file."""
Opponents = Literal["uniform", "latest", "prioritized"]
Weighting = Literal["squared", "variance", "linear"]


@dataclass(frozen=True)
class LeagueConfig:
    """Self-play: which opponents are drawn, when snapshots are taken, who learns, and how ratings are computed."""

    sides: tuple[Name, ...] = ()
    """A pattern for each side of the game, which matches the names of its agents: red_*,blue_*. Empty: with one policy,
    each agent is a side; with several, the agents of each policy are a side."""
    draw_policies: bool = False
    """Draw the policy of each side at the start of each episode, among those whose patterns match all agents of the
    side. All are equally likely. Otherwise an agent belongs to the first policy that matches, for the whole run."""
    opponents: Opponents = "uniform"
    """How a snapshot is drawn. uniform: all snapshots of the window are equally likely. prioritized: by `weighting`.
    latest: none is drawn, opponents are always the newest policies. The default is uniform because it needs no results:
    in games without a clear winner, win rates contain little information."""
    latest_ratio: Share = 0.5
    """Probability that an opponent is the newest policy itself. Otherwise it is a snapshot. With 0.5, half of the data
    is against the newest opponent, and half against earlier ones, so that a policy does not forget how to beat them."""
    window: Count = 10
    """Number of newest snapshots of each policy that opponents are drawn from. Memory must hold them all."""
    snapshot_every: Count = 50
    """Learning steps between snapshots. With the default topology, 50 learning steps are about 51,000 env steps per
    actor with PPO, and 13,000 with A2C and IMPALA: enough that successive snapshots play differently."""
    keep_all: bool = False
    """Keep all snapshots on disk, for `offbeat match`. Otherwise only those of the window are kept: a long run takes
    hundreds."""
    weighting: Weighting = "squared"
    """Weight of a snapshot for `opponents=prioritized`, where x is the win rate against it. squared: (1 - x)^2, prefers
    the strongest opponents. variance: x (1 - x), prefers equal ones. linear: 1 - x. If all weights are about 0, all
    snapshots are equally likely. squared is the default, as in AlphaStar."""
    team_change_every: Natural = 0
    """Learning steps after which the next policy learns and the others stay as they are. 0: all policies learn in each
    learning step. The default uses all data. Turns help if policies that change together do not converge."""
    outcome: Name = ""
    """Number in the env's infos at the end of an episode that is the result of a side: the higher one wins. Empty: the
    episode return, undiscounted and as the env gives it. Name an outcome if rewards are shaped, or if returns of the
    sides cannot be compared. For a side of several agents it is the mean over those that appear in the episode."""
    payoff_decay: Annotated[float, Bound(above=0, high=1)] = 0.99
    """Factor of the earlier games of two players at each new game between them. With 0.99 a win rate is the average of
    about the last 100 games, because the newest policy changes. 1: all games count equally."""
    initial_elo: float = 1200.0
    """Rating of the initial policies. Only differences of ratings have a meaning."""
    k_factor: Positive = 4.0
    """Change of the Elo rating at one game, at most. A rating with 4 follows a change within about 200 games and has a
    standard error of about 20 points: a run plays thousands of games. 16 is faster, with an error of about 40."""

    def __post_init__(self) -> None:
        if ":" in self.outcome:
            key = self.outcome.partition(":")[0]
            raise ConfigError(
                f"outcome is {in_short(self.outcome)}, but the key of a number in the infos is expected, which counts "
                f"at the end of an episode: pass --set league.outcome={key}"
            )
        if self.opponents != "prioritized" and self.weighting != "squared":
            raise ConfigError(
                f"weighting is {self.weighting}, but opponents is {self.opponents}, which uses no weights: pass "
                "--set league.opponents=prioritized, or leave weighting out"
            )
        if self.opponents == "latest" and self.latest_ratio not in (0.5, 1.0):
            raise ConfigError(
                f"latest_ratio is {self.latest_ratio:g}, but opponents is latest, which draws no snapshots: pass "
                "--set league.opponents=uniform, or leave latest_ratio out"
            )
