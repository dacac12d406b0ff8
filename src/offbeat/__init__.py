"""Asynchronous reinforcement learning with an explicit contract of how far acting and learning may drift apart.

import offbeat
run = offbeat.train("ppo", "CartPole-v1", steps=200_000, seed=1)
policy = offbeat.load(run.path)
action = policy(observation)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offbeat.api.callbacks.callback import Callback, RunHandle
    from offbeat.api.check import check
    from offbeat.api.evaluate import EvaluationResult, evaluate
    from offbeat.api.match import Match, match
    from offbeat.api.playing.load import load, load_all
    from offbeat.api.playing.loaded_policy import LoadedPolicy
    from offbeat.api.playing.policy_distribution import PolicyDistribution
    from offbeat.api.playing.snapshots import AveragePolicy, load_average, load_snapshots
    from offbeat.api.plot import plot
    from offbeat.api.resume import resume
    from offbeat.api.running.run import Run
    from offbeat.api.train import train
    from offbeat.api.watch import watch
    from offbeat.config.registry import register_algorithm, register_encoder, register_runtime
    from offbeat.config.runtimes import RuntimeEntry
    from offbeat.core.errors import ConfigError, EnvFailed, OffbeatError, RunFailed
    from offbeat.envs.findings import Finding
    from offbeat.envs.registration import register_env
    from offbeat.envs.task_wrapper import TaskWrapper
    from offbeat.exporting.export import export

__version__ = "0.1.0"
__all__ = [
    "AveragePolicy",
    "Callback",
    "ConfigError",
    "EnvFailed",
    "EvaluationResult",
    "Finding",
    "LoadedPolicy",
    "Match",
    "OffbeatError",
    "PolicyDistribution",
    "Run",
    "RunFailed",
    "RunHandle",
    "RuntimeEntry",
    "TaskWrapper",
    "check",
    "evaluate",
    "export",
    "load",
    "load_all",
    "load_average",
    "load_snapshots",
    "match",
    "plot",
    "register_algorithm",
    "register_encoder",
    "register_env",
    "register_runtime",
    "resume",
    "train",
    "watch",
]

_HOMES = {
    "ConfigError": "offbeat.core.errors",
    "EnvFailed": "offbeat.core.errors",
    "OffbeatError": "offbeat.core.errors",
    "RunFailed": "offbeat.core.errors",
    "Finding": "offbeat.envs.findings",
    "check": "offbeat.api.check",
    "EvaluationResult": "offbeat.api.evaluate",
    "evaluate": "offbeat.api.evaluate",
    "export": "offbeat.exporting.export",
    "plot": "offbeat.api.plot",
    "watch": "offbeat.api.watch",
    "Callback": "offbeat.api.callbacks.callback",
    "RunHandle": "offbeat.api.callbacks.callback",
    "LoadedPolicy": "offbeat.api.playing.loaded_policy",
    "PolicyDistribution": "offbeat.api.playing.policy_distribution",
    "load": "offbeat.api.playing.load",
    "load_all": "offbeat.api.playing.load",
    "AveragePolicy": "offbeat.api.playing.snapshots",
    "load_average": "offbeat.api.playing.snapshots",
    "load_snapshots": "offbeat.api.playing.snapshots",
    "Match": "offbeat.api.match",
    "match": "offbeat.api.match",
    "register_algorithm": "offbeat.config.registry",
    "register_encoder": "offbeat.config.registry",
    "register_env": "offbeat.envs.registration",
    "TaskWrapper": "offbeat.envs.task_wrapper",
    "register_runtime": "offbeat.config.registry",
    "RuntimeEntry": "offbeat.config.runtimes",
    "Run": "offbeat.api.running.run",
    "resume": "offbeat.api.resume",
    "train": "offbeat.api.train",
}


def __dir__() -> list[str]:
    """List the public names, which completion shows."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import offbeat` loads neither torch nor NumPy."""
    if name not in _HOMES:
        from offbeat.config.other_libraries import other_calls
        from offbeat.core.errors import suggestion

        hint = other_calls().get(name) or suggestion(name, __all__, likeness=0.7).strip()
        raise AttributeError(f"module 'offbeat' has no attribute {name!r}" + (f". {hint}" if hint else ""))
    if (home := _HOMES[name]) not in sys.modules:
        from offbeat.core.process.import_traces import imports_undone

        with imports_undone():
            import_module(home)
    return getattr(import_module(home), name)
