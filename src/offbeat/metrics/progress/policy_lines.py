"""The lines of the dashboard for the policies of a run that has several."""

from __future__ import annotations

from math import ceil

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from offbeat.metrics.progress.status import PolicyStatus
from offbeat.metrics.progress.views import age_of, lag_of
from offbeat.metrics.text import compact, rounded

ROOMY = 96
"""Smallest width of the screen, in characters, at which names of metrics are not shortened."""
_NAME_WIDTH = 24
"""Largest width of the name of a policy, in characters; longer names are cut."""
_RETURN_WIDTH = 9
_ELO_WIDTH = 7
_FEWEST_ROWS = 3
"""Rows that are drawn even if the screen has no room for them."""


class PolicyLines:
    """A row for each policy: name, return, agent steps, lag, learning rate, loss; in a league rating and snapshots.

    Policies that do not fit in this way are shown in several columns, with name, return and rating only.
    """

    def __init__(self, policies: tuple[PolicyStatus, ...], room: int) -> None:
        """Draw these policies, at least one, in at most `room` lines if possible."""
        self._policies, self._rows = policies, max(_FEWEST_ROWS, room - 1)
        self._league = any(policy.elo is not None for policy in policies)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width of the console."""
        if len(self._policies) <= self._rows:
            yield self._table(roomy=options.max_width >= ROOMY)
        else:
            yield from self._columns(options.max_width)

    def _table(self, *, roomy: bool) -> Table:
        table = Table(box=None, padding=(0, 2 if roomy else 1, 0, 0), pad_edge=False, header_style="bright_black")
        table.add_column("policies", header_style="bold", no_wrap=True, max_width=_NAME_WIDTH, overflow="ellipsis")
        names = ["return", "agent steps", "lag" if self._learned_once else "sample age"]
        names += ["learning rate" if roomy else "lr", "loss", *(["Elo", "snapshots"] if self._league else [])]
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for policy in self._policies:
            table.add_row(Text(policy.name, style="" if policy.trained else "bright_black"), *self._values(policy))
        return table

    @property
    def _learned_once(self) -> bool:
        """Whether the policies learn without a replay."""
        return all(policy.replay_size is None for policy in self._policies)

    def _values(self, policy: PolicyStatus) -> list[str]:
        league = [_elo(policy), compact(policy.snapshots)] if self._league else []
        return [
            rounded(policy.episode_return_mean),
            compact(policy.agent_steps),
            (lag_of if self._learned_once else age_of)(policy) if policy.trained else "fixed",
            _short(policy.learning_rate),
            _short(policy.loss),
            *league,
        ]

    def _columns(self, width: int) -> RenderResult:
        """Draw several policies in each line, from top to bottom, then from left to right."""
        name_width = min(_NAME_WIDTH, max(len(policy.name) for policy in self._policies))
        cell = name_width + _RETURN_WIDTH + (_ELO_WIDTH if self._league else 0)
        columns = max(1, (width + 3) // (cell + 3))
        rows = min(self._rows, ceil(len(self._policies) / columns))
        shown = self._policies[: rows * columns]
        if left := len(self._policies) - len(shown):
            rows -= 1
            left += columns
            shown = self._policies[: rows * columns]
        title = f"return{' and Elo' if self._league else ''} of {len(self._policies)} policies"
        yield Text(title, style="bold", no_wrap=True, overflow="crop")
        for row in range(rows):
            cells = [self._cell(policy, name_width) for policy in shown[row::rows]]
            line = Text("   ").join(cells)
            line.no_wrap, line.overflow = True, "crop"
            yield line
        if left:
            yield Text(f"and {left} more: see metrics.jsonl", style="bright_black", no_wrap=True, overflow="crop")

    def _cell(self, policy: PolicyStatus, name_width: int) -> Text:
        name = policy.name if len(policy.name) <= name_width else policy.name[: name_width - 1] + "."
        elo = f"{_elo(policy):>{_ELO_WIDTH}}" if self._league else ""
        style = "" if policy.trained else "bright_black"
        value = f"{rounded(policy.episode_return_mean):>{_RETURN_WIDTH}}"
        return Text.assemble((f"{name:{name_width}}", style), value, elo)


def _elo(policy: PolicyStatus) -> str:
    return "-" if policy.elo is None else f"{policy.elo:.0f}"


def _short(value: float | None) -> str:
    """Return a number with two significant digits; '-' if it is not known."""
    return "-" if value is None else f"{value:.2g}"
