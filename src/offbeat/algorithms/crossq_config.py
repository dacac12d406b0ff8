"""The settings of CrossQ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from offbeat.algorithms.replay_actor_critic_config import require_bounded_box
from offbeat.algorithms.sac_config import SoftActorCriticConfig
from offbeat.core.fields import Bound, Count, Positive
from offbeat.core.types import EnvSpec


@dataclass(frozen=True)
class CrossQConfig(SoftActorCriticConfig):
    """The settings of CrossQ.

    From arXiv:1902.05605: `learning_rate`, `policy_delay`, `adam_beta1`, `gamma`, `batch_size`, `activation` and
    `target_entropy`. All other defaults, and those of the table [runtime], are offbeat's: in the paper critics have two
    hidden layers of 2048 units, the policy has batch normalisation too, and the temperature's beta1 is 0.9.
    """

    learning_rate: Positive = 1e-3
    """Adam's step size, also for a part of the algorithm without its own setting."""
    policy_delay: Count = 3
    """Policy and temperature are changed only in every n-th update."""

    adam_beta1: Annotated[float, Bound(low=0, below=0.999)] = 0.5
    """Adam's decay of the mean gradient (beta1), of all networks, and of a temperature that is learned: with less,
    steps follow the newest gradients more."""

    title: ClassVar[str] = "CrossQ"
    unsupported_own_keys: ClassVar[Mapping[str, str]] = {
        **SoftActorCriticConfig.unsupported_own_keys,
        "layer_norm": "the critics have batch normalisation",
    }
    supports_shards: ClassVar[bool] = False

    def check_actions(self, env: EnvSpec) -> None:
        require_bounded_box(env, self.title)
