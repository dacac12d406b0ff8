"""`offbeat.check`: steps an env and returns its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offbeat.api.named_code import name_of_env, with_env_settings
from offbeat.config import resolve as configs
from offbeat.config.arguments import checked
from offbeat.config.importing import import_modules
from offbeat.core.errors import require_at_least
from offbeat.core.process.caller_state import caller_state
from offbeat.core.process.default_dtype import require_default_dtype
from offbeat.envs.checking.check import check_env
from offbeat.envs.findings import Finding
from offbeat.envs.registration import naming_imports


@checked
def check(
    env: str | Callable[..., Any],
    *,
    steps: int = 1000,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | type[Any]] | None = None,
    imports: Sequence[str] = (),
    **settings: object,
) -> list[Finding]:
    """Step an env with random actions and return its faults, each with a remedy, as `offbeat check` does.

    Args:
        env: the env, as for `train`.
        steps: random steps of each env.
        env_kwargs: arguments of the env's constructor.
        wrappers: wrappers of the env, as for `train`.
        imports: modules to import first; they may register envs.
        settings: other keys of the table [env], such as `max_episode_steps`.

    Returns:
        The faults in the order in which they occurred; an empty list for a correct env. `print` shows one as the
        command does.

    Raises:
        ConfigError: the env cannot be made or has other spaces in evaluations, an argument is invalid, or torch's
            default dtype is not float32.
    """
    given = with_env_settings(settings, env_kwargs, wrappers)
    return check_with(name_of_env(env), given, steps=steps, imports=imports)


def check_with(
    env: str,
    given: Mapping[str, object],
    *,
    steps: int,
    imports: Sequence[str],
    on_step: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Finding]:
    """Check an env with settings that are given by key. Arguments and errors are those of `check`.

    `on_step` is called with the numbers of steps that are done, and of all.
    """
    require_at_least("steps", steps, 1)
    with caller_state():
        import_modules(tuple(imports))
        with naming_imports(env, imports):
            findings = check_env(env, settings=configs.env_config(given), steps=steps, report=on_step)
        require_default_dtype(env)
        return [finding.shown() for finding in findings]
