"""The snapshots of a run's league as policies, and their average."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from offbeat.api.playing.load import chosen_policy, loaded_from
from offbeat.api.playing.loaded_policy import LoadedPolicy
from offbeat.config.arguments import checked
from offbeat.config.trust import Code
from offbeat.core.errors import ConfigError, require_at_least
from offbeat.core.fields import read
from offbeat.core.files import GivenPath
from offbeat.core.process.caller_state import caller_state
from offbeat.envs.adapters.openspiel import ADAPTER, PREFIX
from offbeat.league.average import average_policy, draw_snapshot, shares_of
from offbeat.run_directory.directory import RunDirectory
from offbeat.workers.mixture import Mixture

if TYPE_CHECKING:
    from open_spiel.python.policy import TabularPolicy

Snapshots = Literal["all", "window", "none"]


@checked
@caller_state()
def load_snapshots(
    run: GivenPath, which: Literal["all", "window"] = "all", *, trust_code: bool = False
) -> dict[str, dict[int, LoadedPolicy]]:
    """Load the snapshots of a run's league that are on disk: policy -> id -> snapshot, the oldest first.

    Args:
        run: a run directory.
        which: all, or only those of the window.
        trust_code: as for `load`.

    Raises:
        ConfigError: a snapshot is damaged, or names code that was refused; or `which` is something else.
    """
    which = read("which", which, Literal["all", "window"], "pass which='window'")
    directory = RunDirectory.open(run, trust_code=trust_code)
    store, league = directory.snapshot_store(), directory.read_league()
    if league is None:
        return {}
    first, code = 0 if which == "all" else -league.window, Code(imports=directory.read_run().imports)

    def loaded(policy: str, number: int) -> LoadedPolicy:
        saved = directory.read_snapshot(policy, number)
        return loaded_from(saved, os.fspath(run), code, trust_code=trust_code, policy=policy)

    return {
        policy: {number: loaded(policy, number) for number in store.numbers(policy)[first:]}
        for policy in store.policies
    }


class AveragePolicy:
    """The average of a policy's snapshots, as a function: it draws one of them per episode.

    Against any opponent it has the same expected return as the average policy: see `offbeat.league.average`.
    """

    def __init__(
        self, snapshots: Sequence[LoadedPolicy], weights: Sequence[float] | None = None, seed: int = 0
    ) -> None:
        """Mix snapshots.

        Args:
            snapshots: the snapshots of one policy.
            weights: weight of each, not negative; None: all are equal.
            seed: seed of the draws.

        Raises:
            ConfigError: the seed is negative, there are no snapshots, or not one weight for each.
        """
        require_at_least("seed", seed, 0)
        self.snapshots = tuple(snapshots)
        if not self.snapshots:
            raise ConfigError(
                "snapshots is empty, but at least one is expected: pass those of a policy, "
                "list(offbeat.load_snapshots(run)[policy].values())"
            )
        self.weights = tuple(weights) if weights is not None else (1.0,) * len(self.snapshots)
        shares_of(self.weights, len(self.snapshots))  # which refuses other weights
        self.trained = self.snapshots[-1].trained
        self._seed, self._episode = seed, -1
        self.reset()

    def reset(self) -> None:
        """Start a new episode: draw a snapshot."""
        self._episode += 1
        self.drawn = draw_snapshot(self.weights, seed=self._seed, world=0, episode=self._episode)
        """Index of the snapshot that plays the episode."""
        self.snapshots[self.drawn].reset()

    def __call__(self, observation: Any, **named: Any) -> Any:
        """Select an action with the snapshot of this episode. Arguments and errors are those of `LoadedPolicy`."""
        return self.snapshots[self.drawn](observation, **named)

    def tabular(self) -> TabularPolicy:
        """Return the average policy of a small, turn-based game of OpenSpiel, computed exactly.

        OpenSpiel's own functions accept it, such as `exploitability.nash_conv`.

        Raises:
            ConfigError: the env is not such a game, or it is too large; or the policy has a memory, samples no
                probabilities, or does not act for all players.
        """
        trained, spec = self.trained, self.snapshots[0].acting_policy.spec
        if not trained.env.startswith(PREFIX):
            raise ConfigError(
                f"the average policy can only be computed for games of OpenSpiel, but the run's env is {trained.env}: "
                "call the policy instead, which draws one snapshot per episode"
            )
        world = ADAPTER.make_world(trained.env, trained.env_config.kwargs)
        if self.snapshots[0].remembers or spec.distribution != "categorical" or len(trained.agents) < len(world.agents):
            raise ConfigError(
                f"the average policy can only be computed for one policy of all {len(world.agents)} players, without a "
                "core, frame stacks or previous inputs, that samples its actions by their probabilities: call the "
                "policy instead"
            )
        functions = [partial(_probabilities, each, world) for each in self.snapshots]
        return average_policy(world.env, functions, self.weights)


@checked
def load_average(
    run: GivenPath, *, policy: str | None = None, seed: int = 0, trust_code: bool = False
) -> AveragePolicy:
    """Load the average of the snapshots of a run's league that are on disk: all with `keep_all`, else the window.

    Args:
        run: a run directory.
        policy: name of the policy; None: the only one of the run.
        seed: seed of the draws.
        trust_code: as for `load`.

    Raises:
        ConfigError: the run has no league, a snapshot is damaged or names code that was refused, or the seed is
            negative.
    """
    snapshots = _kept(run, trust_code=trust_code)
    return AveragePolicy(tuple(snapshots[chosen_policy(snapshots, policy, f"the league of {run}")].values()), seed=seed)


def mixtures_of(run: Path, policies: Iterable[str], *, trust_code: bool = False) -> dict[str, Mixture]:
    """Return the average of the snapshots on disk of each policy, for `score`; `policies`: those of the run.

    Raises:
        ConfigError: as `load_average`; or one of the policies has no snapshots.
    """
    by_policy = _kept(run, trust_code=trust_code)
    require_each(by_policy, policies, run)
    return {policy: Mixture([each.acting_policy for each in kept.values()]) for policy, kept in by_policy.items()}


def require_each(snapshots: Collection[str], policies: Iterable[str], run: Path) -> None:
    """Refuse the average of policies of which one has no snapshots on disk; `snapshots`: the policies that have some.

    Raises:
        ConfigError: with the policies that have none.
    """
    if missing := [policy for policy in policies if policy not in snapshots]:
        raise ConfigError(
            f"{run} has no snapshots of {', '.join(missing)}, so there is no average: copy the run again, with its "
            "folder league, or leave out --average"
        )


def _kept(run: GivenPath, *, trust_code: bool) -> dict[str, dict[int, LoadedPolicy]]:
    """Return the snapshots on disk, of each policy."""
    snapshots = load_snapshots(run, trust_code=trust_code)
    if not snapshots:
        raise ConfigError(
            f"{run} has no snapshots, because only a run with a league has them: train one with --set league=true"
        )
    return snapshots


def _probabilities(loaded: LoadedPolicy, world: Any, state: Any) -> dict[int, float]:
    """Return the probability of each legal action at a state of OpenSpiel (`pyspiel.State`)."""
    probabilities = loaded.distribution(world.observation_at(state, state.current_player())).probabilities
    return {action: float(probabilities[action]) for action in state.legal_actions()}
