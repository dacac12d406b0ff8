"""The faults of an env that `offbeat check` reports, and those of rewards and flags, which runs look for too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, SupportsFloat

import numpy as np

from offbeat.core.argument_notation import as_shown

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One fault of an env."""

    severity: Severity
    """'error': a run would fail or learn from wrong data. 'warning': it may be intended."""
    problem: str
    remedy: str = ""
    """'': the problem says what to do."""

    def __str__(self) -> str:
        """Return the severity and the problem, and the remedy on the next line."""
        return f"{self.severity}: {self.problem}" + f"\n  {self.remedy}" * bool(self.remedy)

    def shown(self) -> Finding:
        """Return the finding with texts that name arguments as the user gives them."""
        return replace(self, problem=as_shown(self.problem), remedy=as_shown(self.remedy))


def has_error(findings: Iterable[Finding]) -> bool:
    """Whether one of the findings is an error."""
    return any(finding.severity == "error" for finding in findings)


def check_ends(reward: Any, terminated: Any, truncated: Any, *, in_world: bool = False) -> Iterator[Finding]:
    """Yield the faults of a reward and of the two flags that `step` returned with it.

    `in_world`: whether they are those of one agent of an env with several.
    """
    yield from _check_reward(reward, in_world=in_world)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            severity: Severity = "warning" if _is_0_or_1(flag) else "error"
            yield Finding(severity, f"{name} is {kind_of(flag)}, not a bool", f"return bool({name})")


def fault_of_ends(reward: Any, terminated: Any, truncated: Any, *, in_world: bool = False) -> str | None:
    """Return the first of these faults with its remedy, as one sentence; None if there is none."""
    if (several := _several_rewards(reward, in_world=in_world)) is not None:
        return f"{several.problem}. {several.remedy}"
    faults = check_ends(reward, terminated, truncated, in_world=in_world)
    fault = next((fault for fault in faults if fault.severity == "error"), None)
    return None if fault is None else f"step() returned a wrong value: {fault.problem}. In the env, {fault.remedy}"


def _is_0_or_1(flag: Any) -> bool:
    return isinstance(flag, Integral) and flag in (0, 1)


def _check_reward(reward: Any, *, in_world: bool) -> Iterator[Finding]:
    if (several := _several_rewards(reward, in_world=in_world)) is not None:
        yield several
    elif not isinstance(reward, SupportsFloat) or np.shape(np.asarray(reward)) != ():
        remedy = "return a number in every step" if reward is None else "return float(reward)"
        yield Finding("error", f"the reward is {kind_of(reward)}, not a number", remedy)
    elif not np.isfinite(float(reward)):
        yield Finding("error", "the reward is NaN or infinite", "check for a division by zero or the log of zero")


def _several_rewards(reward: Any, *, in_world: bool) -> Finding | None:
    """Return the finding for a reward of several numbers; None for one of another kind."""
    count = len(reward) if isinstance(reward, Mapping) else np.asarray(reward, object).size
    if count < 2 or isinstance(reward, str | bytes):
        return None
    if in_world:
        problem = f"step() returned a reward of {count} numbers for one agent, but each agent has one reward"
        return Finding("error", problem, "Several objectives: weigh them into one number in the env")
    problem = (
        f"step() returned a reward of {count} numbers, for several objectives or several agents, but an env with one "
        "agent has one reward"
    )
    remedy = (
        "Several objectives: weigh them into one number in a wrapper, as mo_gymnasium.wrappers.LinearReward does. "
        "Several agents: use an env with PettingZoo's API, as pettingzoo:ID or module:function"
    )
    return Finding("error", problem, remedy)


def kind_of(value: Any) -> str:
    """Return the kind of a value, without the value itself, so that equal findings are reported once."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
