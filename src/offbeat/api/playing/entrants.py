"""The players of a match: a checkpoint of each run, and the snapshots of their leagues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from offbeat.api.playing.load import load_for_env
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.api.playing.snapshots import Snapshots, load_snapshots, require_each
from offbeat.api.playing.trained import Trained
from offbeat.config.env import UNSET, EnvConfig
from offbeat.config.league import LeagueConfig
from offbeat.core.errors import ConfigError
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.types import Policy
from offbeat.league.players import Player
from offbeat.run_directory.directory import RunDirectory
from offbeat.workers.mixture import Mixture


@dataclass(frozen=True)
class Entrant:
    """One player of a match."""

    name: str
    line: str
    """What it is a version of: a policy if there is one run, else a run; an average is alone."""
    run_agents: Mapping[str, Sequence[str]]
    """Policy of its run -> names of its agents."""
    policies: Mapping[str, tuple[LoadedPolicy, ...]]
    """Policy -> its versions. For each game one policy is drawn of those that can play the side, and one version of it.
    If no policy can play all of the side, each of its parts has a policy, and nothing is drawn."""

    @property
    def trained(self) -> Trained:
        """The env and the progress of the training."""
        return next(iter(self.policies.values()))[-1].trained

    def plays(self, side: Sequence[Sequence[str]]) -> bool:
        """Whether its policies act for these parts of a side. With several parts nothing may be drawn."""
        versions = [sum(len(self.policies[name]) for name in self._policies_for(part)) for part in side]
        return all(versions) and (len(side) == 1 or max(versions) == 1)

    def _policies_for(self, agents: Sequence[str]) -> list[str]:
        """Return the names of the policies that act for all of these agents."""
        return [name for name in self.policies if set(agents) <= set(self.run_agents[name])]

    def policy_of(self, agents: Sequence[str]) -> tuple[LoadedPolicy, Policy | Mixture]:
        """Return a loaded policy for these agents, a part of a side, and what acts: itself or a mixture."""
        names = self._policies_for(agents)
        versions = [version for name in names for version in self.policies[name]]
        if len(versions) == 1:
            return versions[0], versions[0].acting_policy
        # Each policy is equally likely, and each version of it.
        weights = [1 / len(self.policies[name]) for name in names for _ in self.policies[name]]
        return versions[0], Mixture([each.acting_policy for each in versions], weights)


def entrants_of(
    runs: Sequence[Path], snapshots: Snapshots | None, *, checkpoint: str, average: bool, trust_code: bool
) -> tuple[list[Entrant], LeagueConfig | None]:
    """Return the players, and the league of the first run that has one. The arguments are those of `match`.

    Raises:
        ConfigError: a run is given twice, cannot be loaded or has no snapshots, or the runs have different worlds.
    """
    which = snapshots or ("window" if len(runs) == 1 else "none")
    entrants: list[Entrant] = []
    for run, name in zip(runs, _names(runs), strict=True):
        alone = len(runs) == 1
        entrants += _of_run(run, name, checkpoint, which, average=average, alone=alone, trust_code=trust_code)
    for entrant in entrants[1:]:
        _require_same_world(entrants[0], entrant)
    leagues = filter(None, (RunDirectory.open(run).read_league() for run in runs))
    return entrants, next(leagues, None)


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the runs: those of their directories, or their paths where two directories have one name."""
    paths = [run.resolve() for run in runs]
    if twice := [str(run) for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1]:
        raise ConfigError(f"{twice[0]} is given twice: pass each run once")
    names = [path.name for path in paths]
    return [name if names.count(name) == 1 else str(run) for name, run in zip(names, runs, strict=True)]


def _of_run(
    run: Path, name: str, checkpoint: str, which: Snapshots, *, average: bool, alone: bool, trust_code: bool
) -> Iterator[Entrant]:
    """Yield the players of a run: its snapshots, their average and its checkpoint.

    A snapshot with the weights of the checkpoint does not play: it was taken at the same learning step, or its policy
    does not learn.

    Args:
        run: run directory.
        name: name of the run.
        checkpoint: name of the checkpoint.
        which: the snapshots that play.
        average: whether their average plays.
        alone: whether it is the only run: then each of its policies is a player, else all of them are one.
        trust_code: as for `load`.
    """
    _, saved = load_for_env(run, checkpoint, trust_code=trust_code)
    agents = {policy: loaded.trained.agents for policy, loaded in saved.items()}
    kept: dict[str, dict[int, LoadedPolicy]] = {}
    if average or which != "none":
        kept = load_snapshots(run, "all" if which == "all" else "window", trust_code=trust_code)
    if not kept and (average or (which != "none" and not alone)):
        raise ConfigError(f"{run} has no league, so it has no snapshots: leave out --snapshots and --average")
    if average:
        require_each(kept, saved, run)
    for group in [[policy] for policy in saved] if alone else [list(saved)]:
        line = group[0] if alone else name
        of_run = "" if alone else f"{name}/"
        of_policy = f"{group[0]}:" if alone and group[0] != DEFAULT_POLICY else ""
        for policy in group if which != "none" else ():
            for number, loaded in kept.get(policy, {}).items():
                if not np.array_equal(loaded.acting_policy.vector, saved[policy].acting_policy.vector):
                    yield Entrant(f"{of_run}{Player(policy, number)}", line, agents, {policy: (loaded,)})
        if average:
            label = f"{of_run}{of_policy}average"
            yield Entrant(label, label, agents, {policy: tuple(kept[policy].values()) for policy in group})
        whole = f"{of_policy}{checkpoint}" if alone else name
        yield Entrant(whole, line, agents, {policy: (saved[policy],) for policy in group})


def _require_same_world(first: Entrant, other: Entrant) -> None:
    """Raise ConfigError if two players were trained in different worlds."""
    one, two = first.trained, other.trained
    agents = [{agent for own in each.run_agents.values() for agent in own} for each in (first, other)]
    settings = [_settings_of_games(each.env_config) for each in (one, two)]
    if one.env == two.env and settings[0] == settings[1] and agents[0] == agents[1]:
        return
    what = f"{one.env} and {two.env}" if one.env != two.env else f"{one.env} with different settings or agents"
    raise ConfigError(
        f"{first.name} and {other.name} were trained in {what}, but all players of a match must have one world: pass "
        "runs of the same env with the same table [env]"
    )


def _settings_of_games(settings: EnvConfig) -> EnvConfig:
    """Return the settings of an env without those that do not change the games of a match: of learning, metrics and
    evaluations.
    """
    return replace(
        settings,
        clip_rewards=UNSET.clip_rewards,
        reward_scale=UNSET.reward_scale,
        info_metrics=(),
        eval_kwargs=UNSET.eval_kwargs,
    )
