"""Takes a few random steps in one env before a run creates anything: `preflight`, or `preflight_world` in a world."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from offbeat.config.curriculum import parameters
from offbeat.config.env import UNSET, EnvConfig
from offbeat.core.closing import closed_or_warn
from offbeat.core.errors import FAILURES, ConfigError, EnvFailed, with_notes_of
from offbeat.core.tasks import TaskSample
from offbeat.core.types import EnvSpec
from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.envs.checking.parts import SEED
from offbeat.envs.checking.rollouts import FIRST_STEPS, rollout, rollout_of_agents, started
from offbeat.envs.checking.snapshots import require_savable
from offbeat.envs.failures import failed, fault_of_world
from offbeat.envs.reproduce import env_flags
from offbeat.envs.worlds.contract import WorldSpec
from offbeat.envs.worlds.make import make_world, marks_decisions, spec_of_world
from offbeat.envs.worlds.worlds import Worlds


def preflight(
    env_id: str, settings: EnvConfig = UNSET, tasks: TaskSample | None = None, watch: EnvCallWatch = UNWATCHED
) -> EnvSpec:
    """Take a few random steps in one column, before a run creates anything; return the env's spec.

    Args:
        env_id: Id of the env, as for `make_envs`.
        settings: The table [env].
        tasks: The tasks that the run samples from the env; None: it uses no tasks.
        watch: Is notified of each env call.

    Raises:
        ConfigError: the env cannot be made, or in these steps it raises an exception or returns NaN or a wrong shape.
    """
    try:
        with started(env_id, 1, "preflight", settings, tasks, watch) as (envs, first):
            rollout(envs, first, FIRST_STEPS, watch)
            watch.enter(resets=True)
            require_savable(env_id, {"": envs})
            return replace(envs.spec, no_decision=envs.reports_no_decision)
    except EnvFailed as error:
        raise with_notes_of(ConfigError(str(error)), error) from error


def preflight_world(
    env_id: str, settings: EnvConfig = UNSET, *, saves: bool = True, watch: EnvCallWatch = UNWATCHED
) -> WorldSpec | None:
    """Take a few random steps in one world; return its agents and their spaces, None for an env with one agent.

    Args:
        env_id: Id of the env.
        settings: The table [env].
        saves: Whether its state will be saved in checkpoints.
        watch: Is notified of each env call.

    Raises:
        ConfigError: the env cannot be made or has no parameter of the curriculum, or in these steps it raises an
            exception or returns NaN or a wrong shape.
    """
    settings = settings.completed(env_id)
    watch.enter(resets=True)
    world = make_world(env_id, settings.kwargs)
    if world is None:
        return None
    try:
        with closed_or_warn(world, env_id):
            first = world.reset(SEED)
            spec = spec_of_world(env_id, world, first, settings)
            owners = {agent: (agent,) for agent in spec.names}
            curriculum = parameters(settings.curriculum)
            worlds = Worlds(spec, [world], owners, groups=[slice(0, 1)], seeds=[SEED], curriculum=curriculum)
            worlds.set_progress(0.0)
            reset = {agent: envs.reset() for agent, envs in worlds.envs.items()}
            rollout_of_agents(worlds.envs, reset, FIRST_STEPS, watch)
            watch.enter(resets=True)
            if saves:
                require_savable(env_id, worlds.envs)
            no_decision = worlds.had_no_decision or marks_decisions(world, first)
    except FAILURES as error:
        reported = error if isinstance(error, EnvFailed | ConfigError) else _failed_at_start(env_id, settings, error)
        raise with_notes_of(ConfigError(str(reported)), reported) from error
    return replace(spec, agents=tuple((name, replace(agent, no_decision=no_decision)) for name, agent in spec.agents))


def _failed_at_start(env_id: str, settings: EnvConfig, error: BaseException) -> EnvFailed:
    """Return the error for an exception of a world's first reset, or of the spaces of its agents."""
    what = fault_of_world("before the first step", error)
    command = f"offbeat check {quote(env_id)} {env_flags(env_id, settings)}".rstrip()
    return failed(env_id, 0, what, error, unit="world", command=command)
