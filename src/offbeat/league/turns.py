"""Who learns in a learning step, on which side, and which policies get a snapshot after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offbeat.config.league import LeagueConfig


def learning_policies(config: LeagueConfig, policies: Sequence[str], learning_step: int) -> tuple[str, ...]:
    """Return the policies that learn in a learning step: all, or one by turns.

    Args:
        config: `team_change_every`.
        policies: The policies that are trained.
        learning_step: Number of the learning step, from 0.
    """
    if not config.team_change_every:
        return tuple(policies)
    return (policies[learning_step // config.team_change_every % len(policies)],)


def learning_side(policies: Sequence[str], learning: Collection[str], world: int) -> int:
    """Return the index of the side of a world that is learned from. The worlds take turns, so that each side is played.

    Args:
        policies: Policy of each side. If none of them learns, each side can be returned: when a turn of learning ends
            between the draw of the policies and that of their players.
        learning: The policies that learn.
        world: Number of the world, among those of the whole run.
    """
    candidates = [index for index, policy in enumerate(policies) if policy in learning] or list(range(len(policies)))
    return candidates[world % len(candidates)]


def snapshots_due(config: LeagueConfig, policies: Sequence[str], learning_step: int) -> tuple[str, ...]:
    """Return the policies of which a snapshot is taken once `learning_step` learning steps are finished.

    The first is taken before any learning: its weights never change, so it can be the fixed point of ratings. Policies
    that have not learned since their last snapshot get none.

    Args:
        config: `snapshot_every` and `team_change_every`.
        policies: The policies that are trained.
        learning_step: Number of finished learning steps.
    """
    if learning_step % config.snapshot_every:
        return ()
    if learning_step == 0:
        return tuple(policies)
    since = range(learning_step - config.snapshot_every, learning_step)
    learned = {name for step in since for name in learning_policies(config, policies, step)}
    return tuple(name for name in policies if name in learned)
