"""Tests the env of evaluations, if it has other arguments than that of the training: its spaces must be the same."""

from __future__ import annotations

from offbeat.config.env import EnvConfig
from offbeat.core.errors import ConfigError, with_notes_of
from offbeat.core.frozen_table import thawed
from offbeat.core.tasks import TaskSample
from offbeat.core.types import EnvSpec, in_brief
from offbeat.envs.call_watch import UNWATCHED, EnvCallWatch
from offbeat.envs.checking.preflight import preflight, preflight_world
from offbeat.envs.worlds.contract import WorldSpec


def place_of(settings: EnvConfig) -> str:
    """Return where what `eval_kwargs` causes happens, for messages."""
    return f"in evaluations, with eval_kwargs {thawed(settings.eval_kwargs)}"


def require_evaluable(
    spec: WorldSpec | EnvSpec, settings: EnvConfig, tasks: TaskSample | None, watch: EnvCallWatch = UNWATCHED
) -> None:
    """Take a few test steps in an env of the evaluations, and refuse one with other spaces than in the training.

    Args:
        spec: the spec of the env of the training.
        settings: the table [env].
        tasks: the tasks that a run samples from the env; None: it uses no tasks.
        watch: is notified of each env call.

    Raises:
        ConfigError: the env cannot be made or stepped with `eval_kwargs`, or its agents or spaces differ.
    """
    own = settings.in_evaluations
    try:
        world = preflight_world(spec.id, own, saves=False, watch=watch)
        evaluated = world or preflight(spec.id, own, tasks, watch)
    except ConfigError as error:
        raise with_notes_of(ConfigError(f"{place_of(settings)}: {error}"), error) from error
    if difference := _difference(_agents(spec), _agents(evaluated)):
        raise ConfigError(
            f"eval_kwargs is {thawed(settings.eval_kwargs)}, but the {difference}: pass arguments with which the env "
            "has the agents, observations and actions of the training"
        )


def _agents(spec: WorldSpec | EnvSpec) -> dict[str, EnvSpec]:
    """Return the spec of each agent, by its name; '' for the agent of an env with one."""
    return {"": spec} if isinstance(spec, EnvSpec) else dict(spec.agents)


def _difference(trained: dict[str, EnvSpec], evaluated: dict[str, EnvSpec]) -> str:
    """Return the first difference between the agents of the training and those of evaluations; '' if there is none."""
    if list(trained) != list(evaluated):
        then, now = (", ".join(filter(None, agents)) or "a single one" for agents in (trained, evaluated))
        return f"agents of the env of evaluations are {now}, not {then}"
    for name, env in evaluated.items():
        of = f" of {name}" if name else ""
        for part in ("observation", "action"):
            now, then = getattr(env, part), getattr(trained[name], part)
            if now != then:
                return f"{part}s{of} in evaluations {_in_words(in_brief(now), in_brief(then))}"
    return ""


def _in_words(now: str, then: str) -> str:
    return f"are {now}, not {then}" if now != then else "have other bounds or numbers"
