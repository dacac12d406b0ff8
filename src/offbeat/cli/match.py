"""`offbeat match`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from offbeat.cli.flags import CheckpointName, RunImports, TrustCode
from offbeat.cli.on_ray import Cpus, Gpus, On, OnRay, RayAddress, Resources
from offbeat.cli.output import progress_bar, stdout_to_stderr
from offbeat.config.env import MATCH_GAMES, MAX_EPISODE_STEPS
from offbeat.core.errors import ConfigError, require_at_least
from offbeat.core.files import require_writable
from offbeat.core.messages import once
from offbeat.core.printing import print_text

if TYPE_CHECKING:
    from offbeat.api.match import Match as MatchResult


SEVERAL_SIDES = (
    "Each part of the table has the players of the same sides. Only their ratings can be compared, with their mean at "
    "1200: between sides, one may have an advantage."
)
"""A line below the table if players play different sides."""


@dataclass(frozen=True)
class Match:
    """Let trained policies play against each other: offbeat match runs/A runs/B, or offbeat match runs/LEAGUE."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN...", help_behavior_hint="")]
    """Run directories. A checkpoint of each is a player. The snapshots of a single run play too."""
    episodes: int = MATCH_GAMES
    """Games of each pair of players, rounded up so that both have each side equally often."""
    seed: int = 0
    """Seed of the envs and of the action sampling."""
    checkpoint: CheckpointName = "latest"
    """Checkpoint of each run: latest, best or step-<12 digits>."""
    snapshots: Annotated[
        Literal["all", "window", "none"] | None, arg(metavar="all|window|none", help_behavior_hint="")
    ] = None
    """Snapshots of the leagues that play too: all on disk, those of the window, or none. Default: window for one run,
    none for several."""
    average: bool = False
    """Let the average of these snapshots play too: for each game, one of them is drawn."""
    sides: Annotated[str | None, arg(metavar="PATTERNS", help_behavior_hint="")] = None
    """A pattern of agents for each side: red_*,blue_*. Default: the sides of the league, else each agent is a side if
    there is one policy, and each policy if there are several."""
    greedy: bool = False
    """Take the most likely actions instead of sampling them."""
    max_episode_steps: int = MAX_EPISODE_STEPS
    """Env steps after which a game is cut. Its return up to there counts. With league.outcome it has no result, unless
    the env has reported one."""
    json: bool = False
    """Print one JSON object and nothing else: sides, players, payoffs, standings, cut, no_result."""
    out: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """Draw the win rates of all pairs into this file."""
    ratings: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """Draw the ratings over env steps into this file."""
    on: On = "local"
    ray_address: RayAddress = None
    cpus: Cpus = None
    gpus: Gpus = None
    resources: Resources = None
    imports: RunImports = ()
    trust_code: TrustCode = False

    def run(self) -> int:
        from offbeat.api.match import match
        from offbeat.config.importing import import_modules
        from offbeat.plots.figures import require_format

        require_at_least("episodes", self.episodes, 1)
        for picture in self._pictures:
            require_format(picture)
            require_writable(picture)
        if len({picture.absolute() for picture in self._pictures}) < len(self._pictures):
            raise ConfigError(f"both --out and --ratings are {self.out}: pass another file for one of them")
        on_ray = OnRay.read(self.on, self.ray_address, self.cpus, self.gpus, self.resources)
        with stdout_to_stderr(), progress_bar("games", shown=not self.json) as on_step:
            import_modules(self.imports)
            result = match(
                self.runs,
                episodes=self.episodes,
                seed=self.seed,
                checkpoint=self.checkpoint,
                snapshots=self.snapshots,
                average=self.average,
                sides=() if self.sides is None else tuple(self.sides.split(",")),
                greedy=self.greedy,
                max_episode_steps=self.max_episode_steps,
                trust_code=self.trust_code,
                on_step=on_step,
                nodes=None if on_ray is None else on_ray.task_pool("a match of two players"),
            )
        if self.json:
            print(json.dumps(result.as_json()))
        else:
            self._show(result)
        self._draw(result)
        for picture in () if self.json else self._pictures:
            print(picture)
        return 0

    @property
    def _pictures(self) -> list[Path]:
        """The files of pictures that were asked for."""
        return [path for path in (self.out, self.ratings) if path is not None]

    def _draw(self, result: MatchResult) -> None:
        """Draw the pictures that were asked for."""
        from offbeat.plots.figures import save_figure
        from offbeat.plots.league import draw_ratings, plot_win_rates

        notify = once(partial(print_text, stream=sys.stderr))  # both pictures have the same names
        if self.out is not None:
            plot_win_rates(result.payoffs, out=self.out, notify=notify)
        if self.ratings is not None:
            figure = draw_ratings(
                result.ratings, policies=result.lines, env_steps=result.env_steps, sides=result.agents
            )
            save_figure(figure, self.ratings, notify)

    def _show(self, result: MatchResult) -> None:
        """Print the standings, and above them the sides if they were not given."""
        from rich.console import Console

        from offbeat.api.match import EXAMPLE
        from offbeat.league.sides import message_of
        from offbeat.league.standings import standings_table

        if self.sides is None and (message := message_of(result.sides, what="match", example=EXAMPLE)):
            print_text(message)
        Console().print(standings_table(result.standings))
        if len(set(result.agents)) > 1:
            print_text(SEVERAL_SIDES)
        if result.no_result:
            print_text(
                f"games without a result: {result.no_result} of {result.played} (they ended before the env reported an "
                "outcome of each side, or no agent of a side appeared)"
            )
        elif result.cut:
            limit = f"--max-episode-steps {self.max_episode_steps}"
            print_text(f"games cut by {limit}: {result.cut} of {result.played} (their results up to there count)")
