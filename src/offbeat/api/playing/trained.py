"""What is known of the training of a policy."""

from __future__ import annotations

from dataclasses import dataclass

from offbeat.config.env import UNSET, EnvConfig
from offbeat.config.trust import Code
from offbeat.core.fields import Counter, Name
from offbeat.core.tasks import Trials


@dataclass(frozen=True)
class Trained:
    """The env and the algorithm that a policy was trained with, and the progress of the training."""

    env: Name
    algorithm: Name
    env_steps: Counter
    learning_step: Counter
    updates: Counter | None = None
    """None: not known, for a snapshot of a league."""
    env_config: EnvConfig = UNSET
    """Settings of the env."""
    eval_return_mean: float | None = None
    """Mean return of the evaluation of these weights during training; in a run with several policies, of all that learn
    together. None if they were not evaluated before they were saved, as those of a run that stopped between two
    evaluations. `Run.metrics` has the run's last evaluation, with `policies/NAME/eval_return_mean` of each policy."""
    agents: tuple[Name, ...] = ()
    """In a world with several agents: the names of those that the policy acts for."""
    sides: tuple[tuple[Name, ...], ...] = ()
    """The agents of each side of a game that the policy can play, if policies were drawn for each episode."""
    trials: Trials | None = None
    """The tasks that the policy was trained and is tested in, if it infers its task."""

    @property
    def env_code(self) -> Code:
        """The code that makes the env."""
        return Code(envs=(self.env,), wrappers=self.env_config.wrappers)
