"""Slow twins of ``offbeat.losses.advantages``: columns cut into episodes, then the sums of the papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass
class Decision:
    """A valid row, with what was earned after it while the agent had no decision to make."""

    row: int
    reward: float
    between: float = 0.0


@dataclass
class Episode:
    """The decisions of (a part of) one episode, and the value of what comes after the last of them."""

    decisions: list[Decision] = field(default_factory=list)
    after: float = 0.0


def episodes(
    rewards: Row, values: Row, terminated: Mask, truncated: Mask, valid: Mask, no_decision: Mask
) -> list[Episode]:
    """Cut one column into episodes."""
    found, current = [Episode()], Episode()
    for t in range(len(rewards)):
        if not (valid[t] or no_decision[t]):  # a reset row belongs to no episode
            current = Episode()
            continue
        if valid[t]:
            current.decisions.append(Decision(t, rewards[t]))
        elif current.decisions:
            current.decisions[-1].between += rewards[t]
        current.after = 0.0 if terminated[t] else values[t + 1]
        if current is not found[-1]:
            found.append(current)
        if terminated[t] or truncated[t]:
            current = Episode()
    return [episode for episode in found if episode.decisions]


def values_after(episode: Episode, values: Row) -> list[float]:
    """Return V of the decision that follows each decision, or what the episode's end is worth."""
    return [values[decision.row] for decision in episode.decisions[1:]] + [episode.after]


def errors(episode: Episode, values: Row, gamma: float) -> list[float]:
    """Return each decision's delta: r + gamma (what was earned in between + V of what follows) - V."""
    return [
        decision.reward + gamma * (decision.between + following) - values[decision.row]
        for decision, following in zip(episode.decisions, values_after(episode, values), strict=True)
    ]


def with_no_decision(
    targets: Row,
    gae_lambda: float,
    rewards: Row,
    values: Row,
    terminated: Mask,
    truncated: Mask,
    valid: Mask,
    no_decision: Mask,
) -> Row:
    """Give rows without a decision theirs: what is earned until the next one, and its value, by lambda its target."""
    filled = targets.copy()
    for t in np.flatnonzero(no_decision).tolist():
        filled[t] = 0.0
        for s in range(t, len(rewards)):
            if valid[s]:
                filled[t] += (1 - gae_lambda) * values[s] + gae_lambda * targets[s]
                break
            if not no_decision[s]:  # a reset row: the episode was cut
                filled[t] += values[s]
                break
            filled[t] += rewards[s]
            if terminated[s]:
                break
            if truncated[s] or s == len(rewards) - 1:
                filled[t] += values[s + 1]
                break
    return filled


def gae_column(rewards: Row, values: Row, *masks: Mask, gamma: float, gae_lambda: float) -> tuple[Row, Row]:
    """Return (advantages, value targets): A_i = sum over l of (gamma lambda)^l delta_{i + l}."""
    advantages, targets = np.zeros(len(rewards)), np.array(values[:-1])
    for episode in episodes(rewards, values, *masks):
        deltas = errors(episode, values, gamma)
        for i, decision in enumerate(episode.decisions):
            total = sum((gamma * gae_lambda) ** (j - i) * deltas[j] for j in range(i, len(deltas)))
            advantages[decision.row] = total
            targets[decision.row] = values[decision.row] + total
    return advantages, with_no_decision(targets, gae_lambda, rewards, values, *masks)


def vtrace_column(
    log_ratio: Row,
    rewards: Row,
    values: Row,
    *masks: Mask,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
) -> tuple[Row, Row]:
    """Return (advantages, value targets); v_s = V_s + sum_t gamma^(t-s) (prod_{s<=i<t} c_i) rho_t delta_t."""
    advantages, targets = np.zeros(len(rewards)), np.array(values[:-1])
    for episode in episodes(rewards, values, *masks):
        rows = [decision.row for decision in episode.decisions]
        rho = [min(rho_clip, exp(log_ratio[t])) for t in rows]
        c = [gae_lambda * min(c_clip, exp(log_ratio[t])) for t in rows]
        deltas = errors(episode, values, gamma)
        for s, row in enumerate(rows):
            targets[row] += sum(gamma ** (t - s) * prod(c[s:t]) * rho[t] * deltas[t] for t in range(s, len(rows)))
        mixed = [gae_lambda * targets[row] + (1 - gae_lambda) * values[row] for row in rows[1:]] + [episode.after]
        for i, (decision, following) in enumerate(zip(episode.decisions, mixed, strict=True)):
            q = decision.reward + gamma * (decision.between + following)
            advantages[decision.row] = rho[i] * (q - values[decision.row])
    return advantages, with_no_decision(targets, gae_lambda, rewards, values, *masks)


def td_column(rewards: Row, values: Row, *masks: Mask, gamma: float) -> Row:
    """Return V + delta for each decision; where there is none, what is earned until the next one, and V of that."""
    targets = np.array(values[:-1])
    for episode in episodes(rewards, values, *masks):
        for decision, delta in zip(episode.decisions, errors(episode, values, gamma), strict=True):
            targets[decision.row] += delta
    return with_no_decision(targets, 0.0, rewards, values, *masks)


def by_column(function: Callable[..., Any], *arrays: NDArray[Any], **settings: float) -> Row:
    """Apply a column's twin to [T, B] arrays; stack what it returns."""
    columns = [function(*(array[:, b] for array in arrays), **settings) for b in range(arrays[0].shape[1])]
    return np.stack(columns, axis=-1)
