"""The base class of algorithms on a replay refuses a subclass that is not complete, and says what it lacks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.reference.dqn import new_dqn

from offbeat.algorithms.base import Stage
from offbeat.algorithms.dqn import DQN, DQNConfig
from offbeat.algorithms.off_policy import OffPolicy
from offbeat.core.errors import ConfigError

CONFIG = DQNConfig(hidden_sizes=(4,))


class WithoutMethods(OffPolicy[DQNConfig]):
    config_class = DQNConfig


class WithoutStart(OffPolicy[DQNConfig]):
    def build(self, generator: torch.Generator, storage: Any) -> None: ...

    def arrays(self) -> dict[str, torch.Tensor]:
        return {}


class WithoutArrays(OffPolicy[DQNConfig]):
    def build(self, generator: torch.Generator, storage: Any) -> None: ...

    def start(self, progress: float) -> dict[str, float]:  # noqa: ARG002
        return {}


class WithoutNetworks(DQN):
    def build(self, generator: torch.Generator, storage: Any) -> None:  # noqa: ARG002
        self.published_extras, self.groups = {}, {}


class WithoutExtras(DQN):
    def build(self, generator: torch.Generator, storage: Any) -> None:
        super().build(generator, storage)
        self.published_extras = {}


class WithUnknownGroup(DQN):
    def build(self, generator: torch.Generator, storage: Any) -> None:
        super().build(generator, storage)
        self.stages = (*self.stages, Stage("more", "critics", self.loss))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (WithoutMethods, r"WithoutMethods does not define build\(generator, storage\)"),
        (WithoutStart, r"WithoutStart does not define start\(progress\)"),
        (WithoutArrays, r"WithoutArrays does not define arrays\(\)"),
        (WithoutNetworks, r"WithoutNetworks.build does not set self.policy, self.stages$"),
        (WithoutExtras, r"WithoutExtras.build sets no extras in self.published_extras, but .* acts with epsilon: "),
        (WithUnknownGroup, r"a stage 'more' of the group 'critics', but the groups are q$"),
    ],
)
def test_an_incomplete_algorithm_on_a_replay_is_refused_with_what_it_lacks(own, message):
    with pytest.raises(ConfigError, match=message):
        own(CONFIG, new_dqn(CONFIG).spec, seed=0)
