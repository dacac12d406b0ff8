"""The wiring diagram: which parts a run has, and what each is given.

envs -> actor -> unrolls -> learner -> weights -> actor
"""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.config import Config
from offbeat.envs.make import make_envs
from offbeat.errors import ConfigError
from offbeat.memory.unrolls import Unrolls
from offbeat.memory.weights import Weights
from offbeat.metrics.timings import Timings
from offbeat.models.numpy_policy import NumpyPolicy
from offbeat.models.spec import PolicySpec
from offbeat.pace import OnPolicyPace
from offbeat.registry import algorithm_entry
from offbeat.types import Algorithm, EnvSpec, env_fields
from offbeat.workers.actor import Actor
from offbeat.workers.learner import Learner


@dataclass(frozen=True)
class Parts:
    """Everything that a runtime starts and joins."""

    config: Config
    pace: OnPolicyPace
    env: EnvSpec
    policy: PolicySpec
    algorithm: Algorithm
    unrolls: Unrolls
    weights: Weights
    actors: tuple[Actor, ...]
    learner: Learner
    timings: Timings

    def begin(self) -> None:
        """Publish the weights as version 0, and begin new episodes in every actor."""
        self.learner.publish(0)
        for actor in self.actors:
            actor.begin()

    def close(self) -> None:
        for actor in self.actors:
            actor.close()


def build(config: Config, origin: int = 0) -> Parts:
    """Make the parts of a run.

    Args:
        config: the run's settings.
        origin: the ticket at which acting begins; it keys the episodes that begin there.

    Raises:
        ConfigError: the env, its spaces or the device do not suit the settings.
    """
    runtime, seed = config.runtime, config.run.seed
    entry, timings, pace = algorithm_entry(config.run.algorithm), Timings(), runtime.pace
    envs = [
        make_envs(
            config.run.env,
            runtime.envs_per_actor,
            seed=seed,
            actor=actor,
            origin=origin,
            groups=runtime.env_groups,
        )
        for actor in range(runtime.actors)
    ]
    spec = envs[0].spec
    policy = config.settings.policy_spec(spec)
    algorithm: Algorithm = entry.algorithm_class()(
        config.settings, policy, seed=seed, corrected=runtime.max_lag > 0, device=device_of(config)
    )
    fields = [*env_fields(spec), *algorithm.fields()]
    unrolls = Unrolls(fields, pace, runtime.unroll_length, runtime.envs_per_actor)
    weights = Weights(policy.layout().size, kept=pace.versions)
    actors = tuple(Actor(index, seed, columns, NumpyPolicy(policy), timings) for index, columns in enumerate(envs))
    learner = Learner(algorithm, unrolls, weights, seed=seed, device=device_of(config), timings=timings)
    return Parts(config, pace, spec, policy, algorithm, unrolls, weights, actors, learner, timings)


def device_of(config: Config) -> str:
    """Return the torch device of the learner.

    Raises:
        ConfigError: a GPU was asked for and there is none.
    """
    import torch

    if config.runtime.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA GPU here: type --device cpu")
    return "cuda" if config.runtime.device == "cuda" else "cpu"
