"""Test the envs of a run: take a few steps in one, find which columns each policy has, and check settings with them.

The checks need these columns: policies and agents, sides of a league, shards, threads of learners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from offbeat.algorithms.on_policy_config import OnPolicyConfig
from offbeat.algorithms.replay_config import ReplayConfig
from offbeat.config.config import Config
from offbeat.config.policy_agents import owners
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.config.settings import AlgorithmSettings
from offbeat.core.errors import ConfigError
from offbeat.core.policy_names import DEFAULT_POLICY
from offbeat.core.process.default_dtype import require_default_dtype
from offbeat.core.types import EnvSpec
from offbeat.envs.checking.evaluated_env import require_evaluable
from offbeat.envs.checking.preflight import preflight, preflight_world
from offbeat.envs.previous_inputs import spec_with_previous_inputs
from offbeat.envs.registration import naming_imports
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.envs.worlds.rows import spec_of_policy
from offbeat.league.plan import LeaguePlan
from offbeat.league.sides import policies_by_agent, sides_of_game
from offbeat.runtime.main_thread import MainThreadWatch
from offbeat.runtime.reporting import without_details


@dataclass(frozen=True)
class TestedEnvs:
    """The envs of an actor after a few test steps: which columns each policy has."""

    config: Config
    """The config of the run, whose tables name a policy for each agent."""
    world: WorldSpec | None
    """Agents and spaces of a world with several agents; None: each env has one agent."""
    policies: Mapping[str, EnvSpec]
    """Spec of the columns that one actor has for each policy, in the order of the policies."""
    league: LeaguePlan | None = None
    """The league of the run, if it has one."""


def tested_envs(config: Config, notify: Callable[[str], None]) -> TestedEnvs:
    """Take a few test steps in one env, and return which columns each policy has.

    Args:
        config: all settings.
        notify: is called with a message about an env call that takes too long.

    Raises:
        ConfigError: `tested_env` or `columns_of` refuses the env.
    """
    return columns_of(config, tested_env(config, config.run.imports, notify))


def tested_env(config: Config, imports: Sequence[str], notify: Callable[[str], None]) -> WorldSpec | EnvSpec:
    """Take a few test steps in one env, in this process, and return its spec: that of a world if it has several agents.

    If evaluations have other arguments of the env's constructor, test an env with these too.

    Args:
        config: has the env, the tasks that the run samples from it, and the time limits of its calls.
        imports: the modules that the user has imported, for messages.
        notify: is called with a message about an env call that takes longer than its limit. Nothing can end it.

    Raises:
        ConfigError: the env cannot be made or stepped, or has no tasks, or has other spaces in evaluations, or torch's
            default dtype is not float32.
    """
    env_id, settings, tasks = config.run.env, config.env, config.tasks
    with closing(MainThreadWatch(config.runtime)) as main_thread, naming_imports(env_id, imports):
        watch = main_thread.env_calls(without_details(notify))
        spec = preflight_world(env_id, settings, watch=watch) or preflight(env_id, settings, tasks, watch)
        if settings.eval_kwargs:
            require_evaluable(spec, settings, tasks, watch)
    require_default_dtype(env_id)
    return spec


def columns_of(config: Config, spec: WorldSpec | EnvSpec) -> TestedEnvs:
    """Return which columns each policy of a run has in an env with this spec, from `tested_env`.

    Raises:
        ConfigError: an agent has no policy, a policy no agent, settings do not suit the number of columns, or the
            runtime does not support policies with tables.
    """
    tested = _assigned(config, spec)
    _refuse_policies_with_tables(tested)
    _refuse_turns_of_replays(tested)
    _refuse_turns_within_groups(tested)
    for name, env in tested.policies.items():
        settings = tested.config.of_policy(name).algorithm_settings
        with tested.config.naming(name):
            settings.check_columns(config.runtime, env.columns)
            require_shards(config.runtime, settings, env.columns)
    return tested


def _assigned(config: Config, spec: WorldSpec | EnvSpec) -> TestedEnvs:
    """Assign the columns of an env to the policies of a run; their settings are not checked."""
    if isinstance(spec, EnvSpec):
        _refuse_policies(config)
        if config.league is not None:
            sides_of_game(config.league, config.run.env, {"agent": [DEFAULT_POLICY]}, (DEFAULT_POLICY,))
        _require_learners(config, 1)
        return TestedEnvs(config, None, {DEFAULT_POLICY: replace(spec, columns=config.runtime.envs_per_actor)})
    config = config.with_agents(spec.names)
    owned, count = owners(config.policies, spec.names, several=config.draws_policies), config.runtime.envs_per_actor
    policies = {
        name: spec_with_previous_inputs(spec_of_policy(spec, name, agents, count), config.env)
        for name, agents in owned.items()
    }
    _require_learners(config, len(policies))
    return TestedEnvs(config, spec, policies, league_of(config, owned))


def _refuse_policies(config: Config) -> None:
    """Refuse several policies for an env with one agent."""
    if config.policies or config.run.policies != "shared":
        raise ConfigError(
            f"{config.run.env} has one agent, so it cannot have several policies: leave out --policies and the tables "
            "[policies.NAME], or train in an env with several agents"
        )


def _require_learners(config: Config, policies: int) -> None:
    """Refuse more workers for learning than there are policies."""
    workers = config.runtime.learning_threads
    if workers > policies:
        noun = "policy" if policies == 1 else "policies"
        raise ConfigError(
            f"learner_workers is {workers}, but a run with {policies} {noun} has as many learners: pass --set "
            f"learner_workers={policies}, or leave it out"
        )


def league_of(config: Config, owned: Mapping[str, Sequence[str]]) -> LeaguePlan | None:
    """Return the league of a run; None if it has none. `owned`: the agents of each policy.

    Raises:
        ConfigError: the game does not have two sides, or none of them is trained.
    """
    if config.league is None:
        return None
    trained = tuple(filter(config.trains, owned))
    sides = sides_of_game(config.league, config.run.env, policies_by_agent(owned), trained)
    league = LeaguePlan(config.league, sides, trained)
    _require_worlds(config, league)
    return league


def _require_worlds(config: Config, league: LeaguePlan) -> None:
    """Refuse a league in which a side is never learned from: each side learns in its own worlds."""
    worlds, learning = config.envs, league.learning_sides
    if league.config.latest_ratio == 0 and not league.config.team_change_every and worlds < learning:
        raise ConfigError(
            f"latest_ratio is 0, so one side learns in each world, but there are {learning} sides that learn and "
            f"{worlds} worlds: pass --envs-per-actor {learning} or more, or a larger league.latest_ratio"
        )


def _refuse_policies_with_tables(tested: TestedEnvs) -> None:
    """Refuse policies with tables in a lock-free run, also a single one."""
    config = tested.config
    if config.runtime.entry.workers_learn and config.policies:
        raise ConfigError(
            f"runtime is {config.runtime.runtime}, whose workers share the parameters of one policy without settings "
            f"of its own, but this run has named policies ({', '.join(config.policies)}): pass --policies shared, or "
            "another --runtime"
        )


def _refuse_turns_of_replays(tested: TestedEnvs) -> None:
    """Refuse turns of learning with a replay whose samples may need rows of an earlier turn, which are not recorded.

    Those are the rows before a burn-in or in a frame stack. In a game by turns, a decision may still wait for the
    opponent's move when the turn of learning changes: its target would be wrong.
    """
    config, league = tested.config, tested.config.league
    if league is None or not league.team_change_every or config.algorithm_settings.learns_from != "replay":
        return
    settings = [config.of_policy(name).algorithm_settings for name in tested.policies]
    what = ""
    if any(env.no_decision for env in tested.policies.values()):
        what = "in an env whose agents act by turns"
    elif any(leaf.stack > 1 for env in tested.policies.values() for leaf in env.observation):
        what = "and a frame_stack"
    elif any(isinstance(each, ReplayConfig) and each.rows_before for each in settings):
        what = "and a burn_in, which --set burn_in=0 switches off"
    if what:
        raise ConfigError(
            f"team_change_every is {league.team_change_every}, which is not supported with a replay {what}: pass "
            f"--set league.team_change_every=0, or train ppo {config.run.env}"
        )


def _refuse_turns_within_groups(tested: TestedEnvs) -> None:
    """Refuse turns of learning that end while batches of the turn are still to be used again."""
    league, settings = tested.config.league, tested.config.algorithm_settings
    if league is None or not isinstance(settings, OnPolicyConfig):
        return
    steps = settings.passes * settings.resident_batches
    if league.team_change_every % steps:
        raise ConfigError(
            f"team_change_every is {league.team_change_every}, but with passes {settings.passes} and resident_batches "
            f"{settings.resident_batches} batches are used in groups of {steps} learning steps: pass a multiple of "
            f"{steps}"
        )


def require_shards(runtime: RuntimeConfig, settings: AlgorithmSettings, columns: int) -> None:
    """Refuse more shards than a minibatch has parts.

    Args:
        runtime: the layout.
        settings: those of a policy.
        columns: columns that an actor has for the policy.

    Raises:
        ConfigError: with the arithmetic and the remedy.
    """
    if runtime.shards == 1:
        return
    limit, arithmetic = settings.most_shards(runtime, columns)
    if runtime.shards > limit:
        remedy = f"pass --set shards={limit} or less" if limit > 1 else "leave shards out"
        raise ConfigError(f"shards is {runtime.shards}, but {arithmetic}: {remedy}, or make minibatches larger")
