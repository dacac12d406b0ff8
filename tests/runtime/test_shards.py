from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from offbeat.algorithms.ppo import PPOConfig
from offbeat.config.registry import ALGORITHMS
from offbeat.config.resolve import resolve
from offbeat.config.runtime_config import RuntimeConfig
from offbeat.core.errors import ConfigError
from offbeat.core.field_definitions import field_docstrings
from offbeat.runtime.tested_envs import require_shards


@dataclass(frozen=True)
class UncutConfig(PPOConfig):
    """The settings of an algorithm that cannot cut its minibatches."""

    supports_shards = False


def test_shards_with_an_algorithm_that_cannot_cut_its_minibatches_are_refused():
    config = resolve("ppo", "CartPole-v1")
    uncut = replace(config, algorithm_settings=UncutConfig())
    with pytest.raises(ConfigError, match=r"shards is 2, which is not supported by ppo: .* UncutConfig .* `cut`"):
        replace(uncut, runtime=replace(config.runtime, shards=2))
    assert replace(config, runtime=replace(config.runtime, shards=2)).runtime.shards == 2


@pytest.mark.parametrize(
    ("settings", "largest"),
    [
        ({"minibatch_size": 54}, 54),
        ({"minibatch_size": 27}, 27),
        ({"minibatch_size": 26}, 18),  # three minibatches
        ({"minibatch_size": 54, "core": "gru"}, 6),
        ({"minibatch_size": 26, "core": "gru"}, 2),
        ({"minibatch_size": 1, "core": "gru"}, 1),
    ],
)
def test_each_shard_of_a_full_minibatch_can_have_a_row_or_a_column(settings, largest):
    """A batch has 3 unrolls of 9 env steps and 2 columns."""
    runtime = RuntimeConfig(unrolls_per_batch=3, unroll_length=9, envs_per_actor=1)
    for shards in (1, largest):
        require_shards(replace(runtime, shards=shards), PPOConfig(**settings), 2)
    with pytest.raises(ConfigError, match=f"shards is {largest + 1}, but a batch has only "):
        require_shards(replace(runtime, shards=largest + 1), PPOConfig(**settings), 2)


def test_the_options_name_the_algorithms_without_shards():
    note = field_docstrings(RuntimeConfig)["shards"].lower()
    without = {name for name, entry in ALGORITHMS.items() if not entry.config_class().supports_shards}
    assert without == {name for name in ALGORITHMS if name in note}
